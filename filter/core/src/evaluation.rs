//! The order of the evaluation (ADR 4): path and server, repeated headers, Host, Origin, token, home region, exposure,
//! scopes, coarse limits, body, route and affinity.
//!
//! Owns the interface to its hosts, `on_headers → (on_body) → Verdict`, and the state that outlives a request. Each rule is
//! in a module of its own; this file only sets their order. The first step that refuses ends the evaluation. Inputs and
//! outputs are in `verdict`.

use std::sync::Arc;

use crate::affinity;
use crate::caller::Caller;
use crate::coarse::{Buckets, LimitSubject, Stage};
use crate::envelope::{self, EnvelopeKind};
use crate::headers::Headers;
use crate::machine;
use crate::path::{self, PathKind, RequestTarget};
use crate::reason::{Era, Reason};
use crate::reply::{ErrorForm, ErrorFormat, Reply, challenge};
use crate::revocation::RevocationNotice;
use crate::server::{self, Server};
use crate::snapshot::Snapshot;
use crate::token::{self, Hashing, LEEWAY_SECONDS, RequestCredential, TokenRefusal, Tokens};
use crate::trace::Trace;
use crate::unauthenticated::{CredentialAttempt, Network, UnauthenticatedKind, UnauthenticatedLimits};
use crate::verdict::{
    BodyContent, EdgeRole, Env, Forward, HeaderChanges, PendingBody, RequestFacts, Step, Verdict,
};
use crate::{grpc, modern, rest, route};

mod home_region;
mod host_origin;
mod unauthenticated;

use home_region::{forward_to_home, refuse_foreign_org};
use host_origin::{PUBLIC_MAX_BODY_BYTES, check_caller_headers, root};

/// State that outlives a request: verified tokens, and the buckets of limits, all bounded. Threads may share it.
pub struct Edge {
    role: EdgeRole,
    tokens: Tokens,
    buckets: Buckets,
    unauthenticated: UnauthenticatedLimits,
}

impl Edge {
    pub fn new(role: EdgeRole) -> Edge {
        let hashing = match role {
            EdgeRole::Filter => Hashing::WhenAsked,
            // The gateway evaluates running calls again, after further revocations.
            EdgeRole::Gateway => Hashing::Always,
        };
        Edge {
            role,
            tokens: Tokens::new(hashing),
            buckets: Buckets::default(),
            unauthenticated: UnauthenticatedLimits::default(),
        }
    }

    /// Evaluates the headers: the name (see [`crate::Header`]) and value of each, owned or borrowed.
    pub fn on_headers<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        headers: &[(N, V)],
        end_of_stream: bool,
        env: &Env,
    ) -> Step {
        self.on_headers_from(&nobody, snapshot, headers, end_of_stream, env)
    }

    /// Does the same as [`Edge::on_headers`], and limits requests without a valid credential from the network that `network`
    /// returns; `None` limits nobody.
    pub fn on_headers_from<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        network: &dyn Fn() -> Option<Network>,
        snapshot: &Snapshot,
        headers: &[(N, V)],
        end_of_stream: bool,
        env: &Env,
    ) -> Step {
        let evaluation = Evaluation { edge: self, snapshot, env, network };
        let judged = evaluation.headers(&Headers::read(headers), end_of_stream);
        judged.unwrap_or_else(|reply| Step::Decided(Verdict::Reply(reply)))
    }

    /// Settles a request that was forwarded with [`RequestFacts::attempt`]: by the status of its response, and by
    /// `grpc-status` if the response's headers have it.
    pub fn settle(&self, attempt: &CredentialAttempt, status: &[u8], grpc_status: Option<&[u8]>) {
        self.unauthenticated.settle(attempt, status, grpc_status);
    }

    /// Evaluates the whole body of a request for which [`Edge::on_headers`] asked for it.
    pub fn on_body(&self, snapshot: &Snapshot, pending: PendingBody, body: &[u8], env: &Env) -> Verdict {
        let judged = Evaluation { edge: self, snapshot, env, network: &nobody }.body(pending, body);
        judged.unwrap_or_else(Verdict::Reply)
    }

    /// Continues a request that was forwarded unverified ([`crate::RequestFacts::unverified`]) with the caller that the
    /// gateway found: checks revocation, time, exposure and scopes as for a token that is evaluated here.
    pub fn admit(
        &self,
        snapshot: &Snapshot,
        admitted: RequestFacts,
        caller: Arc<Caller>,
        env: &Env,
    ) -> Result<RequestFacts, Reply> {
        Evaluation { edge: self, snapshot, env, network: &nobody }.admit(admitted, caller)
    }

    /// Returns the refusal of a request that was forwarded unverified and for which no caller was found; `reason` says
    /// whether it carried a credential ([`Reason::TokenInvalid`]) or none ([`Reason::TokenMissing`]).
    pub fn unproved(&self, snapshot: &Snapshot, admitted: &RequestFacts, reason: Reason, env: &Env) -> Reply {
        Evaluation { edge: self, snapshot, env, network: &nobody }.unproved(admitted, reason)
    }

    /// Returns the refusal of a body longer than `PendingBody::max_body`.
    pub fn body_too_large(&self, pending: &PendingBody) -> Reply {
        pending.errors.refuse(Reason::BodyTooLarge)
    }
}

/// Evaluation of one request.
struct Evaluation<'a> {
    edge: &'a Edge,
    snapshot: &'a Snapshot,
    env: &'a Env,
    /// Returns the network by which a request without a valid credential is limited.
    network: &'a dyn Fn() -> Option<Network>,
}

fn nobody() -> Option<Network> {
    None
}

impl Evaluation<'_> {
    fn headers(&self, headers: &Headers<'_>, end_of_stream: bool) -> Result<Step, Reply> {
        let target = path::parse(headers.path);
        let mut errors = error_format(target.as_ref(), headers, self.env.trace);
        if self.snapshot.is_boot() {
            return Err(errors.refuse(Reason::UpstreamUnavailable));
        }
        let mut target = target.ok_or_else(|| errors.refuse(Reason::UnknownServer))?;
        if target.path_kind == PathKind::A2aGrpc {
            let agent = self.snapshot.agent(headers.host);
            target.server = agent.ok_or_else(|| errors.refuse(Reason::UnknownServer))?;
        }
        if target.server.is_empty() {
            return root(&target, self.snapshot.is_root_host(headers.host), headers, errors);
        }
        let server = self.snapshot.server(target.server).filter(|server| server.has(target.path_kind));
        let server = server.ok_or_else(|| errors.refuse(Reason::UnknownServer))?;
        check_caller_headers(&target, server, headers, &mut errors)?;
        let max_body = match target.path_kind {
            PathKind::Public => server.max_body.min(PUBLIC_MAX_BODY_BYTES),
            _ => server.max_body,
        };
        let mut admitted = RequestFacts::of(&target, &errors, max_body);
        if target.path_kind != PathKind::Public {
            self.authenticate(server, headers, &errors, &mut admitted)?;
            let caller = admitted.caller.as_deref();
            let home = self.home_cluster(headers, &errors, &admitted);
            if let Some(cluster) = home.map_err(|reply| reply.of_caller(caller))? {
                return Ok(Step::Decided(forward_to_home(headers, admitted, cluster)));
            }
            if !admitted.unverified {
                let access = self.check_access(server, admitted.path_kind, caller, &errors);
                access.map_err(|reply| reply.of_caller(caller))?;
            }
        }
        self.charge(&admitted, Stage::Every, None, &errors)?;
        if headers.declared_length().is_some_and(|length| length > max_body as u64) {
            return Err(errors.refuse(Reason::BodyTooLarge));
        }
        let changes = self.changes(&target, headers, admitted.caller.as_deref());
        let Some(content) = BodyContent::of(self.edge.role, &target, headers) else {
            let (method, name) = rest::method_and_tool(&target, headers);
            let cluster = self.route(&admitted, method, name);
            return Ok(Step::Decided(forward(admitted, changes, cluster)));
        };
        if target.path_kind.is_jsonrpc() && !headers.is_json() {
            return Err(errors.refuse_media_type());
        }
        if self.edge.role == EdgeRole::Filter && admitted.era == Era::Modern {
            let (method, name) = modern::method_and_name(headers);
            self.charge(&admitted, Stage::Named, name.as_deref(), &errors)?;
            let cluster = self.route(&admitted, method.as_deref(), name.as_deref());
            return Ok(Step::Decided(forward(admitted, changes, cluster)));
        }
        let pending = PendingBody { max_body, admitted, errors, changes, content };
        match end_of_stream {
            true => self.body(pending, b"").map(Step::Decided),
            false => Ok(Step::NeedBody(Box::new(pending))),
        }
    }

    fn body(&self, pending: PendingBody, body: &[u8]) -> Result<Verdict, Reply> {
        let PendingBody { max_body, mut admitted, errors, mut changes, content } = pending;
        if body.len() > max_body {
            return Err(errors.refuse(Reason::BodyTooLarge));
        }
        let binding = match content {
            BodyContent::JsonRpc(binding) => binding,
            BodyContent::Grpc(field) => {
                let key = |task| affinity::of_task(admitted.caller.as_deref(), &admitted.server, task);
                changes.set.extend(grpc::task(body, field).map(|task| (affinity::HEADER, key(task))));
                let cluster = self.route(&admitted, None, None);
                return Ok(forward(admitted, changes, cluster));
            }
        };
        let envelope = envelope::scan(body, binding)
            .map_err(|reason| errors.refuse_message(reason, envelope::id_of_refused(body, reason)))?;
        if admitted.path_kind == PathKind::Mcp && envelope.meta_version.is_some() {
            admitted.era = Era::Modern;
        }
        // The first message was charged with the headers; the other messages of a batch are charged here.
        for _ in 1..envelope.batch.len() {
            self.charge(&admitted, Stage::Every, None, &errors)?;
        }
        for message in envelope.batch.iter().chain([&envelope]) {
            self.charge(&admitted, Stage::Named, message.name.as_deref(), &errors)?;
        }
        let method = match envelope.kind {
            EnvelopeKind::Request | EnvelopeKind::Notification => Some(envelope.method.as_str()),
            EnvelopeKind::Response | EnvelopeKind::Batch(_) => None,
        };
        let cluster = self.route(&admitted, method, envelope.name.as_deref());
        if self.edge.role == EdgeRole::Filter
            && admitted.path_kind == PathKind::A2a
            && let Some(task) = &envelope.task
        {
            let key = affinity::of_task(admitted.caller.as_deref(), &admitted.server, task.as_bytes());
            changes.set.push((affinity::HEADER, key));
        }
        admitted.envelope = Some(envelope);
        Ok(forward(admitted, changes, cluster))
    }

    /// Finds the caller, or marks the request as one that the gateway must verify.
    fn identify(
        &self,
        server: &Server,
        headers: &Headers<'_>,
        errors: &ErrorFormat,
        admitted: &mut RequestFacts,
    ) -> Result<(), Reply> {
        let challenged = |reason: Reason| self.challenged(server, errors, reason);
        let accepts = server.accepts;
        match token::credential(headers.authorization) {
            // A machine key is left to the gateway; it is never shown to an issuer.
            RequestCredential::Bearer(key) if machine::is_key(key) && accepts.psk => {
                admitted.unverified = true
            }
            RequestCredential::Bearer(key) if machine::is_key(key) && !accepts.nothing => {
                return Err(challenged(Reason::TokenInvalid));
            }
            RequestCredential::Bearer(token)
                if accepts.jwt && (!accepts.opaque || token::looks_like_jwt(token)) =>
            {
                let trust = self.snapshot.trust(server);
                let now = self.env.now_ms / 1000;
                match self.edge.tokens.evaluate_within(Some(&self.meter()), trust, token, now) {
                    Ok(caller) => admitted.caller = Some(caller),
                    Err(TokenRefusal { unknown_key_of: Some(issuer), .. })
                        if server.issuers.contains(&issuer) =>
                    {
                        admitted.unverified = true;
                        admitted.unknown_key_of = Some(issuer);
                    }
                    Err(TokenRefusal { retry_after: Some(seconds), .. }) => {
                        return Err(unauthenticated::limited(
                            errors,
                            UnauthenticatedKind::Signature,
                            seconds,
                        ));
                    }
                    Err(TokenRefusal { reason: reason @ Reason::UpstreamUnavailable, .. }) => {
                        return Err(errors.refuse(reason));
                    }
                    Err(TokenRefusal { notice: Some(notice), org, .. }) => {
                        return Err(Reply { org, ..self.refuse_revoked(server, errors, notice) });
                    }
                    Err(refused) => {
                        let TokenRefusal { cause, org, reason, .. } = refused;
                        return Err(Reply { cause, org, ..challenged(reason) });
                    }
                }
            }
            RequestCredential::Bearer(_) if accepts.opaque => admitted.unverified = true,
            _ if accepts.elsewhere => admitted.unverified = true,
            _ if accepts.nothing => {}
            RequestCredential::Bearer(_) => return Err(challenged(Reason::TokenInvalid)),
            RequestCredential::Nothing | RequestCredential::Other => {
                return Err(challenged(Reason::TokenMissing));
            }
        }
        Ok(())
    }

    /// Checks exposure and scopes: whether the caller may see this server.
    fn check_access(
        &self,
        server: &Server,
        path_kind: PathKind,
        caller: Option<&Caller>,
        errors: &ErrorFormat,
    ) -> Result<(), Reply> {
        let org = caller.map(|caller| caller.org.as_str()).unwrap_or_default();
        let exposed = server::protocol(path_kind)
            .is_none_or(|protocol| self.snapshot.exposed(&server.name, org, protocol));
        if !exposed {
            return Err(errors.refuse(Reason::UnknownServer));
        }
        let lacks = |caller: &Caller| !server.scopes.iter().all(|scope| caller.scopes.contains(scope));
        if caller.is_some_and(lacks) {
            return Err(self.challenged(server, errors, Reason::InsufficientScope));
        }
        Ok(())
    }

    fn challenged(&self, server: &Server, errors: &ErrorFormat, reason: Reason) -> Reply {
        let value = challenge(reason, self.snapshot.public_url(), &server.name, &server.scopes);
        errors.refuse_with(reason, "www-authenticate", value)
    }

    /// Refuses a caller whose token is revoked, or who is blocked. A blocked caller gets no challenge: another token would
    /// not help.
    fn refuse_revoked(&self, server: &Server, errors: &ErrorFormat, notice: RevocationNotice) -> Reply {
        let reason = notice.reason();
        let mut reply = errors.refuse_revoked(notice);
        if reason == Reason::TokenRevoked {
            let value = challenge(reason, self.snapshot.public_url(), &server.name, &server.scopes);
            reply.headers.push(("www-authenticate", value));
        }
        reply
    }

    fn admit(&self, admitted: RequestFacts, caller: Arc<Caller>) -> Result<RequestFacts, Reply> {
        let errors = admitted.error_format();
        let server = self.snapshot.server(&admitted.server);
        let server = server.ok_or_else(|| errors.refuse(Reason::UnknownServer))?;
        let now = self.env.now_ms / 1000;
        let fault = match () {
            () if !server.accepts_issuer(&caller.issuer) => Some(Reason::TokenInvalid),
            () if caller.expires_at.saturating_add(LEEWAY_SECONDS) <= now => Some(Reason::TokenExpired),
            () => None,
        };
        if let Some(reason) = fault {
            return Err(self.challenged(server, &errors, reason));
        }
        if let Some(notice) = self.snapshot.revocation(&caller) {
            return Err(self.refuse_revoked(server, &errors, notice).of_caller(Some(caller.as_ref())));
        }
        if !self.snapshot.accepts_tokens() {
            return Err(errors.refuse(Reason::UpstreamUnavailable));
        }
        if let Some(home) = self.foreign_home(Some(&caller)) {
            return Err(refuse_foreign_org(home, &errors));
        }
        self.check_access(server, admitted.path_kind, Some(&caller), &errors)?;
        Ok(RequestFacts { caller: Some(caller), unverified: false, unknown_key_of: None, ..admitted })
    }

    fn unproved(&self, admitted: &RequestFacts, reason: Reason) -> Reply {
        let errors = admitted.error_format();
        match self.snapshot.server(&admitted.server) {
            Some(server) => self.challenged(server, &errors, reason),
            None => errors.refuse(Reason::UnknownServer),
        }
    }

    /// Takes one request from the coarse limits.
    fn charge(
        &self,
        admitted: &RequestFacts,
        stage: Stage,
        primitive: Option<&str>,
        errors: &ErrorFormat,
    ) -> Result<(), Reply> {
        if self.edge.role == EdgeRole::Gateway || admitted.path_kind == PathKind::Public {
            return Ok(());
        }
        let caller = admitted.caller.as_deref();
        let subject = LimitSubject {
            server: &admitted.server,
            org: caller.map(|caller| caller.org.as_str()).unwrap_or_default(),
            issuer: caller.map(|caller| caller.issuer.as_str()).unwrap_or_default(),
            user: caller.map(|caller| caller.user.as_str()).unwrap_or_default(),
            wcit: caller.map(|caller| caller.wcit.as_str()).unwrap_or_default(),
            primitive,
        };
        let taken = self.edge.buckets.take(self.snapshot.limits(), &subject, stage, self.env.now_ms);
        taken.map_err(|seconds| {
            errors.refuse_with(Reason::RateLimited, "retry-after", seconds.to_string()).of_caller(caller)
        })
    }

    fn changes(
        &self,
        target: &RequestTarget<'_>,
        headers: &Headers<'_>,
        caller: Option<&Caller>,
    ) -> HeaderChanges {
        let key = match target.path_kind {
            _ if self.edge.role == EdgeRole::Gateway => None,
            PathKind::Mcp => {
                Some(affinity::key(headers.session_id, headers.affinity_cookie, self.env.random))
            }
            PathKind::Rest => affinity::of_call(caller, headers.path),
            PathKind::A2aRest | PathKind::A2aRestV03 => affinity::task_in_path(headers.path)
                .map(|task| affinity::of_task(caller, target.server, task)),
            // The task is in the body.
            PathKind::A2a | PathKind::A2aGrpc | PathKind::Public | PathKind::Health => None,
        };
        let set = key.map(|key| (affinity::HEADER, key)).into_iter().collect();
        HeaderChanges { remove: headers.internal.clone(), set }
    }

    fn route(&self, admitted: &RequestFacts, method: Option<&str>, primitive: Option<&str>) -> Option<&str> {
        // Each binding of A2A names methods in its own way, and the skill is in the body.
        let method = if admitted.path_kind.is_a2a() { Some(rest::CALL) } else { method };
        let routed = self.edge.role == EdgeRole::Filter && admitted.path_kind != PathKind::Public;
        routed.then(|| self.snapshot.routes().find(&admitted.server, method, primitive)).flatten()
    }
}

fn forward(admitted: RequestFacts, mut changes: HeaderChanges, cluster: Option<&str>) -> Verdict {
    changes.set.extend(cluster.map(|cluster| (route::HEADER, cluster.to_owned())));
    Verdict::Forward(Box::new(Forward {
        remove: changes.remove,
        set: changes.set,
        clear_route: cluster.is_some(),
        admitted,
    }))
}

/// Returns the error format for this request.
fn error_format(target: Option<&RequestTarget<'_>>, headers: &Headers<'_>, trace: Trace) -> ErrorFormat {
    let path_kind = target.map(|target| target.path_kind);
    let form = ErrorForm::choose(path_kind, headers.path, headers.content_type);
    let era = match path_kind {
        Some(PathKind::Mcp) => modern::era(headers.protocol_version),
        _ => Era::Legacy,
    };
    ErrorFormat { form, era, origin: None, trace }
}

#[cfg(test)]
mod tests;
