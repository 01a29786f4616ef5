//! What was fetched from an issuer, as it is kept: its key set, and the endpoints that discovery names.

use serde::{Deserialize, Serialize};

use super::document::KeySet;

/// The form in the store.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Fetched {
    pub(super) jwks: KeySet,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) introspection_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authorization_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device_authorization_endpoint: Option<String>,
}
