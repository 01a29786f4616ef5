//! Stages 1 to 4 of a call: the caller; the primitive behind a server's exposed name; whether this caller may call it over
//! this protocol (ADR 10); whether the caller's client has the abilities that it requires.
//!
//! Keeps true: the edge's code has evaluated the caller's token, and a request that it could not evaluate is never
//! trusted (I-1); list and call agree (I-10), because both use the same policy; a missing scope is different: the
//! primitive is listed and the call is answered with a challenge; missing abilities are reported before anything runs,
//! all of them at once (MCP 2026-07-28, MissingRequiredClientCapability).

use std::sync::Arc;

use asp_call::call::ClientAbilities;
use asp_call::call::outcome::Refusal;
use asp_edge::{Caller, Reason, RequestFacts};
use asp_proto::snapshot::{AuthScheme, Primitive, Protocol};
use asp_snapshot::policy::{Evaluation, Ruling, RulingReason, in_words};
use asp_snapshot::protocol::protocol_name;
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};
use serde_json::{Map, Value};

/// Decision of the stage on a call that may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// Whether a human must approve before execution.
    pub needs_approval: bool,
}

/// Part that is hidden from a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenPart {
    /// The whole server, over this protocol.
    Server,
    Primitive,
}

/// Visibility of one server to one caller over one protocol: the caller is matched to the policy once, for any number
/// of primitives.
pub struct ServerView<'a> {
    /// `None` if the server itself is hidden.
    policy: Option<Evaluation<'a>>,
}

impl ServerView<'_> {
    pub fn of<'a>(
        snapshot: &'a Snapshot,
        server: &VirtualServer,
        caller: &Caller,
        protocol: Protocol,
    ) -> ServerView<'a> {
        let is_exposed = exposed(snapshot, server, caller, protocol);
        ServerView { policy: is_exposed.then(|| snapshot.policy.evaluation(caller, protocol)) }
    }

    /// Returns which entries of its org's policy match the caller: callers of one org with the same matches see the
    /// same of a server. `None` if the server itself is hidden.
    pub fn targets(&self) -> Option<Vec<usize>> {
        self.policy.as_ref().map(Evaluation::targets)
    }

    /// Whether the server itself is hidden.
    pub fn is_hidden(&self) -> bool {
        self.policy.is_none()
    }

    /// Whether the caller can see `entry`.
    pub fn shows(&mut self, entry: &ListedPrimitive) -> bool {
        self.hidden(entry).is_none()
    }

    /// Returns the part of `entry` that is hidden; `None` if it is visible.
    pub fn hidden(&mut self, entry: &ListedPrimitive) -> Option<HiddenPart> {
        let Some(policy) = &mut self.policy else { return Some(HiddenPart::Server) };
        matches!(policy.rule(&entry.primitive), Ruling::Denied(_)).then_some(HiddenPart::Primitive)
    }
}

/// Decides on a call.
pub fn entitle(
    snapshot: &Snapshot,
    server: &VirtualServer,
    caller: &Caller,
    entry: &ListedPrimitive,
    protocol: Protocol,
) -> Result<Entitlement, Refusal> {
    if !exposed(snapshot, server, caller, protocol) {
        return Err(Refusal::Unknown);
    }
    let needs_approval = match snapshot.policy.rule(caller, &entry.primitive, protocol) {
        Ruling::Denied(_) => return Err(Refusal::Unknown),
        Ruling::Allowed(_) => false,
        Ruling::NeedsApproval => true,
    };
    check_scopes(caller, entry)?;
    Ok(Entitlement { needs_approval })
}

/// Returns the exposure or binding that hides an entry from a caller, in words for the audit; `None` if none does.
pub fn denial(
    snapshot: &Snapshot,
    server: &VirtualServer,
    caller: &Caller,
    entry: &ListedPrimitive,
    protocol: Protocol,
) -> Option<String> {
    let name = &server.message.name;
    if !server.speaks(protocol) {
        return Some(format!("server {name}: not served over {}", protocol_name(protocol)));
    }
    if !exposed(snapshot, server, caller, protocol) {
        return Some(format!("exposure {name} {}: off for {}", protocol_name(protocol), caller.org));
    }
    match snapshot.policy.rule(caller, &entry.primitive, protocol) {
        Ruling::Denied(RulingReason::Binding(binding)) => Some(in_words(&binding)),
        Ruling::Denied(RulingReason::Default) | Ruling::Allowed(_) | Ruling::NeedsApproval => None,
    }
}

/// Refuses a caller without the scopes of a primitive.
pub fn check_scopes(caller: &Caller, entry: &ListedPrimitive) -> Result<(), Refusal> {
    let missing = entry.primitive.scopes.iter().any(|scope| !caller.scopes.contains(scope));
    if missing {
        // All scopes of the operation in one challenge, so that one step-up is enough.
        return Err(Refusal::MissingScopes { required: entry.primitive.scopes.clone() });
    }
    Ok(())
}

fn exposed(snapshot: &Snapshot, server: &VirtualServer, caller: &Caller, protocol: Protocol) -> bool {
    server.speaks(protocol) && snapshot.edge.exposed(&server.message.name, &caller.org, protocol)
}

/// The name of a primitive in a protocol.
#[derive(Clone, Copy, Debug)]
pub enum CallTarget<'a> {
    Tool(&'a str),
    Prompt(&'a str),
    /// A URI: exact, or matched by a template.
    Resource(&'a str),
}

/// Returns the primitive behind `target` and the variables of a matched URI template.
pub fn resolve(
    server: &VirtualServer,
    target: CallTarget<'_>,
) -> Result<(Arc<ListedPrimitive>, Map<String, Value>), Refusal> {
    let plain = |entry: Option<&Arc<ListedPrimitive>>| entry.map(|entry| (entry.clone(), Map::new()));
    match target {
        CallTarget::Tool(name) => plain(server.tool(name)),
        CallTarget::Prompt(name) => plain(server.prompt(name)),
        CallTarget::Resource(uri) => server.resource(uri),
    }
    .ok_or(Refusal::Unknown)
}

/// Refuses a call that is certain to need an ability that its client lacks.
pub fn check_abilities(
    snapshot: &Snapshot,
    primitive: &Primitive,
    abilities: ClientAbilities,
) -> Result<(), Refusal> {
    let delegates = primitive.delegations.iter().filter_map(|id| snapshot.dependencies.get(id));
    let mut required: Vec<String> = delegates
        .map(|delegate| &delegate.entry.primitive)
        .filter(|delegate| delegate.client_only)
        .map(|delegate| match (delegate.asks_roots, delegate.sampling_tools) {
            (true, _) => ("roots", abilities.roots),
            (false, true) => ("sampling.tools", abilities.sampling && abilities.sampling_tools),
            (false, false) => ("sampling", abilities.sampling),
        })
        .filter(|(_, can)| !can)
        .map(|(name, _)| name.to_owned())
        .collect();
    if primitive.elicitation_required {
        let asked = primitive.elicitations.iter().filter_map(|id| snapshot.dependencies.get(id));
        let needed = asked.map(|asked| match asked.question.contains_key("url") {
            true => ("elicitation.url", abilities.pages),
            false => ("elicitation.form", abilities.elicitation),
        });
        required.extend(needed.filter(|(_, can)| !can).map(|(name, _)| name.to_owned()));
    }
    if primitive.task_required && !abilities.tasks {
        required.push("tasks".into());
    }
    required.sort_unstable();
    required.dedup();
    if required.is_empty() { Ok(()) } else { Err(Refusal::MissingCapabilities { required }) }
}

/// Credential of a machine.
#[derive(Clone, Copy)]
pub enum MachineCredential<'a> {
    /// A key, sent as a bearer credential.
    Key(&'a str),
    /// A certificate that the client presented to an Envoy of the platform.
    Certificate {
        /// SHA-256 of its DER.
        fingerprint: [u8; 32],
        /// Its only URI.
        uri: Option<&'a str>,
        all_uris: &'a [String],
    },
}

/// Returns the machine of a credential, if the server accepts credentials of its scheme. The edge's code has yet to
/// evaluate the machine as the caller of the request ([`asp_edge::Edge::admit`]).
pub fn machine(
    snapshot: &Snapshot,
    server: &VirtualServer,
    credential: MachineCredential<'_>,
) -> Option<Caller> {
    match credential {
        MachineCredential::Key(key) if server.accepts(AuthScheme::Psk) => snapshot.machines.caller(key),
        MachineCredential::Certificate { fingerprint, uri, all_uris } if server.accepts(AuthScheme::Mtls) => {
            snapshot.machines.caller_with(fingerprint, uri, all_uris)
        }
        MachineCredential::Key(_) | MachineCredential::Certificate { .. } => None,
    }
}

/// Returns the caller of an admitted request, or the reason for a 401.
pub fn identify(admitted: &RequestFacts, server: &VirtualServer) -> Result<Arc<Caller>, Reason> {
    if let Some(caller) = &admitted.caller {
        return Ok(caller.clone());
    }
    if !admitted.unverified && server.accepts(AuthScheme::None) {
        return Ok(Arc::new(anonymous()));
    }
    // An opaque token, or a machine's key or certificate, identified no caller (`http::proof`).
    Err(Reason::TokenInvalid)
}

/// Returns the caller of a server whose scheme is `none` (development only), who has no org and so no policy.
pub fn anonymous() -> Caller {
    Caller {
        org: String::new(),
        user: "anonymous".into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: String::new(),
        wcit: String::new(),
        digest: [0; 32],
        issuer: String::new(),
        issued_at: 0,
        expires_at: u64::MAX,
    }
}
