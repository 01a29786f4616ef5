//! Servers that a host name alone selects: for gRPC, whose paths name no server, and for the agent card at the root.
//!
//! Keeps true: a host that several servers with A2A list selects none of them, so that the order of servers decides
//! nothing, and the public URL's host is the platform's own, whoever lists it (I-12); then the default agent answers, if
//! there is one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::origin;
use crate::path::PathKind;
use crate::server::Server;

/// Servers with A2A by their canonical hosts; `None` for a host of several.
pub(crate) type AgentHosts = HashMap<Vec<u8>, Option<Arc<str>>>;

pub(crate) fn index(servers: &HashMap<Arc<str>, Arc<Server>>, public_url: &str) -> AgentHosts {
    let own =
        origin::canonical_host(origin::authority(public_url).as_bytes(), origin::default_port(public_url));
    let mut hosts = AgentHosts::new();
    for (name, server) in servers.iter().filter(|(_, server)| server.has(PathKind::A2a)) {
        for host in server.hosts.listed().iter().filter(|host| **host != own) {
            let slot = hosts.entry(host.clone()).or_insert_with(|| Some(Arc::clone(name)));
            if slot.as_ref() != Some(name) {
                *slot = None;
            }
        }
    }
    hosts
}

/// Returns a host with its port, or else the default one.
pub(crate) fn with_port(host: &[u8], default_port: &str) -> Option<String> {
    let host = std::str::from_utf8(host).ok()?;
    // The colons of an IPv6 address are inside brackets.
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| is_port(port));
    Some(if has_port { host.to_owned() } else { format!("{host}{default_port}") })
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
                server("claims", Protocol::A2a, &["H:443"]),
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

    #[test]
    fn an_agent_has_the_address_of_a_host_that_selects_it_or_of_the_public_url() {
        let addresses = |snapshot: &Snapshot| {
            ["one", "two", "tools", "open", "nobody"].map(|server| snapshot.agent_address(server))
        };
        let none = snapshot("");
        let [one, two, rest @ ..] = addresses(&none);
        assert_eq!(one.as_deref(), Some("one.example.com:443"));
        assert_eq!(two.as_deref(), Some("two.example.com:8443"));
        assert_eq!(rest, [None, None, None]);
        assert_eq!(snapshot("open").agent_address("open").as_deref(), Some("h:443"));
        // A server with hosts answers at no other one, whether it is the default agent or not.
        let mut message = EdgeSnapshot {
            public_url: "http://[::1]:8080".into(),
            default_agent: "one".into(),
            servers: vec![
                server("one", Protocol::A2a, &["all.example.com"]),
                server("two", Protocol::A2a, &["all.example.com", "[::2]"]),
            ],
            ..EdgeSnapshot::default()
        };
        let shared = Snapshot::from_message(message.clone()).unwrap();
        assert_eq!(shared.agent_address("one").as_deref(), Some("all.example.com:80"), "by default");
        assert_eq!(shared.agent_address("two").as_deref(), Some("[::2]:80"));
        message.servers[0].hosts = vec!["[::1]:8080".into()];
        let own = Snapshot::from_message(message.clone()).unwrap();
        assert_eq!(own.agent_address("one").as_deref(), Some("[::1]:8080"));
        message.servers[0].hosts = Vec::new();
        let open = Snapshot::from_message(message).unwrap();
        assert_eq!(open.agent_address("one").as_deref(), Some("[::1]:8080"));
    }
}
