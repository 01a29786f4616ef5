//! By what the requests to an upstream prove themselves: by what the last call did, or by a credential of the operator's.
//!
//! Keeps true: what a session sends beside its calls never proves more than a call of the same principal did; what is asked
//! on nobody's behalf has the operator's credential, or nothing.

use std::sync::Arc;

use arc_swap::ArcSwap;
use asp_proto::snapshot::ServiceAuth;
use asp_proto::snapshot::service_auth::Kind;
use reqwest::Url;
use reqwest::header::HeaderMap;

use crate::executors::outbound::auth::Authorizer;

/// The headers of an upstream session's requests.
#[derive(Default)]
pub struct Proof {
    headers: ArcSwap<HeaderMap>,
    standing: Option<Standing>,
    /// They say who calls.
    is_of_caller: bool,
}

/// What is good without a call.
struct Standing {
    authorizer: Arc<Authorizer>,
    /// Whose spec names the credential.
    primitive: String,
    auth: ServiceAuth,
}

impl Proof {
    /// These, whoever calls.
    pub fn fixed(headers: HeaderMap) -> Proof {
        Proof { headers: ArcSwap::from_pointee(headers), ..Proof::default() }
    }

    /// As a call of a primitive with this `auth` has it; without a call nothing yet.
    pub(in crate::executors::proxy::mcp) fn of(
        authorizer: &Arc<Authorizer>,
        (primitive, auth): (&str, Option<&ServiceAuth>),
        headers: HeaderMap,
    ) -> Proof {
        let kind = auth.and_then(|auth| auth.kind.as_ref());
        let standing = auth.filter(|_| matches!(kind, Some(Kind::Credential(_)))).map(|auth| Standing {
            authorizer: authorizer.clone(),
            primitive: primitive.to_owned(),
            auth: auth.clone(),
        });
        Proof {
            headers: ArcSwap::from_pointee(headers),
            standing,
            is_of_caller: matches!(kind, Some(Kind::Token(_) | Kind::Exchange(_))),
        }
    }

    pub(in crate::executors::proxy::mcp) fn headers(&self) -> HeaderMap {
        HeaderMap::clone(&self.headers.load())
    }

    /// From now on as another call of the same principal, or of anybody where the caller does not matter.
    pub(in crate::executors::proxy::mcp) fn follow(&self, newer: &Proof) {
        if !std::ptr::eq(self, newer) {
            self.headers.store(newer.headers.load_full());
        }
    }

    /// Before something is asked on nobody's behalf: what is good now.
    pub(in crate::executors::proxy::mcp) async fn renew(&self, url: &Url) {
        let Some(Standing { authorizer, primitive, auth }) = &self.standing else { return };
        if let Some((name, value)) = authorizer.standing(primitive, auth, url).await {
            self.headers.store(Arc::new(HeaderMap::from_iter([(name, value)])));
        }
    }

    /// Whether an upstream may answer others otherwise.
    pub(in crate::executors::proxy::mcp) fn is_of_caller(&self) -> bool {
        self.is_of_caller
    }
}
