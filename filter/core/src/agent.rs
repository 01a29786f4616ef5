//! Servers that a host name alone selects: for gRPC, whose paths name no server, and for the agent card at the root.
//!
//! Keeps true: a host that several servers with A2A list selects none of them, so that the order of servers decides
//! nothing; then the default agent answers, if there is one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::path::PathKind;
use crate::server::Server;

/// Servers with A2A by their canonical hosts; `None` for a host of several.
pub(crate) type AgentHosts = HashMap<Vec<u8>, Option<Arc<str>>>;

pub(crate) fn index(servers: &HashMap<Arc<str>, Arc<Server>>) -> AgentHosts {
    let mut hosts = AgentHosts::new();
    for (name, server) in servers.iter().filter(|(_, server)| server.has(PathKind::A2a)) {
        for host in server.hosts.listed() {
            let slot = hosts.entry(host.clone()).or_insert_with(|| Some(Arc::clone(name)));
            if slot.as_ref() != Some(name) {
                *slot = None;
            }
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{EdgeServer, EdgeSnapshot, Protocol};

    use crate::snapshot::Snapshot;

    fn server(name: &str, protocol: Protocol, hosts: &[&str]) -> EdgeServer {
        EdgeServer {
            name: name.into(),
            protocols: vec![protocol as i32],
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..EdgeServer::default()
        }
    }

    fn snapshot(default_agent: &str) -> Snapshot {
        let message = EdgeSnapshot {
            public_url: "https://h".into(),
            default_agent: default_agent.into(),
            servers: vec![
                server("one", Protocol::A2a, &["one.example.com", "ONE.example.com:443", "all.example.com"]),
                server("two", Protocol::A2a, &["two.example.com:8443", "all.example.com"]),
                server("tools", Protocol::Mcp, &["tools.example.com", "one.example.com"]),
                server("open", Protocol::A2a, &[]),
            ],
            ..EdgeSnapshot::default()
        };
        Snapshot::from_message(message).unwrap()
    }

    #[test]
    fn a_host_selects_the_one_agent_that_lists_it() {
        let none = snapshot("");
        for (host, agent) in [
            ("one.example.com", Some("one")),
            ("One.Example.com:443", Some("one")),
            ("two.example.com:8443", Some("two")),
            ("two.example.com", None),
            ("all.example.com", None),
            ("tools.example.com", None),
            ("h", None),
            ("", None),
        ] {
            assert_eq!(none.agent(Some(host.as_bytes())), agent, "{host}");
        }
        assert_eq!(none.agent(None), None);
    }

    #[test]
    fn the_default_agent_answers_for_the_other_hosts() {
        let open = snapshot("open");
        for (host, agent) in [("one.example.com", "one"), ("all.example.com", "open"), ("h", "open")] {
            assert_eq!(open.agent(Some(host.as_bytes())), Some(agent), "{host}");
        }
        assert_eq!(open.agent(None), Some("open"));
        for absent in ["nobody", "tools"] {
            assert_eq!(snapshot(absent).agent(None), None, "{absent}");
        }
    }
}
