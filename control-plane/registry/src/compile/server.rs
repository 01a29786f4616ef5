//! Compilation of `server.yaml` and the primitives it lists to one self-contained server.
//!
//! Owns names, list order and the content hash. Keeps true: a compiled server carries every primitive it needs, so it
//! can be stored and assembled without its source files.

use std::collections::BTreeSet;

use asp_proto::snapshot;
use prost::Message as _;
use sha2::{Digest, Sha256};

use super::{card, compile_primitive, mcp, other_primitive, wire_scheme};
use crate::compiled::CompiledServer;
use crate::server_file::{DefaultExposure, Protocol, ServerFile, Sessions};
use crate::spec::{ExposureSettings, Kind, Spec};

/// A primitive as a server lists it: the spec, the name given by `as`, and the spec's file.
pub(crate) struct ServerMember<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) alias: Option<&'a str>,
    /// Gateway pool given by `pool`.
    pub(crate) pool: Option<&'a str>,
    pub(crate) file: &'a str,
    /// Folder of that file.
    pub(crate) folder: &'a str,
}

/// Compiles a server. `needed` are the elicitations and delegates that the listed primitives depend on.
pub(crate) fn compile_server(
    file: &ServerFile,
    path: &str,
    members: &[ServerMember<'_>],
    needed: &[ServerMember<'_>],
) -> CompiledServer {
    let mut primitives: Vec<snapshot::Primitive> =
        members.iter().chain(needed).map(|member| compile_primitive(member.spec)).collect();
    primitives.sort_by(|a, b| (&a.id, &a.version).cmp(&(&b.id, &b.version)));
    primitives.dedup_by(|a, b| a.id == b.id && a.version == b.version);
    let listings = members.iter().map(|member| exposed_names(file, member)).collect();
    let mut server = snapshot::Server {
        name: file.name.clone(),
        title: file.title.clone().unwrap_or_else(|| file.name.clone()),
        description: file.description.clone().unwrap_or_default(),
        version: file.version.clone().unwrap_or_else(|| "0.0.0".to_owned()),
        instructions: file.instructions.clone().unwrap_or_default(),
        listings,
        a2a_card: String::new(),
        updated_unix_ms: 0,
        undiscovered: !file.discovery,
        pool: file.pool.clone().unwrap_or_default(),
        a2a_router: file.a2a.router.as_deref().map(other_primitive),
        a2a_filler: file.a2a.filler.as_deref().map(other_primitive),
    };
    let mut agent_card = String::new();
    if file.protocols.contains(&Protocol::A2a) {
        let card = card::card(file, &server);
        agent_card = card::with_skills(&card, &server, &primitives);
        server.a2a_card = card.to_string();
    }
    let edge = edge_server(file);
    let mut offered_to = file.offered_to.clone();
    offered_to.sort_unstable();
    let content_hash = content_hash((&edge, &server), &primitives, &offered_to);
    let mut files = BTreeSet::from([path.to_string()]);
    for member in members.iter().chain(needed) {
        files.insert(member.file.to_string());
        files.extend(member.spec.schema_file.clone());
    }
    let files = files.into_iter().collect();
    CompiledServer { edge, server, primitives, offered_to, agent_card, content_hash, files }
}

/// Returns the exposed names of a member, "" where it is not exposed.
pub(crate) fn exposed_names(file: &ServerFile, member: &ServerMember<'_>) -> snapshot::Listing {
    let spec = member.spec;
    let speaks = |protocol| file.protocols.contains(&protocol) && spec.kind.is_exposable();
    let mut listing =
        snapshot::Listing { id: spec.id.clone(), version: spec.version.clone(), ..Default::default() };
    listing.pool = member.pool.unwrap_or_default().to_string();
    if speaks(Protocol::Mcp) && mcp_enabled(spec) {
        listing.mcp_name = match spec.kind {
            Kind::Resource => spec.schema.uri.clone().unwrap_or_default(),
            Kind::ResourceTemplate => spec.schema.uri_template.clone().unwrap_or_default(),
            _ => member.alias.unwrap_or_else(|| mcp::name(spec)).to_string(),
        };
    }
    let skill = spec.exposure.a2a.skill.as_ref();
    let is_skill = skill.is_none_or(|skill| skill.enabled) && !file.a2a.include(spec);
    if speaks(Protocol::A2a) && spec.kind.is_tool() && is_skill {
        let own = skill.and_then(|skill| skill.id.as_deref()).unwrap_or(&spec.id);
        listing.a2a_skill = member.alias.unwrap_or(own).to_string();
    }
    let operation = spec.exposure.rest.operation.as_ref();
    if speaks(Protocol::Rest) && spec.kind.is_tool() && enabled(operation) {
        let own = operation.and_then(|operation| operation.name.as_deref()).unwrap_or(&spec.id);
        listing.rest_name = member.alias.unwrap_or(own).to_string();
    }
    listing
}

fn mcp_enabled(spec: &Spec) -> bool {
    enabled(match spec.kind {
        Kind::Resource | Kind::ResourceTemplate => spec.exposure.mcp.resource.as_ref(),
        Kind::Prompt => spec.exposure.mcp.prompt.as_ref(),
        _ => spec.exposure.mcp.tool.as_ref(),
    })
}

fn enabled(exposed: Option<&ExposureSettings>) -> bool {
    exposed.is_none_or(|exposed| exposed.enabled)
}

fn edge_server(file: &ServerFile) -> snapshot::EdgeServer {
    let protocols = file.protocols.iter().map(|protocol| protocol.wire().into()).collect();
    let sessions = match file.sessions {
        Sessions::Stateful => snapshot::Sessions::Stateful,
        Sessions::Stateless => snapshot::Sessions::Stateless,
        Sessions::Both => snapshot::Sessions::Both,
    };
    snapshot::EdgeServer {
        name: file.name.clone(),
        protocols,
        default_allow: file.default_exposure == DefaultExposure::Allow,
        origins: file.origins.iter().map(|origin| origin.to_ascii_lowercase()).collect(),
        hosts: file.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        schemes: file.auth.schemes.iter().map(|scheme| wire_scheme(*scheme).into()).collect(),
        issuers: file.auth.issuers.clone(),
        audiences: file.auth.audiences.clone(),
        scopes: file.auth.scopes.clone(),
        max_body_bytes: file.max_body_bytes.unwrap_or(0),
        sessions: sessions.into(),
    }
}

/// Returns the SHA-256, in lower-case hex, of the encoded messages (each after its length) and the orgs that the server
/// is offered to.
pub(crate) fn content_hash(
    (edge, server): (&snapshot::EdgeServer, &snapshot::Server),
    primitives: &[snapshot::Primitive],
    offered_to: &[String],
) -> String {
    let mut hash = Sha256::new();
    hash.update(edge.encode_length_delimited_to_vec());
    hash.update(server.encode_length_delimited_to_vec());
    for primitive in primitives {
        hash.update(primitive.encode_length_delimited_to_vec());
    }
    for org in offered_to {
        hash.update([0]);
        hash.update(org);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
