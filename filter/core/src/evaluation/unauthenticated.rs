//! The step that finds the caller, within the limits of unauthenticated requests.
//!
//! Owns the choice of what counts: refusals for a missing or bad token, and at an edge the requests whose credential only
//! the gateway can verify. The limits themselves are in the module of the same name above.

use super::Evaluation;
use crate::headers::Headers;
use crate::reason::Reason;
use crate::reply::{ErrorFormat, Reply};
use crate::server::Server;
use crate::token::{self, RequestCredential};
use crate::unauthenticated::{Meter, UnauthenticatedKind};
use crate::verdict::{EdgeRole, RequestFacts};

impl Evaluation<'_> {
    /// Finds the caller, or marks the request as one that the gateway must verify. Once the client's limit is reached, the
    /// refusal is that of the limit.
    pub(super) fn authenticate(
        &self,
        server: &Server,
        headers: &Headers<'_>,
        errors: &ErrorFormat,
        admitted: &mut RequestFacts,
    ) -> Result<(), Reply> {
        if let Err(refusal) = self.identify(server, headers, errors, admitted) {
            let Some(kind) = UnauthenticatedKind::of_refusal(refusal.reason) else { return Err(refusal) };
            let taken = self.meter().take(kind);
            return Err(taken.err().map_or(refusal, |seconds| limited(errors, kind, seconds)));
        }
        // A gateway limits the credentials that it verifies where it verifies them.
        if admitted.unverified && self.edge.role == EdgeRole::Filter {
            // The gateway looks at the certificate only without another credential. Each is told apart from a header with
            // the text of the other.
            let certificate = headers.certificate.filter(|_| headers.authorization.is_none());
            // A token is one credential, however its scheme and the spaces before it are written.
            let credential = token::credential(headers.authorization);
            let other = headers.authorization.filter(|_| credential == RequestCredential::Other);
            let kind = UnauthenticatedKind::Unverified;
            let begun = self.meter().begin((credential, other, certificate));
            admitted.attempt = begun.map_err(|seconds| limited(errors, kind, seconds))?;
        }
        Ok(())
    }

    pub(super) fn meter(&self) -> Meter<'_> {
        Meter {
            state: &self.edge.unauthenticated,
            rate: self.snapshot.unauthenticated_rate(),
            network: self.network,
            now_ms: self.env.now_ms,
        }
    }
}

/// Refuses a request beyond the limit of its kind.
pub(super) fn limited(errors: &ErrorFormat, kind: UnauthenticatedKind, seconds: u64) -> Reply {
    let reply = errors.refuse_with(Reason::RateLimited, "retry-after", seconds.to_string());
    Reply { limited: Some(kind), ..reply }
}
