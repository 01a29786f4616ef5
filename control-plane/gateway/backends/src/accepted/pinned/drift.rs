//! Drift of upstreams: the accepted items that an upstream lists otherwise or no longer, for the status of a gateway.

use super::{PinComparison, PinnedItems};

/// An accepted item that its upstream lists otherwise than it was accepted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriftedItem {
    /// URL of the upstream, or its package and the server that runs it.
    pub upstream: String,
    /// Name or URI of the item there.
    pub name: String,
    /// `changed` (served as accepted), `incompatible` (off) or `removed` (hidden).
    pub standing: &'static str,
}

impl PinnedItems {
    /// Returns the items that drifted, by upstream and name.
    pub(crate) fn drifted(&self) -> Vec<DriftedItem> {
        let known = self.known.lock();
        let mut drifted: Vec<DriftedItem> = known
            .items
            .iter()
            .filter_map(|(item, accepted)| {
                let standing = standing(accepted.comparison)?;
                Some(DriftedItem { upstream: item.upstream.clone(), name: item.name.clone(), standing })
            })
            .collect();
        drop(known);
        drifted.sort();
        drifted
    }
}

fn standing(comparison: PinComparison) -> Option<&'static str> {
    match comparison {
        PinComparison::Same => None,
        PinComparison::Changed => Some("changed"),
        PinComparison::Incompatible => Some("incompatible"),
        PinComparison::Removed => Some("removed"),
    }
}

#[cfg(test)]
mod tests {
    use asp_mcp_client::listing::Lists;
    use asp_proto::snapshot::runtime::Mode;
    use asp_proto::snapshot::{Kind, Primitive, ProxyMcp, Runtime};
    use asp_registry::pin::pin;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_item_is_listed_for_as_long_as_its_upstream_differs() {
        let listed = json!({"name": "t", "description": "d", "inputSchema": {"type": "object"}});
        let target = ProxyMcp { url: "u".into(), tool: "t".into(), pin: pin(&listed), pages: Vec::new() };
        let mut primitive =
            Primitive { input_schema: listed["inputSchema"].to_string(), ..Primitive::default() };
        primitive.runtime = Some(Runtime { mode: Some(Mode::ProxyMcp(target)) });
        primitive.set_kind(Kind::Tool);
        let items = PinnedItems::default();
        items.replace([("crm", &primitive)]);
        assert_eq!(items.drifted(), []);
        let with = |name: &str, value: Value| {
            let mut tool = listed.clone();
            tool[name] = value;
            tool
        };
        for (tools, standing) in [
            (vec![with("description", json!("e"))], Some("changed")),
            (vec![with("inputSchema", json!({"type": "object", "required": ["x"]}))], Some("incompatible")),
            (Vec::new(), Some("removed")),
            (vec![listed.clone()], None),
        ] {
            items.learn("u", &Lists { tools, ..Lists::default() }, items.snapshot());
            let expected =
                standing.map(|standing| DriftedItem { upstream: "u".into(), name: "t".into(), standing });
            assert_eq!(items.drifted(), Vec::from_iter(expected));
        }
    }
}
