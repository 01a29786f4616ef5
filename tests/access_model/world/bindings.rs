//! Bindings of a world: few, and some that differ from another one in one member only.

use asp_store::control::BindingRecord;

use super::{ORGS, Text};
use crate::random::Random;

/// Type of target that no version knows.
pub(crate) const UNREADABLE_KIND: Text = "role";
/// Most bindings that have nothing to do with each other.
const MOST: usize = 6;

/// Returns the bindings of all orgs.
pub(super) fn some(random: &mut Random) -> Vec<BindingRecord> {
    let mut list: Vec<BindingRecord> = (0..random.below(MOST)).map(|_| binding(random)).collect();
    if let Some(first) = list.first().cloned() {
        for _ in 0..random.below(5) {
            list.push(nearly(&first, random));
        }
    }
    list
}

fn binding(random: &mut Random) -> BindingRecord {
    let kind: Text = match random.one_in(10) {
        true => UNREADABLE_KIND,
        false => random.of(&["user", "user", "user", "machine", "machine", "group", "group", "wcit", "wcit"]),
    };
    let target: Text = match kind {
        "group" => random.of(&["*", "*", "o*", "ops", "ops", "alice"]),
        "wcit" => random.of(&["*", "*", "t*", "t-1", "t-1", "m0", "c*"]),
        _ => random.of(&["*", "*", "p*", "pre*", "press", "press", "alice", "robot", "ops"]),
    };
    let issuer: Text = match kind {
        "machine" => "",
        _ => random.of(&["", "", "", "login", "other"]),
    };
    let allowed = random.one_in(2);
    let has_condition = random.one_in(6);
    BindingRecord {
        org: random.of(&ORGS).into(),
        target_type: kind.into(),
        target: target.into(),
        issuer: issuer.into(),
        primitive: random.of(&["*", "*", "l*", "look*", "look-one", "look-two", "wipe*", "wipe-one"]).into(),
        protocol: random.of(&["*", "*", "mcp", "rest"]).into(),
        name: String::new(),
        allowed,
        observed: random.one_in(8),
        approval: has_condition && allowed,
        when: if has_condition { r#"[{"pointer":"/a","equals":1}]"#.into() } else { String::new() },
        approvers: String::new(),
        approvers_issuer: String::new(),
    }
}

/// Returns a binding with the opposite answer that differs from `first` in little else.
fn nearly(first: &BindingRecord, random: &mut Random) -> BindingRecord {
    let other = binding(random);
    let is_machine = first.target_type == "machine";
    let mut nearly = first.clone();
    nearly.allowed = !first.allowed;
    nearly.approval = !nearly.when.is_empty() && nearly.allowed;
    match random.below(8) {
        0 => nearly.primitive = other.primitive,
        1 => nearly.protocol = other.protocol,
        2 if !is_machine => nearly.issuer = other.issuer,
        // One names an issuer, the other one a protocol.
        3 if !is_machine => {
            nearly.issuer = if first.issuer.is_empty() { "login" } else { "" }.into();
            nearly.protocol = if first.protocol == "*" { "mcp" } else { "*" }.into();
        }
        4 => nearly.target = other.target,
        5 => {
            (nearly.target_type, nearly.target) = (other.target_type, other.target);
            nearly.issuer = other.issuer;
        }
        // Kinds of target that are equally exact, of which one names an issuer or both do not.
        6 if first.target == "*" && !is_machine => {
            nearly.target_type = random.of(&["user", "group", "wcit"]).into();
            nearly.issuer = if first.issuer.is_empty() { random.of(&["", "login"]) } else { "" }.into();
        }
        _ => {}
    }
    nearly
}
