//! Stored revocations.

use serde::{Deserialize, Serialize};

/// Maximum number of live revocations. An outer limit: writers enforce a lower one, in bytes of a snapshot.
pub const MAX_REVOCATIONS: usize = 150_000;
/// Maximum number of revocations of one org, those made by the platform included.
pub const MAX_REVOCATIONS_PER_ORG: usize = 20_000;
/// Maximum number of revocations in one write.
pub const MAX_REVOCATIONS_AT_ONCE: usize = 1_000;

/// A revocation. The caller chooses the id (a UUID).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationRecord {
    pub id: String,
    /// `token`, `token_hash`, `user`, `org`, `linked_token`, `block_user` or `block_org`.
    pub kind: String,
    /// Empty if the kind needs no org.
    pub org: String,
    /// The revoked jti, hash, user or org.
    pub target: String,
    /// Issuer (`iss`) of a revoked jti; empty for every issuer.
    pub issuer: String,
    pub reason: String,
    /// Unix milliseconds. For users and orgs, tokens issued up to this second are revoked.
    pub created_at: u64,
    /// Unix milliseconds after which the record is pruned.
    pub until: u64,
    /// Whether a platform admin made it, regardless of its org.
    pub by_platform: bool,
}

/// Revocations added after a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationPage {
    /// Revision up to which the records are complete, except for revocations deleted since.
    pub through: u64,
    /// Revision of the last record, at most `through`; the same as `through` if there are none.
    pub newest: u64,
    /// Whether `through` is the store's current revision; `false`: there are more.
    pub is_whole: bool,
    pub records: Vec<RevocationRecord>,
}
