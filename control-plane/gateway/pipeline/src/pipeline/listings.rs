//! Lists that plugins make themselves, per caller: requested by an ordinary call, and cached briefly.
//!
//! Keeps true: a list belongs to one primitive and one user with one set of rights, because a plugin may list to each
//! user their own resources; simultaneous requests share one call; a plugin that fails hides nothing that it listed
//! within the last minute, and is not asked more often for it. Refuses nothing: the caller of this module decides who
//! may see the primitive. Bound: the number of lists, also per user and org, whatever their clients are called; the
//! size of each is bounded by the backend.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::outcome::{Outcome, Output};
use asp_call::call::principal::owner;
use asp_call::call::{Call, CallRequest, Invocation};
use asp_call::digest;
use asp_call::quota_table::{Owner, Quota, QuotaTable, Quotas};
use asp_snapshot::Snapshot;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::Pipeline;

/// Time for which a list is served without asking again.
const KEPT: Duration = Duration::from_secs(5);
/// Time for which the list of a plugin that no longer answers is served.
const LASTS: Duration = Duration::from_secs(60);
/// Time limit of a plugin, including the start of its worker.
const LONGEST: Duration = Duration::from_secs(10);
/// Maximum number of lists that are cached, of 256 KiB each: the least recently used ones of an owner with too many are
/// evicted first.
const BOUNDS: Quotas = Quotas { whole: Quota::of(256), of_org: Quota::of(128), of_user: Quota::of(64) };

/// The cached lists of one replica.
pub struct Listings {
    kept: Mutex<QuotaTable<Arc<CachedList>>>,
}

impl Default for Listings {
    fn default() -> Listings {
        Listings { kept: Mutex::new(QuotaTable::new(BOUNDS)) }
    }
}

struct CachedList {
    server: String,
    org: String,
    primitive: String,
    /// Locked while the plugin is asked.
    list: tokio::sync::Mutex<ListContent>,
}

#[derive(Default)]
struct ListContent {
    asked: Option<Instant>,
    answered: Option<Instant>,
    resources: Arc<Vec<Value>>,
}

/// Cancels the call when it is no longer awaited.
struct CancelOnDrop(Arc<Call>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Pipeline {
    /// Returns the resources behind the template that the invocation names, as MCP's `Resource`s.
    pub async fn listed(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        mut invocation: Invocation,
    ) -> Arc<Vec<Value>> {
        let kept = self.listings.cached(&invocation);
        let mut list = kept.list.lock().await;
        if list.asked.is_some_and(|asked| asked.elapsed() < KEPT) {
            return list.resources.clone();
        }
        invocation.deadline = Some(Instant::now() + LONGEST);
        let resources = match self.begin(snapshot.clone(), invocation) {
            Ok(call) => listed(CancelOnDrop(call)).await,
            Err(_) => None,
        };
        list.asked = Some(Instant::now());
        match resources {
            Some(resources) => {
                list.answered = list.asked;
                list.resources = Arc::new(resources);
            }
            None if list.answered.is_none_or(|answered| answered.elapsed() >= LASTS) => {
                list.resources = Arc::default();
            }
            None => {}
        }
        list.resources.clone()
    }
}

async fn listed(asking: CancelOnDrop) -> Option<Vec<Value>> {
    let outcome = asking.0.finished().await;
    match outcome.as_ref() {
        Outcome::Done { output: Output::Contents { contents, .. }, .. } => {
            Some(contents.iter().map(|resource| resource.view().clone()).collect())
        }
        _ => {
            let CancelOnDrop(call) = &asking;
            tracing::warn!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, "plugin did not list its resources; clients see its previous list for up to a minute");
            None
        }
    }
}

impl Listings {
    /// Drops the lists of `primitive` for an org, because its plugin reports a change.
    pub fn forget(&self, server: &str, org: &str, primitive: &str) {
        let is_it =
            |kept: &CachedList| kept.server == server && kept.org == org && kept.primitive == primitive;
        self.kept.lock().retain(|kept| !is_it(kept));
    }

    fn cached(&self, invocation: &Invocation) -> Arc<CachedList> {
        let CallRequest { server, caller, entry, .. } = &invocation.request;
        let name = server.message.name.as_str();
        let version = entry.digest.to_string();
        let mut parts = vec![name, &entry.primitive.id, &version];
        parts.extend([caller.issuer.as_str(), &caller.org, &caller.user, &caller.client]);
        parts.extend(caller.groups.iter().map(String::as_str));
        parts.push("");
        parts.extend(caller.scopes.iter().map(String::as_str));
        let made = || CachedList {
            server: name.to_owned(),
            org: caller.org.clone(),
            primitive: entry.primitive.id.clone(),
            list: Default::default(),
        };
        self.get_or(digest::shortened(&parts), owner(caller), made)
    }

    fn get_or(&self, key: [u8; 16], owner: Owner, made: impl FnOnce() -> CachedList) -> Arc<CachedList> {
        let mut all = self.kept.lock();
        if let Some(kept) = all.touch(&key) {
            return kept.clone();
        }
        let kept = Arc::new(made());
        all.replace(key, owner, kept.clone());
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_one_user_or_org_push_out_none_of_another() {
        let listings = Listings::default();
        let keep = |list: &str, user: &str, org: &str| {
            let owner = Owner { user: digest::shortened(&[user]), org: digest::shortened(&[org]) };
            let made = || CachedList {
                server: list.into(),
                org: org.into(),
                primitive: "files".into(),
                list: Default::default(),
            };
            listings.get_or(digest::shortened(&[list]), owner, made)
        };
        let own = keep("own", "bob", "globex");
        let colleague = keep("colleague", "carol", "acme");
        for list in 0..1_000 {
            keep(&list.to_string(), "alice", "acme");
        }
        assert!(Arc::ptr_eq(&keep("colleague", "carol", "acme"), &colleague), "of the same org");
        for user in 0..1_000 {
            keep(&format!("of {user}"), &user.to_string(), "acme");
        }
        assert!(Arc::ptr_eq(&keep("own", "bob", "globex"), &own), "of another org");
        listings.forget("own", "globex", "files");
        assert!(!Arc::ptr_eq(&keep("own", "bob", "globex"), &own));
    }
}
