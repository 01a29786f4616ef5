//! Mapping of primitive ids to what an edge reads in a request: the exposed name, the URI, or the fixed start of a
//! URI template.
//!
//! Keeps true: finding the names of a limit costs no more than their number; a name that would also count requests of
//! other primitives is given to a limit only if the limit covers those too.

use std::collections::HashMap;

use asp_edge::names::matches;
use asp_proto::snapshot::{Limit, Listing};

use crate::compiled::CompiledServer;

/// Maximum number of other primitives a name may stand for; beyond it the limit is left to the gateway.
const MAX_SHARED: usize = 32;

/// The name that the edge reads for one listing of one server.
pub(super) struct EdgeName<'a> {
    pub(super) server: &'a str,
    /// A name, or `prefix*`.
    pub(super) pattern: String,
    id: &'a str,
    /// Other primitives of the server whose requests the pattern may cover; `None` for too many.
    shared: Option<Vec<&'a str>>,
}

/// Index of all names by a limit's selectors.
pub(super) struct Names<'a> {
    /// Names sorted by id, then server.
    all: Vec<EdgeName<'a>>,
    /// Indices in `all` of each server's names, sorted by id.
    of_server: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Names<'a> {
    pub(super) fn index(servers: &[&'a CompiledServer]) -> Names<'a> {
        let mut all: Vec<EdgeName<'a>> = servers.iter().flat_map(|server| of_server(server)).collect();
        all.sort_by(|a, b| (a.id, a.server, &a.pattern).cmp(&(b.id, b.server, &b.pattern)));
        let mut of_server: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, name) in all.iter().enumerate() {
            of_server.entry(name.server).or_default().push(place);
        }
        Names { all, of_server }
    }

    /// Returns the names of the primitives that the limit selects, without names that also stand for others.
    pub(super) fn selected_names(&self, limit: &'a Limit) -> Box<dyn Iterator<Item = &EdgeName<'a>> + '_> {
        let pattern = limit.primitive.as_str();
        let start = pattern.strip_suffix('*').unwrap_or(pattern);
        let alone = move |name: &&EdgeName<'a>| {
            name.shared.as_ref().is_some_and(|ids| ids.iter().all(|id| matches(pattern, id)))
        };
        let selected = move |name: &&EdgeName<'a>| matches(pattern, name.id);
        if limit.server == "*" {
            let from = self.all.partition_point(|name| name.id < start);
            let found = self.all.get(from..).unwrap_or_default().iter();
            return Box::new(found.take_while(selected).filter(alone));
        }
        let places = self.of_server.get(limit.server.as_str()).map(Vec::as_slice).unwrap_or_default();
        let name = |place: &usize| self.all.get(*place);
        let from = places.partition_point(|place| name(place).is_some_and(|name| name.id < start));
        let found = places.get(from..).unwrap_or_default().iter().filter_map(name);
        Box::new(found.take_while(selected).filter(alone))
    }
}

/// The fixed text that the edge reads for a listing, without the star of a template's pattern.
struct FixedText<'a> {
    text: &'a str,
    template: bool,
    id: &'a str,
}

fn fixed(listing: &Listing) -> FixedText<'_> {
    let (text, template) = match listing.mcp_name.split_once('{') {
        Some((text, _)) => (text, true),
        None => (listing.mcp_name.as_str(), false),
    };
    FixedText { text, template, id: &listing.id }
}

fn of_server(server: &CompiledServer) -> Vec<EdgeName<'_>> {
    let mut listed: Vec<FixedText<'_>> =
        server.server.listings.iter().filter(|listing| !listing.mcp_name.is_empty()).map(fixed).collect();
    // A template comes before the texts that its fixed start covers.
    listed.sort_by(|a, b| (a.text, !a.template, a.id).cmp(&(b.text, !b.template, b.id)));
    let mut shared: Vec<Option<Vec<&str>>> = listed.iter().map(|_| Some(Vec::new())).collect();
    // Earlier listings that may match the same request as the next one.
    let mut open: Vec<usize> = Vec::new();
    for (place, next) in listed.iter().enumerate() {
        open.retain(|before| listed.get(*before).is_some_and(|before| may_match(before, next)));
        for before in &open {
            let Some(other) = listed.get(*before) else { continue };
            share(shared.get_mut(*before), next.id);
            if next.template || other.text == next.text {
                share(shared.get_mut(place), other.id);
            }
        }
        open.push(place);
    }
    let names = listed.into_iter().zip(shared);
    names
        .map(|(listed, shared)| EdgeName {
            server: &server.server.name,
            pattern: pattern(&listed),
            id: listed.id,
            shared,
        })
        .collect()
}

/// Whether a request for `next` may match `before`. The text of `next` does not sort before that of `before`.
fn may_match(before: &FixedText<'_>, next: &FixedText<'_>) -> bool {
    before.text == next.text || (before.template && next.text.starts_with(before.text))
}

fn share<'a>(ids: Option<&mut Option<Vec<&'a str>>>, id: &'a str) {
    let Some(ids) = ids else { return };
    match ids {
        Some(known) if known.len() < MAX_SHARED => known.push(id),
        _ => *ids = None,
    }
}

fn pattern(listed: &FixedText<'_>) -> String {
    if listed.template { format!("{}*", listed.text) } else { listed.text.to_owned() }
}
