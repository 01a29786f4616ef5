//! Which gateway pool a kind of request goes to, so that risky or heavy primitives get their own.
//!
//! Owns the match of the snapshot's routes, first match first. A route is a hint to Envoy, never a decision
//! about access.

use asp_proto::snapshot::Route;

use crate::error::SnapshotError;
use crate::pattern::{Pattern, exact_or_any};

/// Header towards Envoy's router.
pub(crate) const HEADER: &str = "x-asp-route";

/// Ordered rules.
#[derive(Default)]
pub(crate) struct Routes {
    rules: Vec<Rule>,
}

struct Rule {
    server: Pattern,
    method: Pattern,
    primitive: Pattern,
    cluster: String,
}

impl Routes {
    pub(crate) fn index(messages: &[Route]) -> Result<Routes, SnapshotError> {
        let mut rules = Vec::new();
        for (position, route) in messages.iter().enumerate() {
            // The name becomes a header value.
            if route.cluster.is_empty() || !route.cluster.bytes().all(|byte| byte.is_ascii_graphic()) {
                let path = format!("routes[{position}].cluster");
                return Err(SnapshotError::invalid(path, "is not visible ASCII"));
            }
            rules.push(Rule {
                server: exact_or_any(&route.server),
                method: exact_or_any(&route.method),
                primitive: Pattern::new(&route.primitive),
                cluster: route.cluster.clone(),
            });
        }
        Ok(Routes { rules })
    }

    /// The cluster of the first rule that covers the request.
    pub(crate) fn find(&self, server: &str, method: Option<&str>, primitive: Option<&str>) -> Option<&str> {
        let covers = |rule: &&Rule| {
            rule.server.covers(Some(server)) && rule.method.covers(method) && rule.primitive.covers(primitive)
        };
        self.rules.iter().find(covers).map(|rule| rule.cluster.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(server: &str, method: &str, primitive: &str, cluster: &str) -> Route {
        Route {
            server: server.into(),
            method: method.into(),
            primitive: primitive.into(),
            cluster: cluster.into(),
        }
    }

    #[test]
    fn the_first_rule_that_covers_the_request_wins() {
        let routes = Routes::index(&[
            route("demo", "tools/call", "heavy.*", "heavy"),
            route("demo", "tools/call", "*", "tools"),
            route("*", "*", "*", "rest"),
        ])
        .unwrap();
        assert_eq!(routes.find("demo", Some("tools/call"), Some("heavy.x")), Some("heavy"));
        assert_eq!(routes.find("demo", Some("tools/call"), None), Some("tools"));
        assert_eq!(routes.find("demo", None, None), Some("rest"));
        assert_eq!(Routes::default().find("demo", None, None), None);
    }

    #[test]
    fn a_cluster_that_cannot_be_a_header_value_is_refused() {
        for cluster in ["", "a b", "a\r\nb", "\u{e4}"] {
            assert!(Routes::index(&[route("*", "*", "*", cluster)]).is_err(), "{cluster:?}");
        }
    }
}
