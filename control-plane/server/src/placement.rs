//! Routes, regions and homes: validation of records, and their form in snapshots.
//!
//! Owns the bounds of names and of their snapshot bytes. Keeps true: an org's home may name a region that this control
//! plane does not know; the org's requests are then refused, and served nowhere else. If routes do not fit into the
//! snapshot, the requests that they might have led elsewhere are refused.

use asp_edge::names;
use asp_proto::snapshot::{Region, Route};
use asp_registry::CompiledServer;
use asp_store::control::{HomeRecord, Placement, RegionRecord, RouteRecord};

use crate::patterns;

/// Maximum length of a cluster's name, in bytes.
const MAX_CLUSTER: usize = 63;
/// Maximum length of a JSON-RPC method, in bytes.
const MAX_METHOD: usize = 64;
/// Wildcard for any value.
const ANY: &str = "*";
/// Pool without gateways: no real pool has a dot in its name.
const NO_POOL: &str = "no.pool";

/// Whether the text is a valid name of a pool.
pub fn is_pool(name: &str) -> bool {
    names::is_label(name)
}

/// Returns the faults of a list of routes.
pub fn route_faults(list: &[RouteRecord]) -> Vec<String> {
    let mut faults = Vec::new();
    for (position, route) in list.iter().enumerate() {
        let RouteRecord { server, method, primitive, pool } = route;
        let parts = [
            (names::is_label(server) || server == ANY, "server must be a server's name or *"),
            (is_method(method), "method must be a JSON-RPC method or *"),
            (patterns::valid(primitive), "primitive must be the id of a primitive, prefix* or *"),
            (is_pool(pool), "pool must be 1 to 63 of a-z 0-9 -"),
        ];
        let is_bad = parts.iter().filter(|(is_good, _)| !is_good);
        faults.extend(is_bad.map(|(_, fault)| format!("route {position}: {fault}")));
        let same = |other: &&RouteRecord| {
            (&other.server, &other.method, &other.primitive) == (server, method, primitive)
        };
        if list.iter().take(position).any(|other| same(&other)) {
            faults.push(format!("route {position}: another one has the same server, method and primitive"));
        }
    }
    faults
}

/// Returns the faults of a list of regions.
pub fn region_faults(list: &[RegionRecord]) -> Vec<String> {
    let mut faults = Vec::new();
    for (position, region) in list.iter().enumerate() {
        if !names::is_label(&region.name) {
            faults.push(format!("region {position}: name must be 1 to 63 of a-z 0-9 -"));
        }
        let cluster = region.cluster.as_str();
        if !cluster.is_empty() && !is_cluster(cluster) {
            faults.push(format!("region {position}: cluster must be 1 to 63 of a-z 0-9 . _ -"));
        }
        let before = || list.iter().take(position);
        if before().any(|other| other.name == region.name) {
            faults.push(format!("region {position}: another one has the same name"));
        }
        if cluster.is_empty() && before().any(|other| other.cluster.is_empty()) {
            faults.push(format!("region {position}: another one is `here`"));
        }
    }
    faults
}

/// Returns the fault of an org's home, if any.
pub fn home_fault(record: &HomeRecord) -> Option<String> {
    if let Some(fault) = names::pattern_fault(&record.org) {
        return Some(format!("the org {fault}; it must be an org, prefix* or *"));
    }
    (!names::is_label(&record.region)).then(|| "region must be 1 to 63 of a-z 0-9 -".to_owned())
}

/// Returns the routes for edges, in order of precedence.
pub fn routes(servers: &[&CompiledServer], records: &[RouteRecord]) -> Vec<Route> {
    asp_registry::routes(servers, &rules(records))
}

/// Returns the replacement for routes that take more than `bytes`: every request that one of them might redirect is
/// refused.
pub fn closed_routes(servers: &[&CompiledServer], records: &[RouteRecord], bytes: usize) -> Vec<Route> {
    asp_registry::closed_routes(servers, &rules(records), NO_POOL, bytes)
}

fn rules(records: &[RouteRecord]) -> Vec<Route> {
    records
        .iter()
        .cloned()
        .map(|RouteRecord { server, method, primitive, pool }| Route {
            server,
            method,
            primitive,
            cluster: pool,
        })
        .collect()
}

/// Returns the homes for edges and gateways.
pub fn regions(placement: &Placement) -> Vec<Region> {
    let told = |home: &HomeRecord| {
        let known = placement.regions.iter().find(|region| region.name == home.region);
        Region {
            org: home.org.clone(),
            region: home.region.clone(),
            cluster: known.map(|region| region.cluster.clone()).unwrap_or_default(),
            here: known.is_some_and(|region| region.cluster.is_empty()),
        }
    };
    placement.homes.iter().map(told).collect()
}

fn is_cluster(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_CLUSTER).contains(&text.len()) && text.bytes().all(is_plain)
}

fn is_method(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'.');
    text == ANY || ((1..=MAX_METHOD).contains(&text.len()) && text.bytes().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(server: &str, method: &str, primitive: &str, pool: &str) -> RouteRecord {
        let [server, method, primitive, pool] = [server, method, primitive, pool].map(str::to_owned);
        RouteRecord { server, method, primitive, pool }
    }

    fn region(name: &str, cluster: &str) -> RegionRecord {
        RegionRecord { name: name.into(), cluster: cluster.into() }
    }

    #[test]
    fn every_fault_of_a_list_of_routes_is_named_with_its_place() {
        let good = [route("*", "*", "*", "a"), route("demo", "tools/call", "x.*", "heavy-2")];
        assert!(route_faults(&good).is_empty());
        let faulty = [
            (route("De mo", "*", "*", "a"), "server"),
            (route("*", "tools call", "*", "a"), "method"),
            (route("*", "", "*", "a"), "method"),
            (route("*", "*", "a*b", "a"), "primitive"),
            (route("*", "*", "*", ""), "pool"),
            (route("*", "*", "*", "Heavy"), "pool"),
            (route("*", "*", "*", &"x".repeat(64)), "pool"),
            (route("*", "*", "*", "a\r\nb"), "pool"),
            (route("demo", "tools/call", "x.*", "other"), "the same"),
        ];
        for (route, named) in faulty {
            let list = [good[1].clone(), route];
            let faults = route_faults(&list);
            assert!(
                faults.len() == 1 && faults[0].starts_with("route 1: ") && faults[0].contains(named),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn regions_have_names_of_their_own_and_one_of_them_is_here() {
        assert!(region_faults(&[region("eu", ""), region("us", "region_us.v2")]).is_empty());
        for list in [
            [region("eu", ""), region("eu", "c")],
            [region("eu", ""), region("us", "")],
            [region("eu", ""), region("U S", "c")],
            [region("eu", ""), region("us", "c\n")],
        ] {
            assert_eq!(region_faults(&list).len(), 1, "{list:?}");
        }
        let home = |org: &str, region: &str| HomeRecord { org: org.into(), region: region.into() };
        assert_eq!(home_fault(&home("Acme Holding", "eu")), None);
        assert_eq!(home_fault(&home("*", "eu")), None);
        for (org, at) in [("", "eu"), ("a*b", "eu"), ("acme", ""), ("acme", "e u")] {
            assert!(home_fault(&home(org, at)).is_some(), "{org} {at}");
        }
    }

    #[test]
    fn a_home_in_a_region_that_nobody_knows_leads_nowhere() {
        let placement = Placement {
            regions: vec![region("eu", ""), region("us", "region-us")],
            homes: ["eu", "us", "mars"]
                .map(|region| HomeRecord { org: format!("of-{region}"), region: region.into() })
                .to_vec(),
            ..Placement::default()
        };
        let told: Vec<(String, String, bool)> =
            regions(&placement).into_iter().map(|told| (told.org, told.cluster, told.here)).collect();
        let expected = [("of-eu", "", true), ("of-us", "region-us", false), ("of-mars", "", false)];
        assert_eq!(told, expected.map(|(org, cluster, here)| (org.to_owned(), cluster.to_owned(), here)));
    }
}
