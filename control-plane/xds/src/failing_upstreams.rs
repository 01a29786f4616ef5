//! The upstreams that fail at a gateway, in the metadata of its node.
//!
//! A gateway sends them when they change, at most every [`REPORT_EVERY`], and with each acknowledgement. A control plane of an
//! earlier version ignores them. Keeps true: number and length are bounded at both ends.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::xds::envoy::config::core::v3::Node;
use prost_types::{Struct, Value, value};
use serde::Serialize;

use super::refused_parts::text_value;
use super::subscription::shortened;

/// Interval of reports.
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(2);
/// Maximum number of upstreams that are reported.
const MAX_NAMED: usize = 50;
/// Maximum length of the texts of one, in bytes.
const MAX_TEXT: usize = 512;
/// Metadata key: breaker, time and cause of each upstream, by its server and origin.
const NAME: &str = "failing-upstreams";

/// Returns the upstreams that fail, the latest first.
pub type FailingUpstreams = Arc<dyn Fn() -> Vec<FailingUpstream> + Send + Sync>;

/// A service with a recent failure at a gateway.
#[derive(Clone, Debug, Serialize, PartialEq, Eq, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingUpstream {
    /// Server whose requests failed.
    pub server: String,
    /// Origin of the service.
    pub origin: String,
    /// State of the gateway's breaker: `closed`, `open` or `half_open`.
    pub breaker: String,
    /// Time of the last failure, in Unix milliseconds.
    pub failed_at: u64,
    /// Cause of the last failure.
    pub cause: String,
}

/// Returns the metadata of a gateway's node for them.
pub(super) fn members(failing: &[FailingUpstream]) -> Vec<(String, Value)> {
    if failing.is_empty() {
        return Vec::new();
    }
    let named = failing.iter().take(MAX_NAMED).map(|one| {
        let text = format!("{} {} {}", one.breaker, one.failed_at, one.cause);
        (shortened(format!("{} {}", one.server, one.origin), MAX_TEXT), text_value(shortened(text, MAX_TEXT)))
    });
    let named = Value { kind: Some(value::Kind::StructValue(Struct { fields: named.collect() })) };
    vec![(NAME.to_owned(), named)]
}

/// Reads them from a node's metadata, ordered by server and origin.
pub(super) fn read(node: &Node) -> Vec<FailingUpstream> {
    let member = node.metadata.as_ref().and_then(|metadata| metadata.fields.get(NAME)?.kind.as_ref());
    let Some(value::Kind::StructValue(all)) = member else { return Vec::new() };
    all.fields.iter().take(MAX_NAMED).filter_map(failing_upstream).collect()
}

fn failing_upstream((name, text): (&String, &Value)) -> Option<FailingUpstream> {
    let Some(value::Kind::StringValue(text)) = &text.kind else { return None };
    let name = shortened(name.clone(), MAX_TEXT);
    let text = shortened(text.clone(), MAX_TEXT);
    let (server, origin) = name.split_once(' ')?;
    let mut parts = text.splitn(3, ' ');
    let breaker = parts.next()?.to_owned();
    let failed_at = parts.next()?.parse().ok()?;
    let cause = parts.next().unwrap_or_default().to_owned();
    Some(FailingUpstream { server: server.to_owned(), origin: origin.to_owned(), breaker, failed_at, cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(server: &str) -> FailingUpstream {
        FailingUpstream {
            server: server.into(),
            origin: "https://api.example".into(),
            breaker: "half_open".into(),
            failed_at: 7,
            cause: "the service answered 503".into(),
        }
    }

    fn node(fields: Vec<(String, Value)>) -> Node {
        Node { metadata: Some(Struct { fields: fields.into_iter().collect() }), ..Node::default() }
    }

    #[test]
    fn a_node_names_the_upstreams_that_fail() {
        let all = [failing("a"), failing("b")];
        assert_eq!(read(&node(members(&all))), all);
        assert!(members(&[]).is_empty() && read(&Node::default()).is_empty());
    }

    /// Invariant I-4: what others send.
    #[test]
    fn of_many_upstreams_some_are_named_in_short() {
        let long =
            |number: usize| FailingUpstream { cause: "x".repeat(10_000), ..failing(&format!("s{number}")) };
        let all: Vec<_> = (0..200).map(long).collect();
        let known = read(&node(members(&all)));
        assert_eq!(known.len(), MAX_NAMED);
        assert!(known.iter().all(|one| one.cause.len() <= MAX_TEXT));
        let odd = [("a", "open 7 x"), ("a b", "open"), ("a c", "open x y")];
        let odd = odd.map(|(name, text)| (name.to_owned(), text_value(text.to_owned())));
        let odd = Value { kind: Some(value::Kind::StructValue(Struct { fields: odd.into() })) };
        assert!(read(&node(vec![(NAME.to_owned(), odd)])).is_empty());
    }
}
