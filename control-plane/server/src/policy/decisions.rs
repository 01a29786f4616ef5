//! Replay of recorded calls over a change of an org's bindings and exposure, with the code that decides calls.
//!
//! Pure. The audit log has neither the groups of a caller nor the arguments of a call. Keeps true: a call is named as changed
//! only if its decision changes whatever they were; if they decide whether it changes, it is counted as undetermined.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use asp_edge::{Caller, names};
use asp_proto::snapshot::{Primitive, Protocol};
use asp_registry::CompiledServer;
use asp_snapshot::policy::{Effect, Policy};
use asp_snapshot::protocol::protocol_name;
use asp_store::control::BindingRecord;
use serde::Deserialize;

use crate::policy;

/// Reason of calls whose tokens lack a scope, which no binding gives.
const LACKS_SCOPE: &str = "insufficient_scope";
/// Maximum number of groups that are tried for a call.
const MAX_GROUPS: usize = 20;

/// A call of the audit log that a policy decided about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptedCall {
    /// Id of the call.
    pub id: String,
    /// End of the call in Unix milliseconds.
    pub at_ms: i64,
    pub user: String,
    pub issuer: String,
    pub wcit: String,
    pub server: String,
    /// Id of the primitive, without its version.
    pub primitive: String,
    pub protocol: Protocol,
    /// Recorded reason: `ok`, or why there is no result.
    pub reason: String,
}

/// The members of an audit event that a replay needs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FinishRecord {
    event: String,
    call: String,
    user: String,
    issuer: String,
    wcit: String,
    server: String,
    primitive: String,
    protocol: String,
    reason: String,
}

impl AttemptedCall {
    /// Reads an event of the audit log; returns `None` unless it is the end of a call that a policy could change.
    pub fn read(at_ms: i64, event: &str) -> Option<AttemptedCall> {
        let record: FinishRecord = serde_json::from_str(event).ok()?;
        if record.event != "call.finish" || record.reason == LACKS_SCOPE {
            return None;
        }
        let id = record.primitive.rsplit_once('@').map_or(record.primitive.as_str(), |(id, _)| id);
        Some(AttemptedCall {
            id: record.call,
            at_ms,
            primitive: id.to_owned(),
            user: record.user,
            issuer: record.issuer,
            wcit: record.wcit,
            server: record.server,
            protocol: policy::protocol(&record.protocol).ok()?,
            reason: record.reason,
        })
    }
}

/// Decision about a call, least access first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    Refused,
    /// A person must approve the call.
    Asked,
    Admitted,
}

impl Access {
    pub const fn as_str(self) -> &'static str {
        match self {
            Access::Refused => "refused",
            Access::Asked => "asked",
            Access::Admitted => "admitted",
        }
    }
}

/// Effect of the change on one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Unchanged,
    Changed {
        from: Access,
        to: Access,
    },
    /// The caller's groups decide whether it changes.
    DependsOnGroups,
    /// The arguments of the call decide whether it changes.
    DependsOnArguments,
    /// No published server has the primitive.
    NotServed,
}

/// An org's policy at one time.
pub struct DecidedPolicy {
    pub policy: Policy,
    /// Protocols over which the org reaches each server.
    pub reach: BTreeMap<String, BTreeSet<&'static str>>,
}

impl DecidedPolicy {
    fn access(&self, caller: &Caller, primitive: &Primitive, call: &AttemptedCall) -> Access {
        let is_on = |on: &BTreeSet<&'static str>| on.contains(protocol_name(call.protocol));
        if !self.reach.get(&call.server).is_some_and(is_on) {
            return Access::Refused;
        }
        // Also by a binding without conditions that requires an approval, which a ruling for lists leaves out.
        match self.policy.decide_without_arguments(caller, primitive, call.protocol).effect {
            Effect::Deny => Access::Refused,
            Effect::Approve => Access::Asked,
            Effect::Allow => Access::Admitted,
        }
    }
}

/// A change of policy, ready to decide calls.
pub struct PolicyChange<'a> {
    org: &'a str,
    now: DecidedPolicy,
    then: DecidedPolicy,
    /// The changed bindings with conditions on arguments.
    conditions: Policy,
    /// Primitive and group of every binding of a group, before and after the change.
    groups: BTreeSet<(&'a str, String)>,
    /// Published primitives by server and id.
    primitives: HashMap<(&'a str, &'a str), &'a Primitive>,
}

/// CallSubject of a call: calls with the same one have the same verdict.
type CallSubject<'c> = (&'c str, &'c str, &'c str, &'c str, &'c str, Protocol);

impl<'a> PolicyChange<'a> {
    /// `bindings` are those before and after the change; `conditions` has its changed ones with conditions.
    pub fn new(
        org: &'a str,
        (now, then): (DecidedPolicy, DecidedPolicy),
        conditions: Policy,
        bindings: impl Iterator<Item = &'a BindingRecord>,
        servers: &'a [Arc<CompiledServer>],
    ) -> PolicyChange<'a> {
        let of_groups = bindings.filter(|binding| binding.target_type == "group" && !binding.observed);
        let groups = of_groups.map(|binding| (binding.primitive.as_str(), member(&binding.target))).collect();
        let mut primitives = HashMap::new();
        for server in servers {
            for listing in &server.server.listings {
                let same = |known: &&Primitive| known.id == listing.id && known.version == listing.version;
                if let Some(primitive) = server.primitives.iter().find(same) {
                    primitives.insert((server.server.name.as_str(), listing.id.as_str()), primitive);
                }
            }
        }
        PolicyChange { org, now, then, conditions, groups, primitives }
    }

    /// Returns the verdict about each call, in their order.
    pub fn replay(&self, calls: &[AttemptedCall]) -> Vec<Verdict> {
        let mut known: HashMap<CallSubject<'_>, Verdict> = HashMap::new();
        calls.iter().map(|call| *known.entry(subject(call)).or_insert_with(|| self.decide(call))).collect()
    }

    fn decide(&self, call: &AttemptedCall) -> Verdict {
        let found = self.primitives.get(&(call.server.as_str(), call.primitive.as_str()));
        let Some(primitive) = found else { return Verdict::NotServed };
        let about = self.groups.iter().filter(|(pattern, _)| names::matches(pattern, &call.primitive));
        let groups: BTreeSet<&String> = about.map(|(_, group)| group).take(MAX_GROUPS).collect();
        let worlds = std::iter::once(Vec::new()).chain(groups.into_iter().map(|group| vec![group.clone()]));
        let mut decisions = BTreeSet::new();
        let mut asks = false;
        for groups in worlds {
            let caller = self.caller(call, groups);
            let decide = |policy: &DecidedPolicy| policy.access(&caller, primitive, call);
            let from = decide(&self.now);
            let to = decide(&self.then);
            decisions.insert((from, to));
            let is_asked = self.conditions.asks_about(&caller, primitive, call.protocol);
            asks |= is_asked && from != Access::Refused && to != Access::Refused;
        }
        let is_same = |(from, to): &(Access, Access)| from == to;
        match decisions.first() {
            Some(&(from, to)) if decisions.len() == 1 && from != to => Verdict::Changed { from, to },
            _ if !decisions.iter().all(is_same) => Verdict::DependsOnGroups,
            _ if asks => Verdict::DependsOnArguments,
            _ => Verdict::Unchanged,
        }
    }

    fn caller(&self, call: &AttemptedCall, groups: Vec<String>) -> Caller {
        Caller {
            org: self.org.to_owned(),
            user: call.user.clone(),
            groups,
            scopes: Vec::new(),
            client: String::new(),
            wcit: call.wcit.clone(),
            digest: [0; 32],
            issuer: call.issuer.clone(),
            issued_at: 0,
            expires_at: u64::MAX,
        }
    }
}

fn subject(call: &AttemptedCall) -> CallSubject<'_> {
    (&call.user, &call.issuer, &call.wcit, &call.server, &call.primitive, call.protocol)
}

/// Returns a name that matches a pattern.
fn member(pattern: &str) -> String {
    pattern.strip_suffix('*').map_or_else(|| pattern.to_owned(), |prefix| format!("{prefix}-"))
}
