//! What plugins list themselves, as callers see it: asked for by an ordinary call, and kept for a moment.
//!
//! Keeps true: a list is of one primitive for one user with one set of rights, because a plugin may list to each what is
//! theirs; many who ask at once are one call; a plugin that fails hides nothing that it listed a minute ago, and is not
//! asked more often for it. Refuses nothing: who may see the primitive is the caller's to judge. Bound: lists by number, of
//! each user and org too, whatever their clients are called; each by what the executor lets through.

use std::sync::Arc;
use std::time::Duration;

use asp_snapshot::Snapshot;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::Pipeline;
use crate::call::outcome::{Outcome, Output};
use crate::call::principal::user;
use crate::call::{Call, Invocation};
use crate::digest;
use crate::shares::{Bounds, Owner, Share, Shares};

/// How long a list is told again without asking.
const KEPT: Duration = Duration::from_secs(5);
/// How long it is told by a plugin that does not answer any more.
const LASTS: Duration = Duration::from_secs(60);
/// How long a plugin may take, a start of its worker included.
const LONGEST: Duration = Duration::from_secs(10);
/// Most lists that are kept, of 256 KiB each: those used least go first, of whoever has too many.
const BOUNDS: Bounds = Bounds { whole: Share::of(256), of_org: Share::of(128), of_user: Share::of(64) };

/// The lists of one replica.
pub struct Listings {
    kept: Mutex<Shares<Arc<Kept>>>,
}

impl Default for Listings {
    fn default() -> Listings {
        Listings { kept: Mutex::new(Shares::new(BOUNDS)) }
    }
}

struct Kept {
    server: String,
    org: String,
    primitive: String,
    /// Held while the plugin is asked.
    list: tokio::sync::Mutex<List>,
}

#[derive(Default)]
struct List {
    asked: Option<Instant>,
    answered: Option<Instant>,
    resources: Arc<Vec<Value>>,
}

/// Ends the call when nobody waits for it any more.
struct Asking(Arc<Call>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Pipeline {
    /// The resources behind the template that the invocation names, as MCP's `Resource`s.
    pub async fn listed(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        mut invocation: Invocation,
    ) -> Arc<Vec<Value>> {
        let kept = self.listings.kept(&invocation);
        let mut list = kept.list.lock().await;
        if list.asked.is_some_and(|asked| asked.elapsed() < KEPT) {
            return list.resources.clone();
        }
        invocation.deadline = Some(Instant::now() + LONGEST);
        let resources = match self.begin(snapshot.clone(), invocation) {
            Ok(call) => listed(Asking(call)).await,
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

async fn listed(asking: Asking) -> Option<Vec<Value>> {
    let outcome = asking.0.finished().await;
    match outcome.as_ref() {
        Outcome::Done { output: Output::Contents { contents, .. }, .. } => {
            Some(contents.iter().map(|resource| resource.view().clone()).collect())
        }
        _ => {
            let Asking(call) = &asking;
            tracing::warn!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, "a plugin does not list its resources: clients see what it listed before, for a minute");
            None
        }
    }
}

impl Listings {
    /// A plugin says that `primitive` lists otherwise than before to the callers of an org.
    pub fn forget(&self, server: &str, org: &str, primitive: &str) {
        let is_it = |kept: &Kept| kept.server == server && kept.org == org && kept.primitive == primitive;
        self.kept.lock().retain(|kept| !is_it(kept));
    }

    fn kept(&self, invocation: &Invocation) -> Arc<Kept> {
        let Invocation { server, caller, entry, .. } = invocation;
        let name = server.message.name.as_str();
        let version = entry.digest.to_string();
        let mut parts = vec![name, &entry.primitive.id, &version];
        parts.extend([caller.issuer.as_str(), &caller.org, &caller.user, &caller.client]);
        parts.extend(caller.groups.iter().map(String::as_str));
        parts.push("");
        parts.extend(caller.scopes.iter().map(String::as_str));
        let owner = Owner { user: user(caller), org: digest::shortened(&[&caller.org]) };
        let made = || Kept {
            server: name.to_owned(),
            org: caller.org.clone(),
            primitive: entry.primitive.id.clone(),
            list: Default::default(),
        };
        self.kept_or(digest::shortened(&parts), owner, made)
    }

    fn kept_or(&self, key: [u8; 16], owner: Owner, made: impl FnOnce() -> Kept) -> Arc<Kept> {
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
            let made = || Kept {
                server: list.into(),
                org: org.into(),
                primitive: "files".into(),
                list: Default::default(),
            };
            listings.kept_or(digest::shortened(&[list]), owner, made)
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
