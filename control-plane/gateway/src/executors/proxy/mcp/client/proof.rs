//! Authentication of requests to an upstream: requests of a call as that call, requests without a call by the
//! operator's credential or not at all.
//!
//! Keeps true: no call's requests ever use the credentials of another call; requests of a session outside its calls
//! use those of the last call of its principal.

use std::sync::Arc;

use arc_swap::ArcSwap;
use asp_proto::snapshot::ServiceAuth;
use asp_proto::snapshot::service_auth::Kind;
use reqwest::Url;
use reqwest::header::HeaderMap;

use crate::executors::outbound::auth::Authorizer;

/// Authentication headers of a client's requests. Clones share them; [`Proof::apart`] returns an independent copy.
#[derive(Clone, Default)]
pub struct Proof {
    headers: Arc<ArcSwap<HeaderMap>>,
    standing: Option<Arc<StandingCredential>>,
}

/// Operator's credential, which is valid without a call.
struct StandingCredential {
    authorizer: Arc<Authorizer>,
    credential: String,
}

impl Proof {
    /// Creates a proof with fixed headers, for any caller.
    pub fn fixed(headers: HeaderMap) -> Proof {
        Proof { headers: Arc::new(ArcSwap::from_pointee(headers)), standing: None }
    }

    /// Creates a proof for a spec with this `auth`; it has no headers yet.
    pub(in crate::executors::proxy::mcp) fn of(
        authorizer: &Arc<Authorizer>,
        auth: Option<&ServiceAuth>,
    ) -> Proof {
        let standing = match auth.and_then(|auth| auth.kind.as_ref()) {
            Some(Kind::Credential(credential)) => Some(Arc::new(StandingCredential {
                authorizer: authorizer.clone(),
                credential: credential.clone(),
            })),
            Some(Kind::Token(_) | Kind::Exchange(_)) | None => None,
        };
        Proof { standing, ..Proof::default() }
    }

    /// Returns a copy that is changed independently.
    pub(in crate::executors::proxy::mcp) fn apart(&self) -> Proof {
        let headers = Arc::new(ArcSwap::new(self.headers.load_full()));
        Proof { headers, standing: self.standing.clone() }
    }

    pub(in crate::executors::proxy::mcp) fn headers(&self) -> HeaderMap {
        HeaderMap::clone(&self.headers.load())
    }

    pub(in crate::executors::proxy::mcp) fn replace(&self, headers: HeaderMap) {
        self.headers.store(Arc::new(headers));
    }

    /// Takes over the headers of a later call of the session's principal.
    pub(in crate::executors::proxy::mcp) fn follow(&self, newer: &Proof) {
        self.headers.store(newer.headers.load_full());
    }

    /// Replaces the headers before a request without a call: by the operator's current credential, or by none.
    pub(in crate::executors::proxy::mcp) async fn renew(&self, url: &Url) {
        let header = match &self.standing {
            Some(standing) => standing.authorizer.standing(&standing.credential, url).await,
            None => None,
        };
        self.replace(HeaderMap::from_iter(header));
    }

    /// Reports that a request without a call was refused.
    pub(in crate::executors::proxy::mcp) async fn refused(&self) {
        if let Some(standing) = &self.standing {
            standing.authorizer.refused_standing(&standing.credential).await;
        }
    }
}
