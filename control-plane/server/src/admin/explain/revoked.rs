//! Revocations of a caller's tokens.
//!
//! They are looked up in the published snapshot, which is enforced. Only if there is one, the store is read for its
//! author and reason. If the platform revoked a token in all orgs, an admin of an org only learns that the token is
//! revoked.

use asp_platform::clock;
use asp_store::control::sql::ControlStore;
use asp_store::control::{MAX_REVOCATIONS_PER_ORG, RevocationRecord, StoreError};
use asp_xds::published::Publication;
use serde_json::{Value, json};

use crate::policy::{self, BLOCK_ORG, BLOCK_USER, LINKED_TOKEN, RevokedList};

/// Maximum number of revocations in an answer; the newest.
const MAX_SHOWN: usize = 20;
/// Maximum number that is read: all of an org, and the same number of the platform's.
const MAX_READ: u32 = MAX_REVOCATIONS_PER_ORG as u32;

/// A caller whose tokens may be revoked.
pub(super) struct TokenHolder<'a> {
    pub(super) org: &'a str,
    /// Name of a user or machine.
    pub(super) user: &'a str,
    /// Id of the token; empty if no token is named.
    pub(super) wcit: &'a str,
    /// `iss` values that its tokens may have.
    pub(super) issuers: Vec<String>,
}

/// Revocations of one caller's tokens.
#[derive(Default)]
pub(super) struct CallerRevocations {
    /// Whether the named token is revoked.
    pub(super) token: bool,
    /// Whether the caller is blocked, with any token.
    pub(super) block: bool,
    /// Records, newest first.
    records: Vec<RevocationRecord>,
}

/// Finds the revocations; `of_all` includes those that the platform made for all orgs.
pub(super) async fn find(
    store: &ControlStore,
    published: &Publication,
    holder: &TokenHolder<'_>,
    of_all: bool,
) -> Result<CallerRevocations, StoreError> {
    let TokenHolder { org, user, wcit, ref issuers } = *holder;
    let (token, before, block) = {
        let lists: [RevokedList<'_>; 2] =
            [(&*published.edge.content).into(), (&*published.recent.content).into()];
        let token = !wcit.is_empty() && policy::is_token_revoked(&lists, issuers, (org, wcit));
        let block = policy::is_blocked(&lists, org, user);
        (token, policy::is_revoked_before(&lists, org, user), block)
    };
    if !token && !before {
        return Ok(CallerRevocations::default());
    }
    let now = clock::now_ms();
    let counts = |record: &RevocationRecord| record.until > now && hits(record, holder);
    let mut records = store.revocations(Some(org), MAX_READ).await?;
    records.retain(counts);
    if token && of_all {
        let mut all = store.revocations(None, MAX_READ).await?;
        all.retain(|record| record.org.is_empty() && counts(record));
        records.extend(all);
    }
    Ok(CallerRevocations { token, block, records })
}

fn hits(record: &RevocationRecord, holder: &TokenHolder<'_>) -> bool {
    let is_token = !holder.wcit.is_empty() && record.target == holder.wcit;
    match record.kind.as_str() {
        "org" | BLOCK_ORG => record.target == holder.org,
        "user" | BLOCK_USER => record.target == holder.user,
        "token" => is_token && (record.issuer.is_empty() || holder.issuers.contains(&record.issuer)),
        "token_hash" => is_token,
        // It ends links, and refuses nothing.
        LINKED_TOKEN => false,
        // Of a later version: every token of the org is revoked instead.
        _ => true,
    }
}

impl CallerRevocations {
    /// Formats them for an answer. The team of a server does not get the reasons.
    pub(super) fn revocations_json(&self, is_team: bool) -> Vec<Value> {
        let shown = |record: &RevocationRecord| {
            let before = policy::revoked([record], &[], record.created_at).before;
            let issued_until =
                before.first().filter(|before| !before.block).map(|before| before.not_after_iat);
            let is_block = matches!(record.kind.as_str(), BLOCK_USER | BLOCK_ORG);
            if is_team {
                return json!({ "type": record.kind, "issuedUntil": issued_until });
            }
            json!({
                "revocation": record.id,
                "type": record.kind,
                "id": record.target,
                "reason": record.reason,
                "by": if record.by_platform { "platform" } else { "org" },
                "issuedUntil": issued_until,
                "until": (!is_block).then_some(record.until),
            })
        };
        self.records.iter().take(MAX_SHOWN).map(shown).collect()
    }
}
