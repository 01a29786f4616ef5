//! Items that a gateway does not serve as they were accepted, in the metadata of its node: items that their upstream lists
//! otherwise, and plugins that no runtime can run.
//!
//! Sent like the upstreams that fail. A control plane of an earlier version ignores them. Keeps true: number and length are bounded
//! at both ends.

use std::sync::Arc;

use asp_proto::xds::envoy::config::core::v3::Node;
use prost_types::{ListValue, Struct, Value, value};
use serde::Serialize;

use super::refused_parts::text_value;
use super::subscription::shortened;

/// Maximum number of items that are reported.
const MAX_NAMED: usize = 50;
/// Maximum length of a text, in bytes.
const MAX_TEXT: usize = 512;
/// Metadata key: a list of items.
const NAME: &str = "degraded-items";
/// Members of an item there.
const SOURCE: &str = "source";
const ITEM: &str = "item";
const STATE: &str = "state";
const CAUSE: &str = "cause";

/// Returns the items that are not served as accepted, in an order that does not change by itself.
pub type DegradedItems = Arc<dyn Fn() -> Vec<DegradedItem> + Send + Sync>;

/// An item that a gateway does not serve as it was accepted.
#[derive(Clone, Debug, Serialize, PartialEq, Eq, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DegradedItem {
    /// URL of the upstream, package of a stdio server, or language of a plugin.
    pub source: String,
    /// Name or URI at the upstream, or `<id>@<version>` of a plugin.
    pub item: String,
    /// `changed` (the upstream lists it otherwise; served as accepted), `incompatible` (off), `removed` (hidden), or `off` (no runtime
    /// can run it).
    pub state: String,
    /// Reason for `off`; empty for other states.
    pub cause: String,
}

/// Returns the metadata of a gateway's node for them.
pub(super) fn members(degraded: &[DegradedItem]) -> Vec<(String, Value)> {
    if degraded.is_empty() {
        return Vec::new();
    }
    let values = degraded.iter().take(MAX_NAMED).map(|one| {
        let texts = [(SOURCE, &one.source), (ITEM, &one.item), (STATE, &one.state), (CAUSE, &one.cause)];
        let fields =
            texts.map(|(name, text)| (name.to_owned(), text_value(shortened(text.clone(), MAX_TEXT))));
        Value { kind: Some(value::Kind::StructValue(Struct { fields: fields.into() })) }
    });
    let list = ListValue { values: values.collect() };
    vec![(NAME.to_owned(), Value { kind: Some(value::Kind::ListValue(list)) })]
}

/// Reads them from a node's metadata.
pub(super) fn read(node: &Node) -> Vec<DegradedItem> {
    let member = node.metadata.as_ref().and_then(|metadata| metadata.fields.get(NAME)?.kind.as_ref());
    let Some(value::Kind::ListValue(list)) = member else { return Vec::new() };
    list.values.iter().take(MAX_NAMED).filter_map(degraded_item).collect()
}

fn degraded_item(value: &Value) -> Option<DegradedItem> {
    let Some(value::Kind::StructValue(one)) = &value.kind else { return None };
    let text = |name: &str| match one.fields.get(name)?.kind.as_ref()? {
        value::Kind::StringValue(text) => Some(shortened(text.clone(), MAX_TEXT)),
        _ => None,
    };
    Some(DegradedItem {
        source: text(SOURCE)?,
        item: text(ITEM)?,
        state: text(STATE)?,
        cause: text(CAUSE).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degraded(item: &str) -> DegradedItem {
        DegradedItem {
            source: "https://up.example/mcp by crm".into(),
            item: item.into(),
            state: "changed".into(),
            cause: String::new(),
        }
    }

    fn node(fields: Vec<(String, Value)>) -> Node {
        Node { metadata: Some(Struct { fields: fields.into_iter().collect() }), ..Node::default() }
    }

    #[test]
    fn a_node_names_its_degraded_items_in_their_order() {
        let all = [degraded("b c"), degraded("a")];
        assert_eq!(read(&node(members(&all))), all);
        assert!(members(&[]).is_empty() && read(&Node::default()).is_empty());
    }

    /// Invariant I-4: what others send.
    #[test]
    fn of_many_items_some_are_named_in_short() {
        let long =
            |number: usize| DegradedItem { cause: "x".repeat(10_000), ..degraded(&number.to_string()) };
        let all: Vec<_> = (0..200).map(long).collect();
        let known = read(&node(members(&all)));
        assert_eq!(known.len(), MAX_NAMED);
        assert!(known.iter().all(|one| one.cause.len() <= MAX_TEXT));
    }

    #[test]
    fn a_value_of_another_form_is_no_item() {
        let of = |fields: &[(&str, &str)]| {
            let fields =
                fields.iter().map(|(name, text)| ((*name).to_owned(), text_value((*text).to_owned())));
            Value { kind: Some(value::Kind::StructValue(Struct { fields: fields.collect() })) }
        };
        let whole = of(&[("source", "s"), ("item", "i"), ("state", "off")]);
        for (value, count) in [
            (whole, 1),
            (of(&[("source", "s"), ("item", "i")]), 0),
            (text_value("s i off".to_owned()), 0),
            (Value { kind: None }, 0),
        ] {
            let list =
                Value { kind: Some(value::Kind::ListValue(ListValue { values: vec![value.clone()] })) };
            assert_eq!(read(&node(vec![(NAME.to_owned(), list)])).len(), count, "{value:?}");
            assert!(read(&node(vec![(NAME.to_owned(), value)])).is_empty());
        }
    }
}
