//! The request state machine: `on_headers → (on_body) → Verdict`.
//!
//! Owns the order of the judgement (design §7): path and server, repeated headers, Host, Origin, token,
//! exposure, scopes, coarse limits, body, route and affinity. Each step is a module of its own; this file
//! only says what comes after what, and a step that refuses ends the judgement.

use std::sync::Arc;

use crate::affinity;
use crate::coarse::{Buckets, Stage, Subject};
use crate::cors;
use crate::envelope::{self, Batches, Envelope, EnvelopeKind};
use crate::headers::Headers;
use crate::modern;
use crate::origin;
use crate::path::{self, Face, Target};
use crate::reason::{Era, Reason};
use crate::reply::{Reply, Voice, challenge};
use crate::route;
use crate::server::{self, Server};
use crate::snapshot::Snapshot;
use crate::token::{self, Caller, Offered, Tokens};

/// One header as the host gave it: lower-case name (pseudo-headers included: `:method`, `:path`,
/// `:authority`) and the raw value, which need not be UTF-8.
pub type Header = (String, Vec<u8>);

/// Where the judgement runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// In Envoy: coarse limits, affinity and routes; opaque schemes and modern bodies pass on unjudged.
    Filter,
    /// In the gateway: every body is scanned; no coarse limits, no affinity.
    Gateway,
}

/// What the host supplies for one request.
pub struct Env {
    /// Wall clock, Unix milliseconds.
    pub now_ms: u64,
    /// Eight fresh random bytes for a new affinity key.
    pub random: [u8; 8],
}

/// Keeps what outlives a request: verified tokens and coarse buckets, both bounded. Shared by threads.
pub struct Edge {
    role: Role,
    tokens: Tokens,
    buckets: Buckets,
}

/// What to do after the headers.
pub enum Step {
    Decided(Verdict),
    /// Buffer the body, at most `Pending::max_body` bytes, then call [`Edge::on_body`].
    NeedBody(Box<Pending>),
}

/// A request whose body is still to be scanned.
pub struct Pending {
    /// Largest accepted body in bytes; a longer one is refused with [`Edge::body_too_large`].
    pub max_body: usize,
    /// What the headers established.
    pub admitted: Admitted,
    voice: Voice,
    changes: Changes,
    batches: Batches,
}

pub enum Verdict {
    Forward(Box<Forward>),
    Reply(Reply),
}

/// Let the request through with these header changes.
pub struct Forward {
    /// Headers to remove, lower case (every `x-asp-*` of the client among them).
    pub remove: Vec<String>,
    /// Headers to set after the removal.
    pub set: Vec<(&'static str, String)>,
    /// Whether the route was chosen by a header in `set`, so that Envoy's route cache must be cleared.
    pub clear_route: bool,
    pub admitted: Admitted,
}

/// What the judgement established about a request it let through.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub face: Face,
    /// The server's name; empty for root paths.
    pub server: String,
    /// The caller, when a token was judged here; `None` for schemes the edge cannot judge and for `none`.
    pub caller: Option<Arc<Caller>>,
    /// The server wants a credential, and only the gateway can judge the one that came (opaque token,
    /// pre-shared key, client certificate). Exposure, scopes and revocation of its owner are unjudged too.
    pub unjudged: bool,
    pub era: Era,
    /// The scan of a JSON-RPC body, when it was read here.
    pub envelope: Option<Envelope>,
    /// The request's Origin, when it has one and it is allowed: the response needs [`cors::response_headers`].
    pub origin: Option<String>,
    /// Largest accepted request body in bytes, for faces whose body is not read here.
    pub max_body: usize,
}

/// Header changes collected on the way.
#[derive(Default)]
struct Changes {
    remove: Vec<String>,
    set: Vec<(&'static str, String)>,
}

/// Largest body of a request to a root path; those faces read none.
const ROOT_MAX_BODY_BYTES: usize = 64 * 1024;

impl Edge {
    pub fn new(role: Role) -> Edge {
        Edge { role, tokens: Tokens::default(), buckets: Buckets::default() }
    }

    /// Judges the headers.
    pub fn on_headers(&self, snapshot: &Snapshot, headers: &[Header], end_of_stream: bool, env: &Env) -> Step {
        let judged = self.judge_headers(snapshot, &Headers::read(headers), end_of_stream, env);
        judged.unwrap_or_else(|reply| Step::Decided(Verdict::Reply(reply)))
    }

    /// Judges the whole body of a request for which [`Edge::on_headers`] asked for it.
    pub fn on_body(&self, snapshot: &Snapshot, pending: Pending, body: &[u8], env: &Env) -> Verdict {
        self.judge_body(snapshot, pending, body, env).unwrap_or_else(Verdict::Reply)
    }

    /// The refusal of a body longer than `Pending::max_body`.
    pub fn body_too_large(&self, pending: &Pending) -> Reply {
        pending.voice.refuse(Reason::BodyTooLarge)
    }

    fn judge_headers(
        &self,
        snapshot: &Snapshot,
        headers: &Headers<'_>,
        end_of_stream: bool,
        env: &Env,
    ) -> Result<Step, Reply> {
        let target = path::parse(headers.path);
        let mut voice = voice(target.as_ref(), headers);
        if snapshot.is_boot() {
            return Err(voice.refuse(Reason::UpstreamUnavailable));
        }
        let target = target.ok_or_else(|| voice.refuse(Reason::UnknownServer))?;
        if target.server.is_empty() {
            return root(&target, headers, voice);
        }
        let server = snapshot.server(target.server).filter(|server| server.has(target.face));
        let server = server.ok_or_else(|| voice.refuse(Reason::UnknownServer))?;
        if headers.repeated {
            return Err(voice.refuse(Reason::InvalidRequest));
        }
        if !origin::host_allowed(&server.hosts, headers.host) {
            return Err(voice.refuse(Reason::HostDenied));
        }
        voice.origin = allowed_origin(&target, server, headers).map_err(|reason| voice.refuse(reason))?;
        if let Some(preflight) = preflight(headers, voice.origin.as_deref()) {
            return Err(preflight);
        }
        let mut admitted = admitted(&target, &voice, server.max_body);
        if target.face != Face::WellKnown {
            self.identify(snapshot, server, headers, &voice, env, &mut admitted)?;
        }
        self.charge(snapshot, &admitted, Stage::Every, None, env).map_err(|wait| too_many(&voice, wait))?;
        if declared_length(headers).is_some_and(|length| length > server.max_body as u64) {
            return Err(voice.refuse(Reason::BodyTooLarge));
        }
        let changes = self.changes(&target, headers, env);
        if !(target.jsonrpc && headers.method == b"POST") {
            return self.forward(snapshot, admitted, changes, None, None).map(Step::Decided);
        }
        if !is_json(headers.content_type) {
            return Err(voice.refuse(Reason::InvalidRequest));
        }
        if self.role == Role::Filter && admitted.era == Era::Modern {
            let (method, name) = modern::mirrored(headers);
            self.charge(snapshot, &admitted, Stage::Named, name.as_deref(), env)
                .map_err(|wait| too_many(&voice, wait))?;
            return self.forward(snapshot, admitted, changes, method.as_deref(), name.as_deref()).map(Step::Decided);
        }
        let batches = match target.face == Face::Mcp && modern::may_batch(headers.protocol_version) {
            true => Batches::Accepted,
            false => Batches::Refused,
        };
        let pending = Pending { max_body: server.max_body, admitted, voice, changes, batches };
        if end_of_stream {
            return self.judge_body(snapshot, pending, b"", env).map(Step::Decided);
        }
        Ok(Step::NeedBody(Box::new(pending)))
    }

    fn judge_body(&self, snapshot: &Snapshot, pending: Pending, body: &[u8], env: &Env) -> Result<Verdict, Reply> {
        let Pending { max_body, mut admitted, voice, changes, batches } = pending;
        if body.len() > max_body {
            return Err(voice.refuse(Reason::BodyTooLarge));
        }
        let envelope = envelope::scan(body, batches).map_err(|reason| voice.refuse(reason))?;
        if admitted.face == Face::Mcp && envelope.meta_version.is_some() {
            admitted.era = Era::Modern;
        }
        // The first message was charged with the headers, the other messages of a batch here.
        for _ in 1..envelope.batch.len() {
            self.charge(snapshot, &admitted, Stage::Every, None, env).map_err(|wait| too_many(&voice, wait))?;
        }
        for message in envelope.batch.iter().chain([&envelope]) {
            self.charge(snapshot, &admitted, Stage::Named, message.name.as_deref(), env)
                .map_err(|wait| too_many(&voice, wait))?;
        }
        let method = match envelope.kind {
            EnvelopeKind::Request | EnvelopeKind::Notification => Some(envelope.method.clone()),
            EnvelopeKind::Response | EnvelopeKind::Batch(_) => None,
        };
        let name = envelope.name.clone();
        admitted.envelope = Some(envelope);
        self.forward(snapshot, admitted, changes, method.as_deref(), name.as_deref())
    }

    /// Token, exposure and scopes: who is calling, and may they see this server.
    fn identify(
        &self,
        snapshot: &Snapshot,
        server: &Server,
        headers: &Headers<'_>,
        voice: &Voice,
        env: &Env,
        admitted: &mut Admitted,
    ) -> Result<(), Reply> {
        let challenged = |reason: Reason| {
            let value = challenge(reason, snapshot.public_url(), &server.name, &server.scopes);
            voice.refuse_with(reason, "www-authenticate", value)
        };
        let accepts = server.accepts;
        match token::offered(headers.authorization) {
            Offered::Bearer(token) if accepts.jwt && (!accepts.opaque || token::looks_like_jwt(token)) => {
                let judged = self.tokens.judge(snapshot, server, token, env.now_ms / 1000);
                admitted.caller = Some(judged.map_err(challenged)?);
            }
            Offered::Bearer(_) if accepts.opaque => admitted.unjudged = true,
            _ if accepts.elsewhere => admitted.unjudged = true,
            _ if accepts.nothing => {}
            Offered::Bearer(_) => return Err(challenged(Reason::TokenInvalid)),
            Offered::Nothing | Offered::Other => return Err(challenged(Reason::TokenMissing)),
        }
        if admitted.unjudged {
            return Ok(());
        }
        let org = admitted.caller.as_ref().map(|caller| caller.org.as_str()).unwrap_or_default();
        let exposed = server::protocol(admitted.face)
            .is_none_or(|protocol| snapshot.exposed(&server.name, org, protocol));
        if !exposed {
            return Err(voice.refuse(Reason::UnknownServer));
        }
        let lacks = |caller: &Arc<Caller>| !server.scopes.iter().all(|scope| caller.scopes.contains(scope));
        if admitted.caller.as_ref().is_some_and(lacks) {
            return Err(challenged(Reason::InsufficientScope));
        }
        Ok(())
    }

    /// Takes one request from the coarse limits; the error is the wait in seconds.
    fn charge(
        &self,
        snapshot: &Snapshot,
        admitted: &Admitted,
        stage: Stage,
        primitive: Option<&str>,
        env: &Env,
    ) -> Result<(), u64> {
        if self.role == Role::Gateway || admitted.face == Face::WellKnown {
            return Ok(());
        }
        let caller = admitted.caller.as_deref();
        let subject = Subject {
            server: &admitted.server,
            org: caller.map(|caller| caller.org.as_str()).unwrap_or_default(),
            user: caller.map(|caller| caller.user.as_str()).unwrap_or_default(),
            wcit: caller.map(|caller| caller.wcit.as_str()).unwrap_or_default(),
            primitive,
        };
        self.buckets.take(snapshot.limits(), &subject, stage, env.now_ms)
    }

    fn changes(&self, target: &Target<'_>, headers: &Headers<'_>, env: &Env) -> Changes {
        let mut changes = Changes { remove: headers.internal.clone(), set: Vec::new() };
        if self.role == Role::Filter && target.face == Face::Mcp {
            let key = affinity::key(headers.session_id, headers.affinity_cookie, env.random);
            changes.set.push((affinity::HEADER, key));
        }
        changes
    }

    fn forward(
        &self,
        snapshot: &Snapshot,
        admitted: Admitted,
        mut changes: Changes,
        method: Option<&str>,
        primitive: Option<&str>,
    ) -> Result<Verdict, Reply> {
        let routed = self.role == Role::Filter && admitted.face != Face::WellKnown;
        let cluster = match routed {
            true => snapshot.routes().find(&admitted.server, method, primitive),
            false => None,
        };
        let clear_route = cluster.is_some();
        changes.set.extend(cluster.map(|cluster| (route::HEADER, cluster.to_owned())));
        Ok(Verdict::Forward(Box::new(Forward {
            remove: changes.remove,
            set: changes.set,
            clear_route,
            admitted,
        })))
    }
}

fn voice(target: Option<&Target<'_>>, headers: &Headers<'_>) -> Voice {
    let face = target.map(|target| target.face);
    let jsonrpc = match face {
        Some(face) => matches!(face, Face::Mcp | Face::A2a),
        None => path::looks_like_jsonrpc(headers.path),
    };
    let era = match face {
        Some(Face::Mcp) => modern::era(headers.protocol_version),
        _ => Era::Legacy,
    };
    Voice { jsonrpc, era, origin: None }
}

/// Root documents and health: public, not any server's.
fn root(target: &Target<'_>, headers: &Headers<'_>, mut voice: Voice) -> Result<Step, Reply> {
    if headers.repeated {
        return Err(voice.refuse(Reason::InvalidRequest));
    }
    voice.origin = headers.origin.and_then(text);
    if let Some(preflight) = preflight(headers, voice.origin.as_deref()) {
        return Err(preflight);
    }
    if declared_length(headers).is_some_and(|length| length > ROOT_MAX_BODY_BYTES as u64) {
        return Err(voice.refuse(Reason::BodyTooLarge));
    }
    Ok(Step::Decided(Verdict::Forward(Box::new(Forward {
        remove: headers.internal.clone(),
        set: Vec::new(),
        clear_route: false,
        admitted: admitted(target, &voice, ROOT_MAX_BODY_BYTES),
    }))))
}

fn admitted(target: &Target<'_>, voice: &Voice, max_body: usize) -> Admitted {
    Admitted {
        face: target.face,
        server: target.server.to_owned(),
        caller: None,
        unjudged: false,
        era: voice.era,
        envelope: None,
        origin: voice.origin.clone(),
        max_body,
    }
}

/// The Origin to echo. Public documents are readable from everywhere.
fn allowed_origin(target: &Target<'_>, server: &Server, headers: &Headers<'_>) -> Result<Option<String>, Reason> {
    let Some(origin) = headers.origin else { return Ok(None) };
    if target.face == Face::WellKnown || server.origins.allow(origin) {
        return Ok(text(origin));
    }
    Err(Reason::OriginDenied)
}

/// A value that may be echoed in a response header.
fn text(value: &[u8]) -> Option<String> {
    let printable = !value.is_empty() && value.iter().all(u8::is_ascii_graphic);
    printable.then(|| String::from_utf8_lossy(value).into_owned())
}

fn preflight(headers: &Headers<'_>, origin: Option<&str>) -> Option<Reply> {
    let asked = headers.method == b"OPTIONS" && headers.preflight_method.is_some();
    origin.filter(|_| asked).map(|origin| cors::preflight(origin, headers.preflight_headers))
}

fn declared_length(headers: &Headers<'_>) -> Option<u64> {
    let digits = std::str::from_utf8(headers.content_length?).ok()?;
    // More digits than fit are more bytes than anybody accepts.
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// `application/json` with any parameters (RFC 9110 section 8.3.1).
fn is_json(content_type: Option<&[u8]>) -> bool {
    let media_type = content_type.and_then(|value| value.split(|byte| *byte == b';').next());
    media_type.is_some_and(|media_type| media_type.trim_ascii().eq_ignore_ascii_case(b"application/json"))
}

fn too_many(voice: &Voice, wait_seconds: u64) -> Reply {
    voice.refuse_with(Reason::RateLimited, "retry-after", wait_seconds.to_string())
}

#[cfg(test)]
mod tests;
