//! Private networks of plugins: replaces an address block open to every name with names and their primitives.
//!
//! Keeps true: a name gets an entry only if this machine resolves it into the network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use asp_command::environment::Environment;
use asp_platform::address::Network;
use asp_platform::operator_list::{self, ListEntry};

use super::installation::Installation;
use super::report::ReportLine;
use super::settings::served_primitives;

const ENV_PRIVATE: &str = "ASP_RUNTIME_EGRESS_ALLOW_PRIVATE";

/// Returns the setting for runtimes, if an entry of it has no name or no `for`.
pub(super) fn lines(
    environment: &dyn Environment,
    installation: &Installation,
    resolve: &dyn Fn(&str) -> Vec<IpAddr>,
) -> Vec<ReportLine> {
    let listed = environment.get(ENV_PRIVATE).unwrap_or_default();
    let Ok(listed) = operator_list::parse(&listed) else { return Vec::new() };
    if listed.iter().all(|entry| entry.patterns.is_some() && entry.value.contains('=')) {
        return Vec::new();
    }
    let domains = domains(installation);
    let found: BTreeMap<&str, Vec<IpAddr>> =
        domains.keys().map(|name| (*name, addresses(name, resolve))).collect();
    let mut entries: Vec<ListEntry> = Vec::new();
    let mut marks = Vec::new();
    for entry in listed {
        let (names, network) = match entry.value.split_once('=') {
            Some(_) if entry.patterns.is_some() => {
                entries.push(entry);
                continue;
            }
            Some((name, network)) => (Some(name), network),
            None => (None, entry.value.as_str()),
        };
        let Ok(block) = network.parse::<Network>() else {
            marks.push(format!("{network} is not a private network: the entry is left out"));
            continue;
        };
        let is_meant = |name: &str| names.is_none_or(|only| only == name);
        let leads =
            |name: &str| found.get(name).is_some_and(|all| all.iter().any(|one| block.contains(*one)));
        let before = entries.len();
        for (name, patterns) in domains.iter().filter(|(name, _)| is_meant(name)) {
            let patterns: Vec<String> = patterns.iter().cloned().collect();
            let by_name = ListEntry { value: format!("{name}={network}"), patterns: Some(patterns) };
            if names.is_some() || leads(name) {
                entries.push(by_name);
            } else if name.starts_with('*') {
                marks.push(format!("if hosts of {name} are in {network}, add {by_name}"));
            } else if found.get(name).is_some_and(Vec::is_empty) {
                marks.push(format!("{name} is not found from here; if it is in {network}, add {by_name}"));
            }
        }
        if entries.len() == before {
            marks.push(format!("no plugin's domain leads into {network} from here: the entry is left out"));
        }
    }
    vec![ReportLine { line: operator_list::completed(ENV_PRIVATE, &entries), marks }]
}

/// Returns the plugins that list a domain, by domain.
fn domains(installation: &Installation) -> BTreeMap<&str, BTreeSet<String>> {
    let mut domains: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for one in served_primitives(installation) {
        for domain in &one.primitive.allowed_domains {
            domains.entry(domain).or_default().insert(format!("{}/{}", one.server, one.primitive.id));
        }
    }
    domains
}

fn addresses(name: &str, resolve: &dyn Fn(&str) -> Vec<IpAddr>) -> Vec<IpAddr> {
    if name.starts_with('*') { Vec::new() } else { resolve(name) }
}
