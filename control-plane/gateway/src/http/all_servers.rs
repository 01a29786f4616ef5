//! The servers that a request to `/all/mcp` reaches: those that would admit the same request at their own address.
//!
//! Keeps true: each server is asked with the code that admits its own requests, so its hosts, origins, credentials,
//! audiences, scopes, exposure and body limit apply; one that refuses the request contributes nothing.

use std::sync::Arc;

use asp_edge::{EnvelopeKind, PathKind, RequestFacts, Step};
use asp_pipeline::pipeline::entitlement::identify;
use asp_protocols::ReachedServer;
use asp_protocols::mcp::all_servers::split_name;
use asp_snapshot::VirtualServer;

use super::{AdmittedRequest, RequestCredentials, env, proof};
use crate::gateway::Gateway;

/// Whether the request's server stands for all others.
pub(super) fn is_for_all(request: &AdmittedRequest) -> bool {
    let AdmittedRequest { snapshot, admitted, .. } = request;
    admitted.path_kind == PathKind::Mcp && snapshot.edge.is_all_servers(&admitted.server)
}

/// Returns the servers that a request for all of them reaches, by name. A call of a tool reaches its server alone.
pub(super) async fn reached(
    gateway: &Gateway,
    offered: &RequestCredentials<'_>,
    request: &AdmittedRequest,
) -> Vec<ReachedServer> {
    let snapshot = &request.snapshot;
    let mut servers: Vec<&Arc<VirtualServer>> = match called(&request.admitted) {
        Some(server) => snapshot.server(server).into_iter().collect(),
        None => snapshot.servers().collect(),
    };
    servers.retain(|server| !snapshot.edge.is_all_servers(&server.message.name));
    servers.sort_unstable_by(|one, other| one.message.name.cmp(&other.message.name));
    let mut reached = Vec::with_capacity(servers.len());
    for server in servers {
        reached.extend(reach(gateway, offered, request, server).await);
    }
    reached
}

/// Returns the server whose tool a request calls by its name.
fn called(admitted: &RequestFacts) -> Option<&str> {
    let envelope = admitted.envelope.as_ref()?;
    let is_call = envelope.kind == EnvelopeKind::Request && envelope.method == "tools/call";
    let name = envelope.name.as_deref().filter(|_| is_call)?;
    split_name(name).map(|(server, _)| server)
}

/// Evaluates the request as one to `server`; `None` if it is refused there.
async fn reach(
    gateway: &Gateway,
    offered: &RequestCredentials<'_>,
    request: &AdmittedRequest,
    server: &Arc<VirtualServer>,
) -> Option<ReachedServer> {
    let AdmittedRequest { snapshot, admitted: RequestFacts { trace, .. }, body } = request;
    let path = format!("/{}/mcp", server.message.name);
    let headers: Vec<(&str, &[u8])> = offered
        .headers
        .iter()
        .map(|(name, value)| if *name == ":path" { (*name, path.as_bytes()) } else { (*name, *value) })
        .collect();
    let env = env(*trace);
    let step = gateway.edge().on_headers(&snapshot.edge, &headers, false, &env);
    if matches!(&step, Step::NeedBody(pending) if body.bytes.len() > pending.max_body) {
        return None;
    }
    let mut admitted = proof::admitted(&step)?.clone();
    if admitted.unverified {
        let caller = proof::caller(gateway, snapshot, offered, &admitted).await.ok().flatten()?;
        admitted = gateway.edge().admit(&snapshot.edge, admitted, caller, &env).ok()?;
    }
    let caller = identify(&admitted, server).ok()?;
    Some(ReachedServer { server: server.clone(), caller })
}
