//! The operator's credential for requests that belong to no call.

use std::sync::Arc;

use asp_mcp_client::client::proof::{Proof, StandingCredential};
use asp_proto::snapshot::ServiceAuth;
use asp_proto::snapshot::service_auth::Kind;
use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};

use crate::outbound::auth::Authorizer;

/// Credential of this name.
struct OperatorCredential {
    authorizer: Arc<Authorizer>,
    name: String,
}

/// Creates a proof for a spec with this `auth`; it has no headers yet.
pub(super) fn proof(authorizer: &Arc<Authorizer>, auth: Option<&ServiceAuth>) -> Proof {
    let credential = match auth.and_then(|auth| auth.kind.as_ref()) {
        Some(Kind::Credential(name)) => {
            let named = OperatorCredential { authorizer: authorizer.clone(), name: name.clone() };
            Some(Arc::new(named) as Arc<dyn StandingCredential>)
        }
        Some(Kind::Token(_) | Kind::Exchange(_) | Kind::Linked(_)) | None => None,
    };
    Proof::standing(credential)
}

#[async_trait]
impl StandingCredential for OperatorCredential {
    async fn header(&self, url: &Url) -> Option<(HeaderName, HeaderValue)> {
        self.authorizer.standing(&self.name, url).await
    }

    async fn refused(&self) {
        self.authorizer.refused_standing(&self.name).await;
    }
}
