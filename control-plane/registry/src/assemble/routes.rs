//! The routes of the edge, derived from rules by primitive id.
//!
//! Owns the precedence of rules: the more specific one wins, by primitive, then server, then method; among equally
//! specific ones an admin's rule wins over a spec's. Edges take the first route that covers a request, so routes are
//! sorted that way. A rule for primitives becomes a route for each name of each primitive it matches.

use std::cmp::Reverse;

use asp_edge::names;
use asp_proto::snapshot::Route;
use prost::Message as _;

use crate::compiled::CompiledServer;

/// Wildcard of a rule.
const ANY: &str = "*";
/// Maximum size of the tag and length of an entry in a repeated field, in bytes.
const FRAMING: usize = 4;

/// Specificity of a rule: by primitive, server and method, then whether an admin wrote it.
type Specificity = (usize, bool, bool, bool);

struct Candidate<'a> {
    specificity: Specificity,
    method: &'a str,
    pool: &'a str,
}

/// Returns the routes of `servers`. `rules` are the admins' rules, as routes whose `primitive` is a pattern of ids.
pub fn routes(servers: &[&CompiledServer], rules: &[Route]) -> Vec<Route> {
    let mut named: Vec<Route> = servers.iter().flat_map(|server| of_names(server, rules)).collect();
    // Exact names come before prefixes, and longer prefixes before shorter ones.
    named.sort_by_key(|route| {
        let is_pattern = route.primitive.ends_with('*');
        (is_pattern, Reverse(if is_pattern { route.primitive.len() } else { 0 }))
    });
    named.extend(catch_all(servers, rules));
    named
}

/// Returns a shorter replacement for [`routes`] if those are too large. A server with a route for any of its
/// primitives leads to `pool` as a whole, so that no request reaches a pool it was routed away from. If that takes
/// more than `bytes` too, every server does.
pub fn closed_routes(servers: &[&CompiledServer], rules: &[Route], pool: &str, bytes: usize) -> Vec<Route> {
    let closed = |server: &str| route(server, ANY, ANY, pool);
    let named = servers.iter().filter(|server| !of_names(server, rules).is_empty());
    let mut found: Vec<Route> = named.map(|server| closed(&server.server.name)).collect();
    found.extend(catch_all(servers, rules));
    if routes_bytes(&found) > bytes {
        found = vec![closed(ANY)];
    }
    found
}

/// Returns the encoded size in an edge snapshot, in bytes.
pub fn routes_bytes(routes: &[Route]) -> usize {
    routes.iter().map(|route| route.encoded_len() + FRAMING).sum()
}

/// Returns the routes for the names of one server's primitives.
fn of_names(server: &CompiledServer, rules: &[Route]) -> Vec<Route> {
    let name = server.server.name.as_str();
    let rules: Vec<&Route> =
        rules.iter().filter(|rule| rule.primitive != ANY && covers(&rule.server, name)).collect();
    let mut routes = Vec::new();
    for listing in &server.server.listings {
        let of_admins = rules.iter().filter_map(|rule| {
            let by_primitive = names::specificity(&rule.primitive, &listing.id)?;
            Some(candidate(rule, by_primitive, true))
        });
        let mut candidates: Vec<Candidate<'_>> = of_admins.collect();
        if !listing.pool.is_empty() {
            let specificity = (usize::MAX, true, false, false);
            candidates.push(Candidate { specificity, method: ANY, pool: &listing.pool });
        }
        // Most primitives have none, and this runs with every change.
        if candidates.is_empty() {
            continue;
        }
        candidates.sort_by_key(|candidate| Reverse(candidate.specificity));
        // Candidates after one for every method never apply.
        let last = candidates.iter().position(|candidate| candidate.method == ANY);
        candidates.truncate(last.map_or(candidates.len(), |last| last + 1));
        let mut texts = vec![at_edge(&listing.mcp_name), listing.rest_name.clone()];
        texts.dedup();
        for text in texts.iter().filter(|text| !text.is_empty()) {
            routes.extend(candidates.iter().map(|found| route(name, found.method, text, found.pool)));
        }
    }
    routes
}

/// Returns the routes for all requests to a server, or to every server.
fn catch_all(servers: &[&CompiledServer], rules: &[Route]) -> Vec<Route> {
    let mut found: Vec<(Specificity, Route)> = rules
        .iter()
        .filter(|rule| rule.primitive == ANY)
        .map(|rule| (candidate(rule, 0, true).specificity, rule.clone()))
        .collect();
    for server in servers.iter().filter(|server| !server.server.pool.is_empty()) {
        let route = route(&server.server.name, ANY, ANY, &server.server.pool);
        found.push(((0, true, false, false), route));
    }
    found.sort_by_key(|(specificity, _)| Reverse(*specificity));
    found.into_iter().map(|(_, route)| route).collect()
}

fn candidate(rule: &Route, by_primitive: usize, of_admins: bool) -> Candidate<'_> {
    let specificity = (by_primitive, rule.server != ANY, rule.method != ANY, of_admins);
    Candidate { specificity, method: &rule.method, pool: &rule.cluster }
}

fn route(server: &str, method: &str, primitive: &str, pool: &str) -> Route {
    let [server, method, primitive, cluster] = [server, method, primitive, pool].map(str::to_owned);
    Route { server, method, primitive, cluster }
}

fn covers(pattern: &str, name: &str) -> bool {
    pattern == ANY || pattern == name
}

/// Returns the name that the edge reads; for a template its fixed start.
fn at_edge(mcp_name: &str) -> String {
    match mcp_name.split_once('{') {
        Some((start, _)) => format!("{start}*"),
        None => mcp_name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{Listing, Server};

    use super::*;

    fn server(name: &str, pool: &str, listings: &[(&str, &str, &str, &str)]) -> CompiledServer {
        let listings = listings.iter().map(|(id, mcp_name, rest_name, pool)| Listing {
            id: (*id).into(),
            mcp_name: (*mcp_name).into(),
            rest_name: (*rest_name).into(),
            pool: (*pool).into(),
            ..Listing::default()
        });
        let server = Server {
            name: name.into(),
            pool: pool.into(),
            listings: listings.collect(),
            ..Server::default()
        };
        CompiledServer {
            edge: asp_proto::snapshot::EdgeServer::default(),
            server,
            primitives: Vec::new(),
            offered_to: Vec::new(),
            agent_card: String::new(),
            content_hash: String::new(),
            files: Vec::new(),
        }
    }

    fn said(servers: &[CompiledServer], rules: &[[&str; 4]]) -> Vec<String> {
        let rules: Vec<Route> = rules
            .iter()
            .map(|[server, method, primitive, pool]| route(server, method, primitive, pool))
            .collect();
        let servers: Vec<&CompiledServer> = servers.iter().collect();
        let said =
            |route: Route| format!("{} {} {} {}", route.server, route.method, route.primitive, route.cluster);
        routes(&servers, &rules).into_iter().map(said).collect()
    }

    #[test]
    fn without_rules_and_pools_there_are_no_routes() {
        assert!(said(&[server("demo", "", &[("echo", "echo", "echo", "")])], &[]).is_empty());
    }

    #[test]
    fn the_more_specific_rule_counts_by_primitive_then_server_then_method() {
        let servers = [server("demo", "", &[("risk.wipe", "wipe", "wipe", ""), ("echo", "echo", "", "")])];
        let rules = [
            ["*", "*", "*", "all"],
            ["*", "tools/call", "*", "calls"],
            ["demo", "*", "*", "demo"],
            ["*", "*", "risk.*", "risky"],
            ["demo", "*", "r*", "wide"],
            ["*", "tools/call", "risk.wipe", "wipers"],
        ];
        assert_eq!(
            said(&servers, &rules),
            [
                "demo tools/call wipe wipers",
                "demo * wipe risky",
                "demo * * demo",
                "* tools/call * calls",
                "* * * all",
            ]
        );
    }

    #[test]
    fn without_room_a_server_with_routed_primitives_leads_to_one_pool_whole() {
        let servers = [server("demo", "own", &[("echo", "echo", "", "risky")]), server("shop", "", &[])];
        let servers: Vec<&CompiledServer> = servers.iter().collect();
        let rules = [route("*", "*", "*", "all")];
        let closed = |bytes| closed_routes(&servers, &rules, "none", bytes);
        let every =
            [route("demo", "*", "*", "none"), route("demo", "*", "*", "own"), route("*", "*", "*", "all")];
        assert_eq!(closed(1_000), every);
        assert_eq!(closed(routes_bytes(&every) - 1), [route("*", "*", "*", "none")]);
    }

    #[test]
    fn a_primitive_is_routed_by_every_name_that_it_has_and_a_template_by_its_start() {
        let servers = [
            server("demo", "", &[("item", "demo://items/{id}", "", ""), ("one", "demo://items/1", "", "")]),
            server("shop", "", &[("item", "buy", "order", ""), ("hidden", "", "", "")]),
        ];
        assert_eq!(
            said(
                &servers,
                &[["*", "*", "item", "heavy"], ["*", "*", "one", "light"], ["*", "*", "hidden", "x"]]
            ),
            [
                "demo * demo://items/1 light",
                "shop * buy heavy",
                "shop * order heavy",
                "demo * demo://items/* heavy"
            ]
        );
        let other = said(&servers, &[["shop", "*", "item", "heavy"]]);
        assert_eq!(other, ["shop * buy heavy", "shop * order heavy"], "another server's is not meant");
    }

    #[test]
    fn what_a_spec_says_counts_unless_an_admin_is_as_specific() {
        let servers =
            [server("demo", "own", &[("echo", "echo", "", "risky"), ("clock", "clock", "", "risky")])];
        assert_eq!(said(&servers, &[]), ["demo * echo risky", "demo * clock risky", "demo * * own"]);
        let rules = [["*", "*", "*", "all"], ["demo", "*", "echo", "gateway"], ["*", "*", "c*", "wide"]];
        assert_eq!(
            said(&servers, &rules),
            ["demo * echo gateway", "demo * clock risky", "demo * * own", "* * * all"]
        );
        assert_eq!(said(&servers, &[["demo", "*", "*", "mine"]])[2..], ["demo * * mine", "demo * * own"]);
    }
}
