//! The platform's own server, at which callers reach the tools of all others.
//!
//! Keeps true: it admits whoever one of the others would admit, and grants nothing: gateways evaluate each request
//! again at every server that it reaches.

use std::collections::BTreeSet;

use asp_edge::names::ALL_SERVERS;
use asp_proto::snapshot::{EdgeServer, Protocol, Server, Sessions};

use crate::compile::content_hash;
use crate::compiled::CompiledServer;

/// Maximum size of a request body for servers that set none, in bytes (`EdgeServer.max_body_bytes`).
const DEFAULT_MAX_BODY_BYTES: u32 = 1 << 20;
const INSTRUCTIONS: &str = "Tools are named server__tool. If there are too many to list, find_tools finds those for a \
                            task, and call_tool calls one of them.";

/// Returns the server that stands for `servers`, as far as they speak MCP.
pub fn all_servers<'a>(
    public_url: &str,
    servers: impl Iterator<Item = &'a CompiledServer>,
) -> CompiledServer {
    let mut origins = BTreeSet::new();
    let mut schemes = BTreeSet::new();
    let mut issuers = BTreeSet::new();
    let mut audiences = BTreeSet::new();
    let mut max_body_bytes = 0;
    for edge in servers.map(|server| &server.edge).filter(|edge| speaks_mcp(edge)) {
        if edge.origins.is_empty() {
            origins.insert(public_url.to_owned());
        }
        origins.extend(edge.origins.iter().cloned());
        schemes.extend(edge.schemes.iter().copied());
        issuers.extend(edge.issuers.iter().cloned());
        audiences.extend(edge.audiences.iter().cloned());
        let own_bytes = if edge.max_body_bytes == 0 { DEFAULT_MAX_BODY_BYTES } else { edge.max_body_bytes };
        max_body_bytes = own_bytes.max(max_body_bytes);
    }
    let edge = EdgeServer {
        name: ALL_SERVERS.to_owned(),
        protocols: vec![Protocol::Mcp.into()],
        default_allow: true,
        origins: origins.into_iter().collect(),
        schemes: schemes.into_iter().collect(),
        issuers: issuers.into_iter().collect(),
        audiences: audiences.into_iter().collect(),
        max_body_bytes,
        sessions: Sessions::Both.into(),
        ..EdgeServer::default()
    };
    let server = Server {
        name: ALL_SERVERS.to_owned(),
        title: "All servers".to_owned(),
        description: "The tools of all servers that its caller may use.".to_owned(),
        version: "1.0.0".to_owned(),
        instructions: INSTRUCTIONS.to_owned(),
        ..Server::default()
    };
    let content_hash = content_hash((&edge, &server), &[], &[]);
    CompiledServer {
        edge,
        server,
        primitives: Vec::new(),
        offered_to: Vec::new(),
        agent_card: String::new(),
        content_hash,
        files: Vec::new(),
    }
}

fn speaks_mcp(edge: &EdgeServer) -> bool {
    edge.protocols().any(|protocol| protocol == Protocol::Mcp)
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::AuthScheme;

    use super::*;

    const URL: &str = "https://mcp.example.com";

    fn server(name: &str, edge: EdgeServer) -> CompiledServer {
        let edge = EdgeServer { name: name.into(), ..edge };
        let server = Server { name: name.into(), ..Server::default() };
        CompiledServer { edge, server, ..all_servers(URL, [].iter()) }
    }

    #[test]
    fn it_admits_whoever_one_of_the_servers_admits() {
        let mcp = vec![Protocol::Mcp.into()];
        let plain = EdgeServer {
            protocols: mcp.clone(),
            schemes: vec![AuthScheme::Jwt.into()],
            issuers: vec!["corp".into()],
            ..EdgeServer::default()
        };
        let special = EdgeServer {
            origins: vec!["https://app.example.com".into()],
            hosts: vec!["special.example.com".into()],
            schemes: vec![AuthScheme::Psk.into(), AuthScheme::Jwt.into()],
            issuers: vec!["corp".into(), "partner".into()],
            audiences: vec!["api://special".into()],
            scopes: vec!["special".into()],
            max_body_bytes: 2 << 20,
            ..plain.clone()
        };
        let agent = EdgeServer {
            protocols: vec![Protocol::A2a.into()],
            issuers: vec!["agents".into()],
            ..EdgeServer::default()
        };
        let servers = [server("plain", plain), server("special", special), server("agent", agent)];
        let all = all_servers(URL, servers.iter());
        assert_eq!(all.edge.name, ALL_SERVERS);
        assert_eq!(all.edge.protocols, mcp);
        assert_eq!(all.edge.origins, ["https://app.example.com", URL]);
        let schemes: Vec<AuthScheme> = all.edge.schemes().collect();
        assert_eq!(schemes, [AuthScheme::Jwt, AuthScheme::Psk]);
        assert_eq!(all.edge.issuers, ["corp", "partner"]);
        assert_eq!(all.edge.audiences, ["api://special"]);
        assert_eq!(all.edge.max_body_bytes, 2 << 20);
        assert!(all.edge.hosts.is_empty() && all.edge.scopes.is_empty(), "each server checks its own");
        assert!(all.primitives.is_empty() && all.server.listings.is_empty());
    }
}
