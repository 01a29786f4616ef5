//! The caller proved by a verified token, and the `revoked` entries that match this token.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A caller proved by a verified token. Gateways store it with the calls that another gateway may continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub org: String,
    pub user: String,
    pub groups: Vec<String>,
    pub scopes: Vec<String>,
    /// `client_id` (RFC 9068) or `azp`; empty when the token names none.
    pub client: String,
    /// The token's id: `jti`, else the lower-case hex SHA-256 of the compact token.
    pub wcit: String,
    /// SHA-256 of the compact token. Zeros for a caller without a token, and for one that the edge evaluated itself: it
    /// hashes only tokens that a revocation list might name.
    #[serde(default)]
    pub digest: [u8; 32],
    /// The issuer's name in the snapshot.
    pub issuer: String,
    /// Unix seconds.
    pub issued_at: u64,
    /// Unix seconds.
    pub expires_at: u64,
}

/// An entry of the snapshot's `revoked`.
pub(crate) type Mark = [u8; 16];

/// Returns the `revoked` entries that match a caller's token: those of the platform and those of the caller's own org.
pub(crate) fn marks(iss: &str, caller: &Caller, digest: &[u8; 32]) -> [Mark; 4] {
    let org = caller.org.as_str();
    let hash = hex(digest);
    [
        mark(&["token", iss, &caller.wcit]),
        mark(&["org_token", iss, org, &caller.wcit]),
        mark(&["token_hash", &hash]),
        mark(&["org_token_hash", org, &hash]),
    ]
}

/// Returns the first 16 bytes of SHA-256 over the parts joined by NUL.
pub(crate) fn mark(parts: &[&str]) -> Mark {
    let digest: [u8; 32] = Sha256::digest(parts.join("\0")).into();
    let mut mark = [0; 16];
    mark.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    mark
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    text.extend(digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)));
    text
}
