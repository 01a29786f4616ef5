//! Callers' views of servers in one snapshot.
//!
//! Keeps true: a caller is matched to policy once for each of its tokens; a list or a resource is looked up once for
//! callers with the same policy.

use std::collections::HashMap;
use std::sync::Arc;

use asp_call::digest;
use asp_edge::Caller;
use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::{Kind, Protocol};
use asp_snapshot::{Snapshot, VirtualServer};

use super::subscriber::{ListDigests, Profile};
use crate::pipeline::Pipeline;
use crate::pipeline::entitlement::ServerView;

/// A class of callers with the same policy and presentation: server, revision, org, policy targets.
type Class = (String, Revision, String, Vec<usize>);

/// The views of callers on servers.
pub(super) struct Views<'a> {
    pipeline: &'a Pipeline,
    pub(super) snapshot: &'a Snapshot,
    /// See [`asp_call::execution::Backends::offers_changed`].
    pub(super) offers: u64,
    /// Class of each caller; `None` for callers that do not see the server.
    by_caller: HashMap<[u8; 16], Option<Class>>,
    by_class: HashMap<Class, ClassView>,
}

/// The view of one class.
pub(super) struct ClassView {
    pub(super) lists: ListDigests,
    /// Digests of the primitives behind URIs; `None` if the class cannot see them.
    resources: HashMap<Arc<str>, Option<u64>>,
}

impl ClassView {
    /// Returns the digest of the primitive behind a resource that was looked up, if the class can see it.
    pub(super) fn resource(&self, uri: &str) -> Option<u64> {
        self.resources.get(uri).copied().flatten()
    }
}

impl<'a> Views<'a> {
    pub(super) fn of(pipeline: &'a Pipeline, snapshot: &'a Snapshot) -> Views<'a> {
        let offers = pipeline.offers_stamp();
        Views { pipeline, snapshot, offers, by_caller: HashMap::new(), by_class: HashMap::new() }
    }

    /// Returns the caller's view: the lists and `uris`; `None` if the caller does not see the server.
    pub(super) fn view(
        &mut self,
        profile: &Profile,
        caller: &Caller,
        uris: &[Arc<str>],
    ) -> Option<&ClassView> {
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
        let seen = self.by_class.entry(class).or_insert_with(|| ClassView {
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

/// Returns a digest of everything in a caller that policy depends on, and of its presentation.
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
) -> ListDigests {
    let mut lists: ListDigests = [0; 3];
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
            // The order matters, because lists are ordered.
            *so_far = so_far.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ digest;
        }
    }
    lists
}
