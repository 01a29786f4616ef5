//! Hosts of servers with A2A. There the host alone selects a server, for gRPC and for the agent card at the root.
//!
//! Keeps true: a server answers at a host by the operator's word, not by its own claim (I-12): the public URL's host is the
//! default agent's, any other one needs an entry of `ASP_AGENT_HOSTS` outside of development.

use asp_edge::is_same_host;
use asp_platform::operator_list;
use asp_proto::snapshot::Protocol;
use asp_registry::CompiledServer;

use super::{Compiler, StaticConfig};

impl Compiler {
    /// Rejects a host that the operator does not let a server with A2A have.
    pub(super) fn host_fault(&self, server: &CompiledServer) -> Option<String> {
        if !server.edge.protocols.contains(&i32::from(Protocol::A2a)) {
            return None;
        }
        let StaticConfig { public_url, dev, default_agent, agent_hosts, .. } = &*self.config;
        let name = server.server.name.as_str();
        let is_own = |host: &str| is_same_host(host, public_url, public_url);
        let is_granted = |host: &str| {
            *dev || agent_hosts.iter().any(|(granted, patterns)| {
                is_same_host(host, granted, public_url) && operator_list::allows(patterns, name, "")
            })
        };
        server.edge.hosts.iter().find_map(|host| match is_own(host) {
            true if name == default_agent => None,
            true => Some(format!(
                "hosts: `{host}` is the platform's own host, where A2A is for the default agent: remove it from `hosts`, or \
                 ask the operator to make the server `ASP_DEFAULT_AGENT`"
            )),
            false if is_granted(host) => None,
            false => Some(format!(
                "hosts: the operator does not let the server have `{host}` for A2A: remove it from `hosts`, or ask the \
                 operator to add `{host};for={name}/*` to `ASP_AGENT_HOSTS`"
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, server};
    use super::super::{Settlement, compile};
    use super::*;

    /// Invariant I-12.
    #[test]
    fn a_server_with_a2a_has_the_hosts_that_the_operator_names() {
        let of = |protocols: &str, host: &str| {
            let mut record = server("{schemes: [jwt], issuers: [dev]}");
            let text = record.files[0].text.replace("protocols: [mcp]", &format!("protocols: [{protocols}]"));
            record.files[0].text = format!("{text}hosts: [\"{host}\"]\n");
            record
        };
        let grants = vec![
            ("Agent.example.com:80".into(), vec!["demo/*".into()]),
            ("other.example.com".into(), vec![]),
        ];
        let production = StaticConfig { agent_hosts: grants, ..config(false) };
        let default = StaticConfig { default_agent: "demo".into(), ..production.clone() };
        for (config, protocols, host, reason) in [
            (&production, "mcp, a2a", "agent.example.com", None),
            (&production, "mcp, a2a", "other.example.com", Some("`other.example.com;for=demo/*`")),
            (&production, "mcp, a2a", "127.0.0.1:8080", Some("`ASP_DEFAULT_AGENT`")),
            (&production, "mcp", "127.0.0.1:8080", None),
            (&production, "mcp", "other.example.com", None),
            (&default, "mcp, a2a", "127.0.0.1:8080", None),
            (&config(true), "mcp, a2a", "other.example.com", None),
            (&config(true), "mcp, a2a", "127.0.0.1:8080", Some("`ASP_DEFAULT_AGENT`")),
        ] {
            let compiler = Compiler::new(config.clone());
            let record = of(protocols, host);
            let refused = compiler.accepts(&compile("demo", &record.files).unwrap()).err();
            assert_eq!(refused.is_some(), reason.is_some(), "{protocols} {host} {refused:?}");
            let Settlement { servers, faults } = compiler.settle(&[record]);
            assert_eq!(servers.is_empty(), reason.is_some(), "{protocols} {host}");
            let shown = reason.is_none_or(|reason| faults[0].fault.contains(reason));
            assert!(shown, "{host} {faults:?}");
        }
    }
}
