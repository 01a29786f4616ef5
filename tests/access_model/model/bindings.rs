//! Bindings in the model: which of them are about a call, and which of those decides.

use std::cmp::Ordering;

use asp_store::control::BindingRecord;

use super::{Model, Who, fits};
use crate::turned::Turned;
use crate::world::UNREADABLE_KIND;

/// A binding that is enforced for every call, whatever its arguments are.
struct Rule<'a> {
    kind: &'a str,
    target: &'a str,
    issuer: &'a str,
    primitive: &'a str,
    protocol: &'a str,
    allowed: bool,
}

impl Model<'_> {
    /// Returns what the most specific binding says about a caller and a primitive, if there is one.
    pub(super) fn decide(&self, who: Who, id: &str, protocol: &str) -> Option<bool> {
        let rules = self.rules(who.org);
        let about = rules.iter().filter(|rule| self.is_about(rule, who, id, protocol));
        about.max_by(|one, other| self.order(one, other)).map(|rule| rule.allowed)
    }

    /// An unreadable binding that denies, also by a condition, denies its primitives to everybody, and nothing more exact
    /// may allow them. An unreadable allow counts for nothing.
    fn rules(&self, org: &str) -> Vec<Rule<'_>> {
        let of_org = |record: &&BindingRecord| record.org == org || !self.is(Turned::BindingsAreOfOneOrg);
        let mut rules = Vec::new();
        let mut denied: Vec<&str> = Vec::new();
        for record in self.world.bindings.iter().filter(of_org) {
            let has_condition = !record.when.is_empty();
            if record.observed && self.is(Turned::ObservedIsNotEnforced) {
                continue;
            }
            if record.target_type == UNREADABLE_KIND {
                if !record.allowed || has_condition {
                    denied.push(&record.primitive);
                }
            } else if !has_condition || !self.is(Turned::ConditionsHideNothing) {
                rules.push(Rule {
                    kind: &record.target_type,
                    target: &record.target,
                    issuer: &record.issuer,
                    primitive: &record.primitive,
                    protocol: &record.protocol,
                    allowed: record.allowed && !has_condition,
                });
            }
        }
        if !self.is(Turned::UnreadableDenialsDeny) {
            return rules;
        }
        if self.is(Turned::UnreadableDenialsBeatAllows) {
            rules.retain(|rule| !rule.allowed || !denied.iter().any(|wide| covers(wide, rule.primitive)));
        }
        for primitive in denied {
            rules.extend(["user", "machine"].map(|kind| Rule {
                kind,
                target: "*",
                issuer: "",
                primitive,
                protocol: "*",
                allowed: false,
            }));
        }
        rules
    }

    fn is_about(&self, rule: &Rule<'_>, who: Who, id: &str, protocol: &str) -> bool {
        let (target_kind, is_for_them) = match rule.kind {
            "user" => ("user", !who.is_machine || !self.is(Turned::UsersAreNoMachines)),
            "machine" => ("user", who.is_machine || !self.is(Turned::MachinesAreNoUsers)),
            kind => (kind, true),
        };
        let mut names = vec![("user", who.user), ("wcit", who.wcit)];
        names.extend(who.groups.iter().map(|group| ("group", *group)));
        let of_kind = |kind: &str| kind == target_kind || !self.is(Turned::TargetsAreOfTheirKind);
        let is_named = names.iter().any(|(kind, name)| of_kind(kind) && fits(rule.target, name));
        let of_issuer = rule.issuer.is_empty() || rule.issuer == who.issuer;
        let of_protocol = rule.protocol == "*" || rule.protocol == protocol;
        is_for_them
            && is_named
            && (of_issuer || !self.is(Turned::NamedIssuersAreMeant))
            && (of_protocol || !self.is(Turned::BindingsAreOfOneProtocol))
            && fits(rule.primitive, id)
    }

    fn order(&self, one: &Rule<'_>, other: &Rule<'_>) -> Ordering {
        let pattern = |pattern: &str| match pattern.strip_suffix('*') {
            None if self.is(Turned::ExactBeforePrefix) => 1_000,
            None => -1_000,
            Some(prefix) if self.is(Turned::LongerPrefixesFirst) => i64::try_from(prefix.len()).unwrap(),
            Some(prefix) => -i64::try_from(prefix.len()).unwrap(),
        };
        let kind = |rule: &Rule<'_>| match rule.kind {
            "wcit" if self.is(Turned::TokensBeforeUsers) => 30,
            "wcit" => 15,
            "group" => 10,
            _ if self.is(Turned::UsersBeforeGroups) => 20,
            _ => 5,
        };
        let issuer = |rule: &Rule<'_>| rule.issuer.is_empty() != self.is(Turned::NamedIssuersFirst);
        let protocol = |rule: &Rule<'_>| (rule.protocol == "*") != self.is(Turned::NamedProtocolsFirst);
        let denial = |rule: &Rule<'_>| rule.allowed != self.is(Turned::DenialsBeforeAllows);
        let by_primitive = pattern(one.primitive).cmp(&pattern(other.primitive));
        let by_target = pattern(one.target).cmp(&pattern(other.target));
        let by_kind = kind(one).cmp(&kind(other));
        let by_issuer = issuer(one).cmp(&issuer(other));
        let by_protocol = protocol(one).cmp(&protocol(other));
        let mut all = [by_primitive, by_target, by_kind, by_issuer, by_protocol];
        let rules = [
            Turned::PrimitivesBeforeTargets,
            Turned::TargetsBeforeKinds,
            Turned::KindsBeforeIssuers,
            Turned::IssuersBeforeProtocols,
        ];
        for (place, rule) in rules.into_iter().enumerate() {
            if !self.is(rule) {
                all.swap(place, place + 1);
            }
        }
        let named = all.into_iter().fold(Ordering::Equal, Ordering::then);
        named.then(denial(one).cmp(&denial(other)))
    }
}

/// Whether everything that the other pattern names is named by the wide one too.
fn covers(wide: &str, other: &str) -> bool {
    match wide.strip_suffix('*') {
        Some(prefix) => other.trim_end_matches('*').starts_with(prefix),
        None => wide == other,
    }
}
