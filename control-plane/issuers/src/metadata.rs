//! Documents fetched from an issuer, in their stored form: its key set, and the endpoints from discovery.

use serde::{Deserialize, Serialize};

use super::document::KeySet;

/// Stored form of an issuer's documents.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct IssuerMetadata {
    pub(super) jwks: KeySet,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) introspection_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authorization_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device_authorization_endpoint: Option<String>,
    /// Whether its authorization responses name it (RFC 9207 section 3).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) iss_parameter: bool,
}
