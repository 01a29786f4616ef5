//! Commands that keep a revoked user or org out: a revocation ends tokens, and only policy denies the next one.
//!
//! Keeps true: once the denials of a response that omits none are stored, no call of the user or org is allowed. A more
//! specific binding overrules a denial (ADR 10), so each allow that may name the user gets a denial that overrules it.
//! A command without a target is stored for all users and all machines.

use std::collections::{BTreeSet, HashMap};

use asp_edge::{MACHINE_ISSUER, names};
use asp_platform::shell;
use asp_proto::snapshot::{Binding, Protocol, TargetKind};
use asp_snapshot::policy as snapshot_policy;
use asp_snapshot::policy::{protocol_word, target_word};
use asp_store::control::BindingRecord;

use crate::policy;

/// Maximum number of commands in a response: an org has up to 10,000 bindings, and each may need a denial of its own.
const MAX_COMMANDS: usize = 20;
/// Pattern that matches everything.
const ANY: &str = "*";

/// A user or an org to keep out.
pub(super) struct Lockout<'a> {
    pub org: &'a str,
    /// Name of the user; `None` for everyone in the org.
    pub user: Option<&'a str>,
    /// Whether the user is a machine.
    pub is_machine: bool,
    /// Ids of keys and certificates of machines other than the user.
    pub others: BTreeSet<String>,
}

impl Lockout<'_> {
    /// Returns the denials to add to an org's bindings, and the number of allows that remain. One denies everything;
    /// each allow that overrules the denials so far gets its own.
    pub(super) fn denials(&self, stored: &[BindingRecord]) -> (Vec<Binding>, usize) {
        let enforced = stored.iter().filter(|record| !record.observed);
        // A record that this version cannot read allows nothing.
        let bindings: Vec<Binding> = enforced.filter_map(|record| policy::binding(record).ok()).collect();
        let (allows, rest): (Vec<Binding>, Vec<Binding>) =
            bindings.into_iter().partition(|binding| binding.allowed && binding.when.is_empty());
        let mut known = Denials::default();
        let is_denial = |binding: &Binding| !snapshot_policy::is_of_calls(binding);
        rest.into_iter().filter(is_denial).for_each(|denial| known.add(denial, self));
        let everything = self.denial(ANY, Protocol::Unspecified);
        known.add(everything.clone(), self);
        let mut denials = vec![everything];
        let mut omitted = 0;
        for allow in allows.iter().filter(|allow| self.may_name(allow)) {
            if known.overrule(allow) {
                continue;
            }
            if denials.len() == MAX_COMMANDS {
                omitted += 1;
                continue;
            }
            let denial = self.overruling_denial(allow);
            known.add(denial.clone(), self);
            denials.push(denial);
        }
        (denials, omitted)
    }

    /// Whether a binding may apply to the user. Groups and tokens may be anyone's, depending on the issuer.
    fn may_name(&self, binding: &Binding) -> bool {
        let Some(user) = self.user else { return true };
        match target_word(binding) {
            "user" => !self.is_machine && names::matches(&binding.target, user),
            "machine" => self.is_machine && names::matches(&binding.target, user),
            "wcit" => !self.others.contains(&binding.target),
            _ => true,
        }
    }

    /// Returns the broadest denial that overrules an allow.
    fn overruling_denial(&self, allow: &Binding) -> Binding {
        let wide = self.denial(&allow.primitive, Protocol::Unspecified);
        let over_protocol = self.denial(&allow.primitive, allow.protocol());
        let same = Binding { allowed: false, approval: false, name: String::new(), ..allow.clone() };
        let overrules = |denial: &Binding| snapshot_policy::overrules(denial, allow);
        [wide, over_protocol].into_iter().find(overrules).unwrap_or(same)
    }

    /// Returns the issuer that a denial names; empty for every issuer of users.
    fn issuer(&self) -> &'static str {
        if self.is_machine { MACHINE_ISSUER } else { "" }
    }

    fn denial(&self, primitive: &str, protocol: Protocol) -> Binding {
        Binding {
            org: self.org.to_owned(),
            target_kind: TargetKind::User.into(),
            target: self.user.unwrap_or(ANY).to_owned(),
            issuer: self.issuer().to_owned(),
            primitive: primitive.to_owned(),
            protocol: protocol.into(),
            ..Binding::default()
        }
    }
}

/// Denials in force, by their subject.
#[derive(Default)]
struct Denials {
    /// Denials that name the revoked user or everyone, by primitive.
    of_revoked: HashMap<String, Vec<Binding>>,
    /// All others, by primitive and target.
    of_target: HashMap<TargetKey, Vec<Binding>>,
}

impl Denials {
    fn add(&mut self, denial: Binding, lockout: &Lockout<'_>) {
        let names_revoked = denial.target_kind() == TargetKind::User
            && denial.issuer == lockout.issuer()
            && match lockout.user {
                Some(user) => names::matches(&denial.target, user),
                None => denial.target == ANY,
            };
        if names_revoked {
            self.of_revoked.entry(denial.primitive.clone()).or_default().push(denial);
        } else {
            self.of_target.entry(key(&denial)).or_default().push(denial);
        }
    }

    /// Whether one of the denials decides every call that an allow names.
    fn overrule(&self, allow: &Binding) -> bool {
        let of_revoked = self.of_revoked.get(&allow.primitive).into_iter().flatten();
        let of_target = self.of_target.get(&key(allow)).into_iter().flatten();
        of_revoked.chain(of_target).any(|denial| snapshot_policy::overrules(denial, allow))
    }
}

/// A binding's primitive, and the kind, name and issuer of its target.
type TargetKey = (String, i32, String, String);

fn key(binding: &Binding) -> TargetKey {
    (binding.primitive.clone(), binding.target_kind, binding.target.clone(), binding.issuer.clone())
}

/// Returns the `asp policy` command that stores a denial.
pub(super) fn command(denial: &Binding, is_forced: bool) -> String {
    let mut options = shell::option("deny", &denial.primitive);
    if (target_word(denial), denial.target.as_str(), denial.issuer.as_str()) != ("user", ANY, "") {
        options.push_str(&shell::option(target_word(denial), &denial.target));
    }
    if !matches!(denial.issuer.as_str(), "" | MACHINE_ISSUER) {
        options.push_str(&shell::option("issuer", &denial.issuer));
    }
    if denial.protocol() != Protocol::Unspecified {
        options.push_str(&shell::option("protocol", protocol_word(denial)));
    }
    if is_forced {
        options.push_str(" --force");
    }
    shell::command("asp policy", &denial.org, &options)
}

#[cfg(test)]
mod tests;
