//! By what the requests to an upstream prove themselves: those of a call as that call does, those on nobody's behalf by the
//! operator's credential or by nothing.
//!
//! Keeps true: no call's requests ever take on what proved another one; a session sends beside its calls what the last
//! call of its principal had.

use std::sync::Arc;

use arc_swap::ArcSwap;
use asp_proto::snapshot::ServiceAuth;
use asp_proto::snapshot::service_auth::Kind;
use reqwest::Url;
use reqwest::header::HeaderMap;

use crate::executors::outbound::auth::Authorizer;

/// The headers of a client's requests. A clone is the same; [`Proof::apart`] is another one.
#[derive(Clone, Default)]
pub struct Proof {
    headers: Arc<ArcSwap<HeaderMap>>,
    standing: Option<Arc<Standing>>,
}

/// What is good without a call.
struct Standing {
    authorizer: Arc<Authorizer>,
    credential: String,
}

impl Proof {
    /// These, whoever calls.
    pub fn fixed(headers: HeaderMap) -> Proof {
        Proof { headers: Arc::new(ArcSwap::from_pointee(headers)), standing: None }
    }

    /// As a spec with this `auth` has it; nothing yet.
    pub(in crate::executors::proxy::mcp) fn of(
        authorizer: &Arc<Authorizer>,
        auth: Option<&ServiceAuth>,
    ) -> Proof {
        let standing = match auth.and_then(|auth| auth.kind.as_ref()) {
            Some(Kind::Credential(credential)) => {
                Some(Arc::new(Standing { authorizer: authorizer.clone(), credential: credential.clone() }))
            }
            Some(Kind::Token(_) | Kind::Exchange(_)) | None => None,
        };
        Proof { standing, ..Proof::default() }
    }

    /// The same for now, and changed by nobody else.
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

    /// Of a session's own: from now on as another call of its principal.
    pub(in crate::executors::proxy::mcp) fn follow(&self, newer: &Proof) {
        self.headers.store(newer.headers.load_full());
    }

    /// Before something is asked on nobody's behalf: what is good now, and nothing of a call.
    pub(in crate::executors::proxy::mcp) async fn renew(&self, url: &Url) {
        let header = match &self.standing {
            Some(standing) => standing.authorizer.standing(&standing.credential, url).await,
            None => None,
        };
        self.replace(HeaderMap::from_iter(header));
    }

    /// What was asked on nobody's behalf was refused.
    pub(in crate::executors::proxy::mcp) async fn refused(&self) {
        if let Some(standing) = &self.standing {
            standing.authorizer.refused_standing(&standing.credential).await;
        }
    }
}
