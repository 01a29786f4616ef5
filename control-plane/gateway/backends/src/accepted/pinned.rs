//! Accepted items of upstreams, compared with the current lists.
//!
//! Keeps true: a change of an upstream is not served before somebody accepts it. An item that it no longer lists is
//! unknown here, and a tool is disabled if its new schemas reject what the accepted ones allow, or answer what those
//! do not promise, until it lists otherwise or a new import is published; any other item continues to be served as it
//! was accepted. Each drift is logged once, and counted. Bound: the items of one snapshot, and the lists of their
//! upstreams.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use asp_call::telemetry::metrics::UpstreamMetrics;
use asp_json::held;
use asp_mcp_client::listing::Lists;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Kind, McpStdio, Primitive, ProxyA2a, ProxyMcp, ServiceAuth, service_auth};
use asp_registry::{dialect, pin};
use parking_lot::Mutex;
use serde_json::Value;

use crate::outbound::auth;

pub(crate) mod drift;

/// List that contains an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// An item of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ItemKey {
    /// Name of its upstream.
    upstream: String,
    list: List,
    name: String,
    pin: String,
}

/// Result of comparing an accepted item with its upstream's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PinComparison {
    Same,
    /// Other descriptions, or compatible schemas.
    Changed,
    Incompatible,
    Removed,
}

/// Maximum size of a compared schema, in bytes of memory: beyond it a change counts as incompatible.
const MAX_SCHEMA: usize = 1 << 20;

/// Current items of an upstream: the digest of each, and its schemas if it has changed and they can be compared.
type ListedItems = HashMap<(List, String), (String, Option<Schemas<Value>>)>;

/// Input and output schemas of a tool.
#[derive(Clone, Default)]
struct Schemas<T> {
    input: T,
    output: T,
}

/// Accepted items of the snapshot in force, and the last known lists of their upstreams.
#[derive(Default)]
pub(crate) struct PinnedItems {
    known: Mutex<PinnedState>,
    /// Names of their upstreams.
    upstreams: ArcSwap<HashSet<String>>,
    /// Items that are not served.
    off: ArcSwap<HashSet<ItemKey>>,
    changes: AtomicU64,
    metrics: Arc<UpstreamMetrics>,
}

#[derive(Default)]
struct PinnedState {
    items: HashMap<ItemKey, ItemPin>,
    /// Lists by upstream, with the number of the snapshot that was in force when the poll began.
    listed: HashMap<String, (u64, ListedItems)>,
    /// Number of the snapshot in force.
    snapshot: u64,
}

/// The accepted state of an item.
struct ItemPin {
    /// Schemas as JSON text.
    schemas: Schemas<String>,
    /// Last result of the comparison.
    comparison: PinComparison,
    /// Number of the first snapshot that contains it: polls that began before are not compared with it.
    since: u64,
}

impl PinnedItems {
    pub(crate) fn counted_by(metrics: Arc<UpstreamMetrics>) -> PinnedItems {
        PinnedItems { metrics, ..PinnedItems::default() }
    }

    /// Sets the primitives of a new snapshot, each with its server.
    pub(crate) fn replace<'a>(&self, primitives: impl IntoIterator<Item = (&'a str, &'a Primitive)>) {
        let mut known = self.known.lock();
        known.snapshot += 1;
        let before = std::mem::take(&mut known.items);
        for (server, primitive) in primitives {
            let Some(item) = item(server, primitive) else { continue };
            let (comparison, since) = before
                .get(&item)
                .map_or((PinComparison::Same, known.snapshot), |before| (before.comparison, before.since));
            let schemas =
                Schemas { input: primitive.input_schema.clone(), output: primitive.output_schema.clone() };
            known.items.insert(item, ItemPin { schemas, comparison, since });
        }
        let PinnedState { items, listed, .. } = &mut *known;
        let upstreams: HashSet<String> = items.keys().map(|item| item.upstream.clone()).collect();
        listed.retain(|upstream, _| upstreams.contains(upstream));
        self.upstreams.store(Arc::new(upstreams));
        self.evaluate(&mut known, None);
    }

    /// Whether any item of the upstream was accepted with its digest.
    pub(crate) fn has_pins_of(&self, upstream: &str) -> bool {
        self.upstreams.load().contains(upstream)
    }

    /// Returns the number of the snapshot in force, for [`PinnedItems::learn`].
    pub(crate) fn snapshot(&self) -> u64 {
        self.known.lock().snapshot
    }

    /// Records the lists of the upstream, from a poll that began while `snapshot` was in force.
    pub(crate) fn learn(&self, upstream: &str, lists: &Lists, snapshot: u64) {
        let mut pinned: HashMap<(List, String), Vec<String>> = HashMap::new();
        for item in self.known.lock().items.keys().filter(|item| item.upstream == upstream) {
            pinned.entry((item.list, item.name.clone())).or_default().push(item.pin.clone());
        }
        // Items that nobody accepted are not kept.
        let mut listed = ListedItems::new();
        for (list, member, items) in [
            (List::Tools, "name", &lists.tools),
            (List::Prompts, "name", &lists.prompts),
            (List::Resources, "uri", &lists.resources),
            (List::Templates, "uriTemplate", &lists.templates),
        ] {
            for item in items {
                let Some(name) = item.get(member).and_then(Value::as_str) else { continue };
                let key = (list, name.to_owned());
                let Some(pins) = pinned.get(&key) else { continue };
                let pin = pin::pin(item);
                let is_changed = list == List::Tools && pins.iter().any(|accepted| *accepted != pin);
                let schemas = is_changed.then(|| schemas(item)).flatten();
                listed.insert(key, (pin, schemas));
            }
        }
        let mut known = self.known.lock();
        known.listed.insert(upstream.to_owned(), (snapshot, listed));
        self.evaluate(&mut known, Some(upstream));
    }

    /// Whether the server's primitive is served, as far as its upstream is concerned.
    pub(crate) fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        let off = self.off.load();
        off.is_empty() || item(server, primitive).is_none_or(|item| !off.contains(&item))
    }

    /// Returns a number that changes whenever the answers of [`PinnedItems::offers`] change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Compares the items of one upstream, or of all.
    fn evaluate(&self, known: &mut PinnedState, of: Option<&str>) {
        let PinnedState { items, listed, .. } = known;
        let mut off = HashSet::new();
        let mut changed = 0;
        let mut incompatible = 0;
        let mut removed = 0;
        for (item, accepted) in items.iter_mut() {
            let polled = listed.get(&item.upstream).filter(|(snapshot, _)| *snapshot >= accepted.since);
            let now = match of {
                Some(upstream) if item.upstream != upstream => accepted.comparison,
                _ => {
                    polled.map_or(PinComparison::Same, |(_, listed)| compare(item, &accepted.schemas, listed))
                }
            };
            if std::mem::replace(&mut accepted.comparison, now) != now {
                tell(item, now);
            }
            match now {
                PinComparison::Same => continue,
                PinComparison::Changed => changed += 1,
                PinComparison::Incompatible => incompatible += 1,
                PinComparison::Removed => removed += 1,
            }
            if now != PinComparison::Changed {
                off.insert(item.clone());
            }
        }
        self.metrics.drifted(changed, incompatible, removed);
        if **self.off.load() != off {
            self.off.store(Arc::new(off));
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Returns the schemas of an item in the form that an import accepts: what it translates or leaves out is no change of the
/// upstream. An absent one accepts everything. `None` if one is too large to compare.
fn schemas(item: &Value) -> Option<Schemas<Value>> {
    let schema = |name: &str, accepted: fn(&Value) -> Value| {
        let schema = item.get(name).unwrap_or(&Value::Bool(true));
        (held::of_value(schema) <= MAX_SCHEMA).then(|| accepted(schema))
    };
    Some(Schemas {
        input: schema("inputSchema", dialect::accepted_arguments)?,
        output: schema("outputSchema", dialect::accepted_results)?,
    })
}

fn compare(item: &ItemKey, accepted: &Schemas<String>, listed: &ListedItems) -> PinComparison {
    let Some((pin, now)) = listed.get(&(item.list, item.name.clone())) else { return PinComparison::Removed };
    if *pin == item.pin {
        return PinComparison::Same;
    }
    if item.list != List::Tools {
        return PinComparison::Changed;
    }
    let schema = |text: &str| serde_json::from_str(text).unwrap_or(Value::Bool(true));
    let is_compatible = now.as_ref().is_some_and(|Schemas { input, output }| {
        !pin::refuses_what_fitted(&schema(&accepted.input), input)
            && !pin::promises_less(&schema(&accepted.output), output)
    });
    if is_compatible { PinComparison::Changed } else { PinComparison::Incompatible }
}

fn tell(item: &ItemKey, now: PinComparison) {
    let upstream = &item.upstream;
    let name = &item.name;
    match now {
        PinComparison::Same => {
            tracing::info!(upstream, name, "an upstream's item equals its accepted state again")
        }
        PinComparison::Changed => tracing::warn!(
            upstream,
            name,
            "an upstream changed an item, which is still served as accepted; review the change with asp import, and accept it with --accept"
        ),
        PinComparison::Incompatible => tracing::warn!(
            upstream,
            name,
            "an upstream's tool no longer matches its accepted schemas and was disabled; review the change with asp import, and accept it with --accept"
        ),
        PinComparison::Removed => tracing::warn!(
            upstream,
            name,
            "an upstream no longer lists an item, which is hidden here; import the upstream again to remove it"
        ),
    }
}

/// Returns the accepted item behind a server's primitive; `None` if its spec accepts any state.
fn item(server: &str, primitive: &Primitive) -> Option<ItemKey> {
    let (upstream, tool, pin) = match primitive.runtime.as_ref()?.mode.as_ref()? {
        // The lists that it shows to each caller are not the accepted ones.
        Mode::ProxyMcp(_) | Mode::ProxyA2a(_) if identifies_caller(primitive) => return None,
        Mode::ProxyMcp(ProxyMcp { url, tool, pin, .. }) if !pin.is_empty() => {
            (upstream(url, primitive.service_auth.as_ref()), tool, pin)
        }
        Mode::ProxyA2a(target)
            if !target.pin.is_empty() && !target.card.is_empty() && !target.skill.is_empty() =>
        {
            (agent(target, primitive.service_auth.as_ref()), &target.skill, &target.pin)
        }
        Mode::McpStdio(target) if !target.pin.is_empty() => {
            (package(server, primitive, target), &target.tool, &target.pin)
        }
        _ => return None,
    };
    let list = match primitive.kind() {
        Kind::Prompt => List::Prompts,
        Kind::Resource => List::Resources,
        Kind::ResourceTemplate => List::Templates,
        _ => List::Tools,
    };
    Some(ItemKey { upstream, list, name: tool.clone(), pin: pin.clone() })
}

/// Returns the name of an upstream at `url`: it may list other items with another credential, or with none.
pub(crate) fn upstream(url: &str, auth: Option<&ServiceAuth>) -> String {
    match auth::name_of(auth) {
        name if name.is_empty() => url.to_owned(),
        name => format!("{url} by {name}"),
    }
}

/// Returns the name of an agent by its card and the keys that may sign it: one spec does not decide for another one whose
/// signature a card needs.
pub(crate) fn agent(target: &ProxyA2a, auth: Option<&ServiceAuth>) -> String {
    let name = upstream(&target.card, auth);
    match target.signers.is_empty() {
        true => name,
        false => format!("{name} signed by {}", target.signers.join(" ")),
    }
}

fn identifies_caller(primitive: &Primitive) -> bool {
    use service_auth::Kind::{Exchange, Linked, Token};
    let auth = primitive.service_auth.as_ref().and_then(|auth| auth.kind.as_ref());
    matches!(auth, Some(Token(_) | Exchange(_) | Linked(_)))
}

/// Separator of the package and the server here in the name of a stdio server; neither contains white space.
const AT: &str = " at ";

/// Names a stdio server: by its package, which cannot be mistaken for a URL, and by the server here that runs it.
/// Another server may have other secrets and networks, with which the package lists other items.
pub(crate) fn package(server: &str, primitive: &Primitive, target: &McpStdio) -> String {
    let (id, version) = asp_registry::stdio_package(target, &primitive.version);
    match target.artifact_sha256.as_str() {
        "" => format!("{id}@{version}{AT}{server}"),
        sha256 => format!("{id}@{version} {sha256}{AT}{server}"),
    }
}

/// Whether two names of stdio servers have the same package, whose processes the servers may share.
pub(super) fn is_same_package(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|name| name.rsplit_once(AT).map(|(package, _)| package));
    one.is_some() && one == other
}

#[cfg(test)]
mod tests;
