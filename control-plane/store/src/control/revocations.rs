//! Revocations as they are stored.

use serde::{Deserialize, Serialize};

/// Live revocations. The outermost bound: who writes is held to less, by bytes of a snapshot.
pub const MAX_REVOCATIONS: usize = 150_000;
/// Maximum number of revocations of one org, with those that the platform made in it.
pub const MAX_REVOCATIONS_PER_ORG: usize = 20_000;
/// Maximum number of revocations of one write.
pub const MAX_REVOCATIONS_AT_ONCE: usize = 1_000;

/// A revocation. The id is the caller's (a UUID).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationRecord {
    pub id: String,
    /// `token`, `token_hash`, `user`, `org` or `linked_token`.
    pub kind: String,
    /// Empty where the kind needs none.
    pub org: String,
    /// The jti, hash, user or org that is revoked.
    pub target: String,
    /// Issuer (`iss`) of a revoked jti; empty for every issuer.
    pub issuer: String,
    pub reason: String,
    /// Unix milliseconds: of user and org, tokens issued up to this second are dead.
    pub created_at: u64,
    /// Unix milliseconds after which the record is pruned.
    pub until: u64,
    /// Whether an admin of the platform made it, whatever its org.
    pub by_platform: bool,
}

/// The revocations that were added after a revision, without anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevokedSince {
    /// The revision up to which they are all here, as far as they have not been taken back.
    pub through: u64,
    /// Whether `through` is where the store is; `false`: there are more.
    pub is_whole: bool,
    pub records: Vec<RevocationRecord>,
}
