//! What callers see of servers by one snapshot.
//!
//! Keeps true: a caller is matched to policy once for each of its tokens; a list, and a resource, is looked up once for
//! those whom policy names alike.

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::Caller;
use asp_proto::snapshot::{Kind, Protocol};
use asp_snapshot::mcp_revision::Revision;
use asp_snapshot::{Snapshot, VirtualServer};

use super::subscriber::{Lists, Profile};
use crate::digest;
use crate::pipeline::Pipeline;
use crate::pipeline::entitlement::ServerView;

/// Whom policy rules on alike, and how they are shown it: server, revision, org, targets.
type Class = (String, Revision, String, Vec<usize>);

/// What callers see of servers.
pub(super) struct Views<'a> {
    pipeline: &'a Pipeline,
    pub(super) snapshot: &'a Snapshot,
    /// See [`crate::execution::Executor::offers_changed`].
    pub(super) offers: u64,
    /// `None` for those who do not see the server.
    by_caller: HashMap<[u8; 16], Option<Class>>,
    by_class: HashMap<Class, Seen>,
}

/// What those of one class see.
pub(super) struct Seen {
    pub(super) lists: Lists,
    /// Digests of what is behind URIs; `None` where that cannot be seen.
    resources: HashMap<Arc<str>, Option<u64>>,
}

impl Seen {
    /// The digest of what is behind a resource, where that can be seen and was asked for.
    pub(super) fn resource(&self, uri: &str) -> Option<u64> {
        self.resources.get(uri).copied().flatten()
    }
}

impl<'a> Views<'a> {
    pub(super) fn of(pipeline: &'a Pipeline, snapshot: &'a Snapshot) -> Views<'a> {
        let offers = pipeline.offers_stamp();
        Views { pipeline, snapshot, offers, by_caller: HashMap::new(), by_class: HashMap::new() }
    }

    /// What the caller sees: the lists and `uris`; `None` where that is nothing, not even the server.
    pub(super) fn seen(&mut self, profile: &Profile, caller: &Caller, uris: &[Arc<str>]) -> Option<&Seen> {
        let server = self.snapshot.server(&profile.server)?;
        let of_caller = of_caller(profile, caller);
        let mut view = None;
        let mut viewing = || ServerView::of(self.snapshot, server, caller, Protocol::Mcp);
        let class = self.by_caller.entry(of_caller).or_insert_with(|| {
            let targets = view.insert(viewing()).targets()?;
            Some((profile.server.clone(), profile.revision, caller.org.clone(), targets))
        });
        let class = class.clone()?;
        let pipeline = self.pipeline;
        let seen = self.by_class.entry(class).or_insert_with(|| Seen {
            lists: lists(pipeline, server, view.get_or_insert_with(&mut viewing), profile.revision),
            resources: HashMap::new(),
        });
        for uri in uris {
            if !seen.resources.contains_key(uri) {
                let view = view.get_or_insert_with(&mut viewing);
                let found = server.resource(uri).map(|(entry, _)| entry);
                let found = found.filter(|entry| view.shows(entry) && pipeline.offers(server, entry));
                seen.resources.insert(uri.clone(), found.map(|entry| entry.digest));
            }
        }
        Some(seen)
    }
}

/// All of a caller that policy asks for, and how it is shown what it sees.
fn of_caller(profile: &Profile, caller: &Caller) -> [u8; 16] {
    let revision = profile.revision.as_str();
    let mut parts = vec![profile.server.as_str(), revision, &caller.org, &caller.user, &caller.wcit];
    parts.extend(caller.groups.iter().map(String::as_str));
    digest::shortened(&parts)
}

fn lists(
    pipeline: &Pipeline,
    server: &VirtualServer,
    view: &mut ServerView<'_>,
    revision: Revision,
) -> Lists {
    let mut lists: Lists = [0; 3];
    for entry in server.entries.iter().filter(|entry| !entry.listing.mcp_name.is_empty()) {
        let list = match entry.primitive.kind() {
            Kind::Tool | Kind::Task => 0,
            Kind::Prompt => 1,
            Kind::Resource | Kind::ResourceTemplate => 2,
            Kind::Elicitation | Kind::Delegate | Kind::Unspecified => continue,
        };
        if let Some(digest) = entry.listed_digest(revision)
            && view.shows(entry)
            && pipeline.offers(server, entry)
            && let Some(so_far) = lists.get_mut(list)
        {
            // The order counts: a list is in order.
            *so_far = so_far.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ digest;
        }
    }
    lists
}
