//! The parts of a snapshot that a gateway could not apply as sent, in the metadata of its node.
//!
//! A gateway sends them with each acknowledgement and with the first request of a stream. The acknowledgement itself is
//! unchanged, so that a control plane of an earlier version ignores them. Keeps true: the parts kept are bounded; the
//! count includes all of them.

use asp_proto::xds::envoy::config::core::v3::Node;
use asp_snapshot::{PartFault, PartFaults};
use prost_types::{Struct, Value, value};
use serde::Serialize;

use super::subscription::shortened;

/// Maximum number of parts that are named; the others are only counted.
const MAX_NAMED: usize = 50;
/// Maximum length of a name and of a reason, in bytes.
const MAX_TEXT: usize = 256;
/// Maximum length of the fault within a reason, in bytes: what is in force instead follows it.
const MAX_FAULT: usize = 160;
/// Metadata keys: the reason of each part by its name, and the number of parts.
const NAMED: &str = "refused-parts";
const COUNT: &str = "refused-parts-count";

/// A part that is not in force at a gateway as sent.
#[derive(Clone, Debug, Serialize, PartialEq, Eq, utoipa::ToSchema)]
pub struct RefusedPart {
    /// `server/<name>`, `org/<org>` or `base` (what concerns all of them).
    pub name: String,
    /// Reason, and what is in force there instead.
    pub reason: String,
}

/// Refused parts of one gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedParts {
    pub count: u64,
    /// The first parts.
    pub named: Vec<RefusedPart>,
}

/// Returns the metadata of a gateway's node for them.
pub(super) fn members(faults: &PartFaults) -> Vec<(String, Value)> {
    if faults.is_empty() {
        return Vec::new();
    }
    let named = faults.iter().take(MAX_NAMED).map(|(name, fault)| {
        let short = PartFault { reason: shortened(fault.reason.clone(), MAX_FAULT), ..fault.clone() };
        (shortened(name.clone(), MAX_TEXT), text_value(short.to_string()))
    });
    let named = Value { kind: Some(value::Kind::StructValue(Struct { fields: named.collect() })) };
    vec![(NAMED.to_owned(), named), (COUNT.to_owned(), text_value(faults.len().to_string()))]
}

/// Reads them from a node's metadata.
pub(super) fn read(node: &Node) -> RefusedParts {
    let member = |name: &str| node.metadata.as_ref()?.fields.get(name)?.kind.as_ref();
    let Some(value::Kind::StructValue(all)) = member(NAMED) else { return RefusedParts::default() };
    let named: Vec<RefusedPart> = all.fields.iter().take(MAX_NAMED).map(refused_part).collect();
    let count = match member(COUNT) {
        Some(value::Kind::StringValue(count)) => count.parse().unwrap_or(0),
        _ => 0,
    };
    RefusedParts { count: named.len().max(count) as u64, named }
}

fn refused_part((name, reason): (&String, &Value)) -> RefusedPart {
    let reason = match &reason.kind {
        Some(value::Kind::StringValue(reason)) => shortened(reason.clone(), MAX_TEXT),
        _ => String::new(),
    };
    RefusedPart { name: shortened(name.clone(), MAX_TEXT), reason }
}

/// Returns a text as a value in a node's metadata.
pub(super) fn text_value(text: String) -> Value {
    Value { kind: Some(value::Kind::StringValue(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(faults: &PartFaults) -> Node {
        let fields = members(faults).into_iter().collect();
        Node { metadata: Some(Struct { fields }), ..Node::default() }
    }

    #[test]
    fn a_node_names_the_refused_parts_with_their_reasons() {
        let fault = PartFault { reason: "bad schema".into(), in_force: "its last form" };
        let read = read(&node(&[("server/demo".to_owned(), fault)].into()));
        let [part] = read.named.as_slice() else { panic!("{read:?}") };
        assert_eq!((read.count, part.name.as_str()), (1, "server/demo"));
        assert_eq!(part.reason, "bad schema; in force: its last form");
        assert_eq!(super::read(&node(&PartFaults::new())), RefusedParts::default());
    }

    /// Invariant I-4: what others send.
    #[test]
    fn of_many_refused_parts_some_are_named_and_all_are_counted() {
        let fault = PartFault { reason: "x".repeat(10_000), in_force: "its last form" };
        let faults: PartFaults =
            (0..200).map(|number| (format!("org/{number:0>300}"), fault.clone())).collect();
        let mut node = node(&faults);
        let known = read(&node);
        assert_eq!((known.count, known.named.len()), (200, 1), "names that are cut are one");
        let long =
            (0..200).map(|number| (format!("{number:0>3}{:0>300}", 0), text_value("y".repeat(10_000))));
        let long = Value { kind: Some(value::Kind::StructValue(Struct { fields: long.collect() })) };
        node.metadata.as_mut().unwrap().fields.insert(NAMED.to_owned(), long);
        let known = read(&node);
        assert_eq!((known.count, known.named.len()), (200, MAX_NAMED));
        assert!(known.named.iter().all(|part| part.name.len().max(part.reason.len()) <= MAX_TEXT));
    }
}
