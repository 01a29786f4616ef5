//! Access that an undo gives and takes, evaluated with the code that decides calls.
//!
//! A binding is evaluated for a caller of whom only its target is known. Keeps true: an effect that is shown is one of
//! the whole policy, so a binding that another one overrules has none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_edge::{Caller, names};
use asp_proto::snapshot::{Primitive, Protocol, TargetKind};
use asp_registry::CompiledServer;
use asp_snapshot::policy::{Effect, Policy, Ruling};
use asp_store::control::{
    BindingRecord, CONCURRENCY, ExposureRecord, LimitRecord, ListDifference, OfferRecord, RevocationRecord,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::explain::depends::member;
use crate::admin::explain::rules::name_in_protocol;
use crate::admin::problem::Result;
use crate::admin::{AdminState, name_checks, offers};
use crate::catalog::offers::OfferTable;
use crate::catalog::orgs::{OrgPolicy, Records};
use crate::policy;
use crate::policy::{BLOCK_ORG, BLOCK_USER, refill, window};

/// Maximum number of effects that are shown in each direction.
const MAX_SHOWN: usize = 50;
/// Maximum number of targets that are evaluated.
const MAX_TARGETS: usize = 200;
const ANY: &str = "*";

/// Access of somebody that an undo changes.
#[derive(Serialize, ToSchema)]
pub struct AccessChange {
    pub who: String,
    /// Server, or `*`
    pub server: String,
    /// Id of the primitive, `prefix*` or `*`
    pub primitive: String,
    /// `mcp`, `a2a`, `rest` or `*`
    pub protocol: String,
    pub from: String,
    pub to: String,
}

/// All effects of an undo.
#[derive(Default, Serialize, ToSchema)]
pub struct AccessChanges {
    /// Access that the undo gives
    pub gains: Vec<AccessChange>,
    /// Access that the undo takes
    pub loses: Vec<AccessChange>,
    /// Number of effects that are not shown
    pub more: usize,
}

impl AccessChanges {
    fn add(&mut self, is_gain: bool, effect: AccessChange) {
        let list = if is_gain { &mut self.gains } else { &mut self.loses };
        if list.len() < MAX_SHOWN {
            list.push(effect);
        } else {
            self.more += 1;
        }
    }
}

/// The compiled servers, and what an org has of them.
pub(super) struct OrgServers {
    org: String,
    pub(super) servers: Vec<Arc<CompiledServer>>,
    pub(super) offers: Vec<OfferRecord>,
    pub(super) exposure: Vec<ExposureRecord>,
    /// The org's only issuer; empty if it has several.
    issuer: String,
}

impl OrgServers {
    pub(super) async fn read(state: &AdminState, org: &str) -> Result<OrgServers> {
        let issuer = match name_checks::issuers_of(state, org).as_slice() {
            [only] => only.clone(),
            _ => String::new(),
        };
        Ok(OrgServers {
            org: org.to_owned(),
            servers: state.compiler.last_compiled(),
            offers: state.store.offers_to(org).await?,
            exposure: state.store.exposure(org).await?.value,
            issuer,
        })
    }

    /// Returns the protocols over which the org reaches each server, with these offers and exceptions.
    pub(super) fn reachable(
        &self,
        offers: &[OfferRecord],
        exposure: &[ExposureRecord],
    ) -> BTreeMap<String, BTreeSet<&'static str>> {
        let offered = OfferTable::of(&self.servers, offers);
        let is_offered = |server: &&Arc<CompiledServer>| offered.includes(&server.server.name, &self.org);
        let mut found = BTreeMap::new();
        for server in self.servers.iter().filter(is_offered) {
            let name = server.server.name.as_str();
            let exception = |protocol| {
                let word = asp_snapshot::protocol::protocol_name(protocol);
                let mut all = exposure.iter();
                all.find(|record| record.server == name && record.protocol == word)
                    .map(|record| record.enabled)
            };
            let on = offers::switches(&server.edge, exception).into_iter().filter(|switch| switch.on);
            found.insert(name.to_owned(), on.map(|switch| switch.protocol).collect());
        }
        found
    }

    /// Returns every primitive that the org reaches, with its server and a protocol.
    fn primitives(&self) -> Vec<(&str, &Primitive, Protocol)> {
        let reachable = self.reachable(&self.offers, &self.exposure);
        let mut found = Vec::new();
        for server in &self.servers {
            let name = server.server.name.as_str();
            let Some(on) = reachable.get(name) else { continue };
            for listing in &server.server.listings {
                let mut all = server.primitives.iter();
                let same = |known: &&Primitive| known.id == listing.id && known.version == listing.version;
                let Some(primitive) = all.find(same) else { continue };
                let over = on.iter().filter_map(|word| policy::protocol(word).ok());
                let over = over.filter(|protocol| !name_in_protocol(listing, *protocol).is_empty());
                found.extend(over.map(|protocol| (name, primitive, protocol)));
            }
        }
        found
    }
}

/// Returns the effects of an undo on who may call what; the error says which binding cannot be evaluated.
pub(super) fn of_bindings(
    servers: &OrgServers,
    stored: &[BindingRecord],
    undo: &ListDifference<BindingRecord>,
) -> Result<AccessChanges, String> {
    let now = compile(&servers.org, stored)?;
    let then = compile(&servers.org, &undo.applied(stored))?;
    let primitives = servers.primitives();
    let mut effects = AccessChanges::default();
    let mut evaluated = BTreeSet::new();
    let mut targets = BTreeSet::new();
    for record in undo.before.iter().chain(&undo.after).filter(|record| !record.observed) {
        let target = (record.target_type.as_str(), record.target.as_str(), record.issuer.as_str());
        let Some(caller) = caller(servers, record) else { continue };
        targets.insert(target);
        if targets.len() > MAX_TARGETS {
            effects.more += 1;
            continue;
        }
        for (server, primitive, protocol) in &primitives {
            let word = asp_snapshot::protocol::protocol_name(*protocol);
            let is_about = names::matches(&record.primitive, &primitive.id)
                && (record.protocol == ANY || record.protocol == word);
            if !is_about || !evaluated.insert((target, *server, primitive.id.as_str(), word)) {
                continue;
            }
            let level = |policy: &Policy| Level::of(policy, &caller, primitive, *protocol);
            let from = level(&now);
            let to = level(&then);
            if from == to {
                continue;
            }
            effects.add(
                to > from,
                AccessChange {
                    who: describe_target(record),
                    server: (*server).to_owned(),
                    primitive: primitive.id.clone(),
                    protocol: word.to_owned(),
                    from: from.words().to_owned(),
                    to: to.words().to_owned(),
                },
            );
        }
    }
    Ok(effects)
}

/// Access to a primitive, least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Denied,
    NeedsApproval,
    Conditional,
    Allowed,
}

impl Level {
    fn of(policy: &Policy, caller: &Caller, primitive: &Primitive, protocol: Protocol) -> Level {
        // A binding without conditions may require an approval.
        let is_asked =
            || policy.decide_without_arguments(caller, primitive, protocol).effect == Effect::Approve;
        match policy.rule(caller, primitive, protocol) {
            Ruling::Denied(_) => Level::Denied,
            Ruling::NeedsApproval => Level::NeedsApproval,
            Ruling::Allowed(_) if is_asked() => Level::NeedsApproval,
            Ruling::Allowed(_) if policy.asks_about(caller, primitive, protocol) => Level::Conditional,
            Ruling::Allowed(_) => Level::Allowed,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Level::Denied => "denied",
            Level::NeedsApproval => "needs approval",
            Level::Conditional => "allowed, depending on arguments",
            Level::Allowed => "allowed",
        }
    }
}

/// Compiles bindings as a snapshot does; the error says which one cannot be evaluated.
pub(super) fn compile(org: &str, bindings: &[BindingRecord]) -> Result<Policy, String> {
    let records = Records { bindings: bindings.iter().collect(), ..Records::default() };
    let (compiled, _) = OrgPolicy::compile(org, &records);
    Policy::new(compiled.bindings, compiled.observed)
}

/// Returns a caller of whom only the target of a binding is known; `None` for a target that this version cannot read.
fn caller(servers: &OrgServers, record: &BindingRecord) -> Option<Caller> {
    let binding = policy::binding(record).ok()?;
    let issuer = if binding.issuer.is_empty() { &servers.issuer } else { &binding.issuer };
    let mut caller = Caller {
        org: servers.org.clone(),
        user: String::new(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: String::new(),
        wcit: String::new(),
        digest: [0; 32],
        issuer: issuer.clone(),
        issued_at: 0,
        expires_at: u64::MAX,
    };
    let name = member(&binding.target);
    match binding.target_kind() {
        TargetKind::User => caller.user = name,
        TargetKind::Group => caller.groups.push(name),
        TargetKind::Wcit => caller.wcit = name,
        TargetKind::Unspecified => return None,
    }
    Some(caller)
}

/// Describes the target of a binding.
fn describe_target(record: &BindingRecord) -> String {
    let issuer = match record.issuer.as_str() {
        "" | policy::EVERY_ISSUER => String::new(),
        issuer => format!(" of {issuer}"),
    };
    let kind = if record.target_type == "wcit" { "token" } else { record.target_type.as_str() };
    match record.target.as_str() {
        ANY => format!("every {kind}{issuer} without a narrower binding"),
        target => format!("{kind} {target}{issuer}"),
    }
}

/// Returns the effects of another exposure.
pub(super) fn of_exposure(servers: &OrgServers, undo: &ListDifference<ExposureRecord>) -> AccessChanges {
    let touched = undo.before.iter().chain(&undo.after).map(|record| record.server.as_str());
    let reachable = |exposure: &[ExposureRecord]| servers.reachable(&servers.offers, exposure);
    let then = undo.applied(&servers.exposure);
    of_reach(&servers.org, touched.collect(), &reachable(&servers.exposure), &reachable(&then))
}

/// Returns the effects of other offers to the org.
pub(super) fn of_offers(servers: &OrgServers, undo: &ListDifference<OfferRecord>) -> AccessChanges {
    let touched = undo.before.iter().chain(&undo.after).map(|record| record.server.as_str());
    let reachable = |offers: &[OfferRecord]| servers.reachable(offers, &servers.exposure);
    let then = undo.applied(&servers.offers);
    of_reach(&servers.org, touched.collect(), &reachable(&servers.offers), &reachable(&then))
}

fn of_reach(
    org: &str,
    servers: BTreeSet<&str>,
    now: &BTreeMap<String, BTreeSet<&'static str>>,
    then: &BTreeMap<String, BTreeSet<&'static str>>,
) -> AccessChanges {
    let mut effects = AccessChanges::default();
    let protocols = |reach: &BTreeMap<String, BTreeSet<&'static str>>, server: &str| {
        reach.get(server).cloned().unwrap_or_default()
    };
    for server in servers {
        let now = protocols(now, server);
        let then = protocols(then, server);
        for protocol in now.symmetric_difference(&then) {
            let is_gain = then.contains(protocol);
            let (from, to) = if is_gain { ("off", "on") } else { ("on", "off") };
            effects.add(
                is_gain,
                AccessChange {
                    who: format!("everyone in {org}"),
                    server: server.to_owned(),
                    primitive: ANY.to_owned(),
                    protocol: (*protocol).to_owned(),
                    from: from.to_owned(),
                    to: to.to_owned(),
                },
            );
        }
    }
    effects
}

/// Returns the effects of other rate limits. Observed limits have none.
pub(super) fn of_limits(undo: &ListDifference<LimitRecord>) -> AccessChanges {
    let none = || "no such limit".to_owned();
    let mut effects = AccessChanges::default();
    for gone in undo.before.iter().filter(|gone| !gone.observe) {
        let new = undo.after.iter().find(|new| new.same_key(gone));
        let is_gain = new.is_none_or(|new| is_wider(new, gone));
        effects.add(is_gain, limited(gone, rate(gone), new.map_or_else(none, rate)));
    }
    let is_new = |new: &&LimitRecord| !new.observe && !undo.before.iter().any(|gone| gone.same_key(new));
    for new in undo.after.iter().filter(is_new) {
        effects.add(false, limited(new, none(), rate(new)));
    }
    effects
}

/// Whether a limit allows at least as much as another one, at once and over time.
fn is_wider(one: &LimitRecord, other: &LimitRecord) -> bool {
    let refill = |limit: &LimitRecord| refill::parse(&limit.refill).unwrap_or_default();
    one.capacity >= other.capacity && refill(one) >= refill(other)
}

fn rate(limit: &LimitRecord) -> String {
    match (limit.kind.as_str(), limit.window_seconds) {
        (CONCURRENCY, _) => return format!("{} running at once", limit.capacity),
        (_, seconds @ 1..) => return format!("{} each {}", limit.capacity, window::describe(seconds)),
        (_, 0) => {}
    }
    format!("{} at once, then {}", limit.capacity, limit.refill)
}

fn limited(limit: &LimitRecord, from: String, to: String) -> AccessChange {
    let issuer = if limit.issuer == ANY { String::new() } else { format!(" of {}", limit.issuer) };
    let named = [("machine", &limit.machine), ("user", &limit.user), ("token", &limit.wcit)];
    let parts: Vec<String> = named
        .into_iter()
        .filter(|(_, name)| *name != ANY)
        .map(|(kind, name)| if name == "each" { format!("each {kind}") } else { format!("{kind} {name}") })
        .collect();
    let mut who = if parts.is_empty() { "all callers together".to_owned() } else { parts.join(", ") };
    if limit.group != ANY {
        who.push_str(&format!(" in {}", limit.group));
    }
    AccessChange {
        who: format!("{who}{issuer}"),
        server: limit.server.clone(),
        primitive: limit.primitive.clone(),
        protocol: ANY.to_owned(),
        from,
        to,
    }
}

/// Returns the effects of lifted revocations, and of those that are made again.
pub(super) fn of_revocations(undo: &ListDifference<RevocationRecord>) -> AccessChanges {
    let mut effects = AccessChanges::default();
    let lifted = undo.before.iter().map(|record| (true, record));
    for (is_gain, record) in lifted.chain(undo.after.iter().map(|record| (false, record))) {
        let RevocationRecord { kind, org, target, .. } = record;
        let who = match kind.as_str() {
            "user" => format!("tokens of user {target}"),
            "org" => format!("tokens of everyone in {org}"),
            BLOCK_USER => format!("user {target}"),
            BLOCK_ORG => format!("everyone in {org}"),
            "token_hash" => format!("token with the hash {target}"),
            _ => format!("token {target}"),
        };
        let is_block = matches!(kind.as_str(), BLOCK_USER | BLOCK_ORG);
        let (from, to) = match (is_block, is_gain) {
            (true, true) => ("blocked", "not blocked"),
            (true, false) => ("not blocked", "blocked"),
            (false, true) => ("revoked", "valid until they expire"),
            (false, false) => ("valid if issued until now", "revoked"),
        };
        effects.add(
            is_gain,
            AccessChange {
                who,
                server: ANY.to_owned(),
                primitive: ANY.to_owned(),
                protocol: ANY.to_owned(),
                from: from.to_owned(),
                to: to.to_owned(),
            },
        );
    }
    effects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(user: &str, capacity: u64) -> LimitRecord {
        let any = || "*".to_owned();
        LimitRecord {
            server: any(),
            primitive: "cc.*".into(),
            user: user.into(),
            wcit: any(),
            issuer: any(),
            machine: any(),
            capacity,
            refill: "1/s".into(),
            observe: false,
            ..LimitRecord::default()
        }
    }

    #[test]
    fn a_limit_that_goes_or_grows_is_a_gain() {
        let undo = ListDifference::of([limit("each", 2), limit("bob", 1)], [limit("each", 1), limit("*", 9)]);
        let AccessChanges { gains, loses, more } = of_limits(&undo);
        let words = |list: &[AccessChange]| -> Vec<String> {
            list.iter().map(|effect| format!("{}: {} -> {}", effect.who, effect.from, effect.to)).collect()
        };
        assert_eq!(words(&gains), ["user bob: 1 at once, then 1/s -> no such limit"]);
        assert_eq!(
            words(&loses),
            [
                "each user: 2 at once, then 1/s -> 1 at once, then 1/s",
                "all callers together: no such limit -> 9 at once, then 1/s"
            ]
        );
        assert_eq!(more, 0);
    }

    #[test]
    fn effects_beyond_those_shown_are_counted() {
        let many: Vec<LimitRecord> = (0..60).map(|number| limit(&format!("u{number}"), 1)).collect();
        let effects = of_limits(&ListDifference::of(many, []));
        assert_eq!((effects.gains.len(), effects.more), (MAX_SHOWN, 10));
    }
}
