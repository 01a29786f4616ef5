//! The order of the judgement (ADR 4): path and server, repeated headers, Host, Origin, token, home region, exposure,
//! scopes, coarse limits, body, route and affinity.
//!
//! Each rule is a module of its own; this file only says what comes after what, and a step that refuses ends
//! the judgement.

use std::sync::Arc;

use crate::affinity;
use crate::caller::Caller;
use crate::coarse::{Buckets, Stage, Subject};
use crate::cors;
use crate::envelope::{self, Batches, EnvelopeKind};
use crate::headers::Headers;
use crate::machine;
use crate::modern;
use crate::origin::Hosts;
use crate::path::{self, Face, Target};
use crate::reason::{Era, Reason};
use crate::region::{self, Home};
use crate::reply::{Reply, Voice, challenge};
use crate::server::{self, Server};
use crate::snapshot::Snapshot;
use crate::token::{self, LEEWAY_SECONDS, Offered, Refused, Tokens};
use crate::trace::Trace;
use crate::verdict::{Admitted, Changes, Env, Forward, Pending, Role, Step, Verdict};
use crate::{rest, route};

/// Largest body of a request to a root path, or to what needs no caller: forms at most are read there.
const PUBLIC_MAX_BODY_BYTES: usize = 64 * 1024;

/// One request under judgement.
pub(crate) struct Judgement<'a> {
    pub(crate) role: Role,
    /// Verified tokens and coarse buckets outlive the request.
    pub(crate) tokens: &'a Tokens,
    pub(crate) buckets: &'a Buckets,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) env: &'a Env,
}

impl Judgement<'_> {
    pub(crate) fn headers(&self, headers: &Headers<'_>, end_of_stream: bool) -> Result<Step, Reply> {
        let target = path::parse(headers.path);
        let mut voice = voice(target.as_ref(), headers, self.env.trace);
        if self.snapshot.is_boot() {
            return Err(voice.refuse(Reason::UpstreamUnavailable));
        }
        let target = target.ok_or_else(|| voice.refuse(Reason::UnknownServer))?;
        if target.server.is_empty() {
            return root(&target, &self.snapshot.root_hosts(), headers, voice);
        }
        let server = self.snapshot.server(target.server).filter(|server| server.has(target.face));
        let server = server.ok_or_else(|| voice.refuse(Reason::UnknownServer))?;
        check_caller_headers(&target, server, headers, &mut voice)?;
        let max_body = match target.face {
            Face::Public => server.max_body.min(PUBLIC_MAX_BODY_BYTES),
            _ => server.max_body,
        };
        let mut admitted = admitted(&target, &voice, max_body);
        if target.face != Face::Public {
            self.identify(server, headers, &voice, &mut admitted)?;
            if let Some(cluster) = self.passed_on(headers, &voice, &admitted)? {
                return Ok(Step::Decided(pass_on(headers, admitted, cluster)));
            }
            if !admitted.unjudged {
                self.check_access(server, admitted.face, admitted.caller.as_deref(), &voice)?;
            }
        }
        self.charge(&admitted, Stage::Every, None, &voice)?;
        if declared_length(headers).is_some_and(|length| length > max_body as u64) {
            return Err(voice.refuse(Reason::BodyTooLarge));
        }
        let changes = self.changes(&target, headers, admitted.caller.as_deref());
        if !target.jsonrpc || headers.method != b"POST" {
            let (method, name) = rest::named(&target, headers);
            let cluster = self.route(&admitted, method, name);
            return Ok(Step::Decided(forward(admitted, changes, cluster)));
        }
        if !is_json(headers.content_type) {
            return Err(voice.refuse(Reason::InvalidRequest));
        }
        if self.role == Role::Filter && admitted.era == Era::Modern {
            let (method, name) = modern::mirrored(headers);
            self.charge(&admitted, Stage::Named, name.as_deref(), &voice)?;
            let cluster = self.route(&admitted, method.as_deref(), name.as_deref());
            return Ok(Step::Decided(forward(admitted, changes, cluster)));
        }
        let batches = batches(&target, headers);
        let pending = Pending { max_body, admitted, voice, changes, batches };
        match end_of_stream {
            true => self.body(pending, b"").map(Step::Decided),
            false => Ok(Step::NeedBody(Box::new(pending))),
        }
    }

    pub(crate) fn body(&self, pending: Pending, body: &[u8]) -> Result<Verdict, Reply> {
        let Pending { max_body, mut admitted, voice, changes, batches } = pending;
        if body.len() > max_body {
            return Err(voice.refuse(Reason::BodyTooLarge));
        }
        let envelope = envelope::scan(body, batches).map_err(|reason| voice.refuse(reason))?;
        if admitted.face == Face::Mcp && envelope.meta_version.is_some() {
            admitted.era = Era::Modern;
        }
        // The first message was charged with the headers, the other messages of a batch are charged here.
        for _ in 1..envelope.batch.len() {
            self.charge(&admitted, Stage::Every, None, &voice)?;
        }
        for message in envelope.batch.iter().chain([&envelope]) {
            self.charge(&admitted, Stage::Named, message.name.as_deref(), &voice)?;
        }
        let method = match envelope.kind {
            EnvelopeKind::Request | EnvelopeKind::Notification => Some(envelope.method.as_str()),
            EnvelopeKind::Response | EnvelopeKind::Batch(_) => None,
        };
        let cluster = self.route(&admitted, method, envelope.name.as_deref());
        admitted.envelope = Some(envelope);
        Ok(forward(admitted, changes, cluster))
    }

    /// Who is calling.
    fn identify(
        &self,
        server: &Server,
        headers: &Headers<'_>,
        voice: &Voice,
        admitted: &mut Admitted,
    ) -> Result<(), Reply> {
        let challenged = |reason: Reason| self.challenged(server, voice, reason);
        let accepts = server.accepts;
        match token::offered(headers.authorization) {
            // Nobody else is shown one.
            Offered::Bearer(key) if machine::is_key(key) && accepts.psk => admitted.unjudged = true,
            Offered::Bearer(key) if machine::is_key(key) && !accepts.nothing => {
                return Err(challenged(Reason::TokenInvalid));
            }
            Offered::Bearer(token) if accepts.jwt && (!accepts.opaque || token::looks_like_jwt(token)) => {
                match self.tokens.judge(self.snapshot.trust(server), token, self.env.now_ms / 1000) {
                    Ok(caller) => admitted.caller = Some(caller),
                    Err(Refused { unknown_key_of: Some(issuer), .. }) if server.issuers.contains(&issuer) => {
                        admitted.unjudged = true;
                        admitted.unknown_key_of = Some(issuer);
                    }
                    Err(Refused { reason: reason @ Reason::UpstreamUnavailable, .. }) => {
                        return Err(voice.refuse(reason));
                    }
                    Err(refused) => {
                        return Err(Reply { cause: refused.cause, ..challenged(refused.reason) });
                    }
                }
            }
            Offered::Bearer(_) if accepts.opaque => admitted.unjudged = true,
            _ if accepts.elsewhere => admitted.unjudged = true,
            _ if accepts.nothing => {}
            Offered::Bearer(_) => return Err(challenged(Reason::TokenInvalid)),
            Offered::Nothing | Offered::Other => return Err(challenged(Reason::TokenMissing)),
        }
        Ok(())
    }

    /// Where a request goes whose org is at home in another region: the cluster that leads there. Whoever cannot pass it on
    /// refuses it: a gateway, and the edge of a region that it was passed on to by mistake.
    fn passed_on(
        &self,
        headers: &Headers<'_>,
        voice: &Voice,
        admitted: &Admitted,
    ) -> Result<Option<&Home>, Reply> {
        let Some(home) = self.elsewhere(admitted.caller.as_deref()) else { return Ok(None) };
        let may_pass_on = self.role == Role::Filter && headers.home_region.is_none();
        match home {
            Home::There { .. } if may_pass_on => Ok(Some(home)),
            _ => Err(not_here(home, voice)),
        }
    }

    fn elsewhere(&self, caller: Option<&Caller>) -> Option<&Home> {
        caller.and_then(|caller| self.snapshot.homes().elsewhere(&caller.org))
    }

    /// Exposure and scopes: may they see this server.
    fn check_access(
        &self,
        server: &Server,
        face: Face,
        caller: Option<&Caller>,
        voice: &Voice,
    ) -> Result<(), Reply> {
        let org = caller.map(|caller| caller.org.as_str()).unwrap_or_default();
        let exposed =
            server::protocol(face).is_none_or(|protocol| self.snapshot.exposed(&server.name, org, protocol));
        if !exposed {
            return Err(voice.refuse(Reason::UnknownServer));
        }
        let lacks = |caller: &Caller| !server.scopes.iter().all(|scope| caller.scopes.contains(scope));
        if caller.is_some_and(lacks) {
            return Err(self.challenged(server, voice, Reason::InsufficientScope));
        }
        Ok(())
    }

    fn challenged(&self, server: &Server, voice: &Voice, reason: Reason) -> Reply {
        let value = challenge(reason, self.snapshot.public_url(), &server.name, &server.scopes);
        voice.refuse_with(reason, "www-authenticate", value)
    }

    /// Goes on with a request that was passed on unjudged, for the caller that the gateway has found.
    pub(crate) fn found(&self, admitted: Admitted, caller: Arc<Caller>) -> Result<Admitted, Reply> {
        let voice = voice_of(&admitted);
        let server = self.snapshot.server(&admitted.server);
        let server = server.ok_or_else(|| voice.refuse(Reason::UnknownServer))?;
        let now = self.env.now_ms / 1000;
        let fault = match () {
            () if !server.takes_from(&caller.issuer) => Some(Reason::TokenInvalid),
            () if caller.expires_at.saturating_add(LEEWAY_SECONDS) <= now => Some(Reason::TokenExpired),
            () if self.snapshot.revoked(&caller) => Some(Reason::TokenRevoked),
            () => None,
        };
        if let Some(reason) = fault {
            return Err(self.challenged(server, &voice, reason));
        }
        if !self.snapshot.accepts_tokens() {
            return Err(voice.refuse(Reason::UpstreamUnavailable));
        }
        if let Some(home) = self.elsewhere(Some(&caller)) {
            return Err(not_here(home, &voice));
        }
        self.check_access(server, admitted.face, Some(&caller), &voice)?;
        Ok(Admitted { caller: Some(caller), unjudged: false, unknown_key_of: None, ..admitted })
    }

    /// Refuses a request that was passed on unjudged, and whose caller nobody could find.
    pub(crate) fn unproved(&self, admitted: &Admitted, reason: Reason) -> Reply {
        let voice = voice_of(admitted);
        match self.snapshot.server(&admitted.server) {
            Some(server) => self.challenged(server, &voice, reason),
            None => voice.refuse(Reason::UnknownServer),
        }
    }

    /// Takes one request from the coarse limits.
    fn charge(
        &self,
        admitted: &Admitted,
        stage: Stage,
        primitive: Option<&str>,
        voice: &Voice,
    ) -> Result<(), Reply> {
        if self.role == Role::Gateway || admitted.face == Face::Public {
            return Ok(());
        }
        let caller = admitted.caller.as_deref();
        let subject = Subject {
            server: &admitted.server,
            org: caller.map(|caller| caller.org.as_str()).unwrap_or_default(),
            issuer: caller.map(|caller| caller.issuer.as_str()).unwrap_or_default(),
            user: caller.map(|caller| caller.user.as_str()).unwrap_or_default(),
            wcit: caller.map(|caller| caller.wcit.as_str()).unwrap_or_default(),
            primitive,
        };
        let taken = self.buckets.take(self.snapshot.limits(), &subject, stage, self.env.now_ms);
        taken.map_err(|seconds| voice.refuse_with(Reason::RateLimited, "retry-after", seconds.to_string()))
    }

    fn changes(&self, target: &Target<'_>, headers: &Headers<'_>, caller: Option<&Caller>) -> Changes {
        let mut changes = Changes { remove: headers.internal.clone(), set: Vec::new() };
        if self.role == Role::Filter && target.face == Face::Mcp {
            let key = affinity::key(headers.session_id, headers.affinity_cookie, self.env.random);
            changes.set.push((affinity::HEADER, key));
        }
        if self.role == Role::Filter && target.face == Face::Rest {
            let key = affinity::of_call(caller, headers.path);
            changes.set.extend(key.map(|key| (affinity::HEADER, key)));
        }
        changes
    }

    fn route(&self, admitted: &Admitted, method: Option<&str>, primitive: Option<&str>) -> Option<&str> {
        let routed = self.role == Role::Filter && admitted.face != Face::Public;
        routed.then(|| self.snapshot.routes().find(&admitted.server, method, primitive)).flatten()
    }
}

fn forward(admitted: Admitted, mut changes: Changes, cluster: Option<&str>) -> Verdict {
    changes.set.extend(cluster.map(|cluster| (route::HEADER, cluster.to_owned())));
    Verdict::Forward(Box::new(Forward {
        remove: changes.remove,
        set: changes.set,
        clear_route: cluster.is_some(),
        admitted,
    }))
}

/// To another region, which judges the request as if it had come there first: nothing of this one goes along.
fn pass_on(headers: &Headers<'_>, admitted: Admitted, home: &Home) -> Verdict {
    let set = match home {
        Home::There { region, cluster } => {
            vec![(region::HEADER, cluster.to_string()), (region::HOME_HEADER, region.to_string())]
        }
        Home::Here | Home::Unknown { .. } => Vec::new(),
    };
    Verdict::Forward(Box::new(Forward {
        remove: headers.internal.clone(),
        clear_route: !set.is_empty(),
        set,
        admitted,
    }))
}

/// The refusal of a request whose org is at home elsewhere.
fn not_here(home: &Home, voice: &Voice) -> Reply {
    match home {
        Home::There { region, .. } => {
            voice.refuse_with(Reason::WrongRegion, region::HOME_HEADER, region.to_string())
        }
        Home::Unknown { region } => {
            voice.refuse_with(Reason::UnknownRegion, region::HOME_HEADER, region.to_string())
        }
        Home::Here => voice.refuse(Reason::Internal),
    }
}

/// How refusals of this request look.
fn voice(target: Option<&Target<'_>>, headers: &Headers<'_>, trace: Trace) -> Voice {
    let face = target.map(|target| target.face);
    let jsonrpc = match face {
        Some(face) => matches!(face, Face::Mcp | Face::A2a),
        None => path::looks_like_jsonrpc(headers.path),
    };
    let era = match face {
        Some(Face::Mcp) => modern::era(headers.protocol_version),
        _ => Era::Legacy,
    };
    Voice { jsonrpc, era, origin: None, trace }
}

/// How refusals of a request look that was let through before.
fn voice_of(admitted: &Admitted) -> Voice {
    Voice {
        jsonrpc: matches!(admitted.face, Face::Mcp | Face::A2a),
        era: admitted.era,
        origin: admitted.origin.clone(),
        trace: admitted.trace,
    }
}

/// Repeated headers, Host and Origin; answers a preflight. From here on refusals are readable for the Origin.
fn check_caller_headers(
    target: &Target<'_>,
    server: &Server,
    headers: &Headers<'_>,
    voice: &mut Voice,
) -> Result<(), Reply> {
    if headers.repeated {
        return Err(voice.refuse(Reason::InvalidRequest));
    }
    if !server.hosts.allow(headers.host) {
        return Err(voice.refuse(Reason::HostDenied));
    }
    // Public documents are readable from everywhere.
    let allowed = |origin: &[u8]| target.face == Face::Public || server.origins.allow(origin);
    if headers.origin.is_some_and(|origin| !allowed(origin)) {
        return Err(voice.refuse(Reason::OriginDenied));
    }
    voice.origin = headers.origin.and_then(text);
    preflight(headers, voice.origin.as_deref()).map_or(Ok(()), Err)
}

/// Root documents and health: public, not any server's. `hosts` are the names under which a page may read documents.
fn root(target: &Target<'_>, hosts: &Hosts, headers: &Headers<'_>, mut voice: Voice) -> Result<Step, Reply> {
    if headers.repeated {
        return Err(voice.refuse(Reason::InvalidRequest));
    }
    // Every browser names a host.
    if target.face != Face::Health && headers.host.is_some() && !hosts.allow(headers.host) {
        return Err(voice.refuse(Reason::HostDenied));
    }
    voice.origin = headers.origin.and_then(text);
    preflight(headers, voice.origin.as_deref()).map_or(Ok(()), Err)?;
    if declared_length(headers).is_some_and(|length| length > PUBLIC_MAX_BODY_BYTES as u64) {
        return Err(voice.refuse(Reason::BodyTooLarge));
    }
    Ok(Step::Decided(Verdict::Forward(Box::new(Forward {
        remove: headers.internal.clone(),
        set: Vec::new(),
        clear_route: false,
        admitted: admitted(target, &voice, PUBLIC_MAX_BODY_BYTES),
    }))))
}

fn admitted(target: &Target<'_>, voice: &Voice, max_body: usize) -> Admitted {
    Admitted {
        face: target.face,
        server: target.server.to_owned(),
        caller: None,
        unjudged: false,
        unknown_key_of: None,
        era: voice.era,
        envelope: None,
        origin: voice.origin.clone(),
        max_body,
        trace: voice.trace,
    }
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

fn batches(target: &Target<'_>, headers: &Headers<'_>) -> Batches {
    match target.face == Face::Mcp && modern::may_batch(headers.protocol_version) {
        true => Batches::Accepted,
        false => Batches::Refused,
    }
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
