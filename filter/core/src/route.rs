//! Gateway pools for kinds of requests, so that risky or heavy primitives get their own.
//!
//! Owns the match of the snapshot's routes: the first match wins. A route is a hint to Envoy, never a decision about
//! access.

use std::collections::HashMap;

use asp_proto::snapshot::Route;

use crate::error::SnapshotError;
use crate::pattern::{Pattern, exact_or_any};

/// Request header for Envoy's router.
pub(crate) const HEADER: &str = "x-asp-route";

/// Ordered rules. A request is compared only with the rules that name its primitive, and with those that name no single
/// one.
#[derive(Default)]
pub(crate) struct Routes {
    rules: Vec<RouteRule>,
    /// Positions of the rules that name a single primitive, by its name, ascending.
    named: HashMap<Box<str>, Vec<usize>>,
    /// Positions of the other rules, ascending.
    open: Vec<usize>,
}

struct RouteRule {
    server: Pattern,
    method: Pattern,
    primitive: Pattern,
    cluster: String,
}

impl Routes {
    pub(crate) fn index(messages: &[Route]) -> Result<Routes, SnapshotError> {
        let mut routes = Routes::default();
        for (position, route) in messages.iter().enumerate() {
            // The name becomes a header value.
            if route.cluster.is_empty() || !route.cluster.bytes().all(|byte| byte.is_ascii_graphic()) {
                let path = format!("routes[{position}].cluster");
                return Err(SnapshotError::invalid(path, "is not visible ASCII"));
            }
            let primitive = Pattern::new(&route.primitive);
            match &primitive {
                Pattern::Exact(name) => routes.named.entry(name.as_str().into()).or_default().push(position),
                Pattern::Any | Pattern::Prefix(_) => routes.open.push(position),
            }
            routes.rules.push(RouteRule {
                server: exact_or_any(&route.server),
                method: exact_or_any(&route.method),
                primitive,
                cluster: route.cluster.clone(),
            });
        }
        Ok(routes)
    }

    /// Returns the cluster of the first rule that covers the request.
    pub(crate) fn find(&self, server: &str, method: Option<&str>, primitive: Option<&str>) -> Option<&str> {
        if self.rules.is_empty() {
            return None;
        }
        let covers = |position: &&usize| {
            self.rules.get(**position).is_some_and(|rule| {
                rule.server.covers(Some(server))
                    && rule.method.covers(method)
                    && rule.primitive.covers(primitive)
            })
        };
        let named = primitive.and_then(|name| self.named.get(name)).map(Vec::as_slice).unwrap_or_default();
        let first = [named.iter().find(covers), self.open.iter().find(covers)].into_iter().flatten().min()?;
        self.rules.get(*first).map(|rule| rule.cluster.as_str())
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
            route("demo", "*", "late", "never"),
        ])
        .unwrap();
        assert_eq!(routes.find("demo", Some("tools/call"), Some("heavy.x")), Some("heavy"));
        assert_eq!(routes.find("demo", Some("tools/call"), None), Some("tools"));
        assert_eq!(routes.find("demo", None, None), Some("rest"));
        assert_eq!(routes.find("demo", Some("prompts/get"), Some("late")), Some("rest"));
        assert_eq!(Routes::default().find("demo", None, None), None);
    }

    #[test]
    fn a_cluster_that_cannot_be_a_header_value_is_refused() {
        for cluster in ["", "a b", "a\r\nb", "\u{e4}"] {
            assert!(Routes::index(&[route("*", "*", "*", cluster)]).is_err(), "{cluster:?}");
        }
    }
}
