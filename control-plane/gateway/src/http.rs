//! The gateway's HTTP entry: repeats the edge's evaluation (I-1), reads the bounded body, and passes the request to its
//! protocol.
//!
//! Refuses: trust in any header about identity. Keeps true: every answer is well-formed in the caller's own protocol
//! (I-11); a revocation, a change or an expiry while a body arrives applies to its request.

use std::sync::Arc;

use asp_call::call::HeldMemory;
use asp_call::clock::unix_ms;
use asp_call::digest::PeerKey;
use asp_edge::{
    Caller, Era, ErrorForm, MACHINE_ISSUER, Network, PathKind, PendingBody, Reason, Reply, RequestFacts,
    Step, Trace, Verdict, reply,
};
use asp_pipeline::pipeline::entitlement::identify;
use asp_protocols::refusal_mark::RefusalMark;
use asp_protocols::replica::Replica;
use asp_protocols::{ProtocolRequest, ReachedServer, a2a, mcp, rest, unserved};
use asp_snapshot::Snapshot;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use http::{HeaderValue, StatusCode, Uri, header, request::Parts};
use tokio::sync::RwLock;

use crate::gateway::Gateway;
use body::{BodyFault, ReceivedBody};
use client_certificate::ClientCertificate;
use probes::{misdirected, open_to_all};

mod all_servers;
mod body;
mod client_certificate;
mod header_memory;
mod probes;
mod proof;
mod public;

/// Maximum size of one request's header names and values, in bytes: the 60 KiB that Envoy admits, and the headers it
/// adds.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Maximum number of headers: 100 from the client, and those that Envoy adds.
const MAX_HEADERS: usize = 120;
/// Messages for malformed HTTP requests, as in `envoy/bootstrap.yaml`.
const LONG_HEADERS: &str = "the headers are larger than this server accepts";
const TRANSFER_CODING: &str = "a body comes with Content-Length or in chunks, in no other transfer coding";

/// Returns the router of the whole gateway port, including `/healthz`, `/readyz` and `/metrics`.
pub fn router(gateway: Arc<Gateway>) -> axum::Router {
    open_to_all().fallback(entry).with_state(gateway)
}

/// Returns the same router for a session that changes specs and code together: requests wait while it holds `gate` for
/// writing.
pub fn gated_router(gateway: Arc<Gateway>, gate: Arc<RwLock<()>>) -> axum::Router {
    router(gateway).layer(middleware::from_fn_with_state(gate, wait_for_gate))
}

async fn wait_for_gate(State(gate): State<Arc<RwLock<()>>>, request: Request, next: Next) -> Response {
    drop(gate.read().await);
    next.run(request).await
}

/// Returns the router of a plaintext port for probes and metrics only; any other request gets directions to the other
/// port.
pub fn probe_router(gateway: Arc<Gateway>) -> axum::Router {
    open_to_all().fallback(misdirected).with_state(gateway)
}

async fn entry(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let shown = proof::client_certificate(&mut parts);
    let headers = edge_headers(&parts);
    let trace = Trace::of(&headers, rand::random());
    let size = header_bytes(&parts);
    if let Some(refusal) = refused_as_http(&parts, size, trace) {
        return log_refusal(&gateway, reply(refusal), "", &parts.uri);
    }
    let peer = proof::peer_key(&parts, gateway.config.in_mesh);
    let _held_headers = match header_memory::hold(&gateway.memory.of_headers, (&parts, size), &peer, trace) {
        Ok(held) => held,
        Err(refusal) => {
            gateway.metrics().refused(Reason::RateLimited.as_str());
            return log_refusal(&gateway, reply(refusal), "", &parts.uri);
        }
    };
    let network = proof::direct_network(&parts, gateway.config.in_mesh);
    let offered = RequestCredentials { headers: &headers, certificate: shown, peer, network };
    match evaluate(&gateway, &offered, body, trace).await {
        Err(refusal) => {
            if let Some(reason) = refusal.reason {
                gateway.metrics().refused(reason.as_str());
            }
            log_refusal(&gateway, reply(refusal), "", &parts.uri)
        }
        Ok(request) => {
            let origin = request.admitted.origin.clone();
            let caller = request.admitted.caller.clone();
            let is_public = request.admitted.path_kind == PathKind::Public;
            let uri = parts.uri.clone();
            let reached = match all_servers::is_for_all(&request) {
                // Boxed, so that the state of every request does not include this one's.
                true => Some(Box::pin(all_servers::reached(&gateway, &offered, &request)).await),
                false => None,
            };
            let mut response = serve(gateway.replica.clone(), request, reached, (parts, peer)).await;
            // Other gateways may reach the store that this one does not.
            if unserved::is_marked(response.extensions()) && gateway.pipeline.is_away() {
                response.headers_mut().insert(unserved::HEADER, HeaderValue::from_static("1"));
            }
            match origin {
                Some(origin) => add_headers(&mut response, reply::response_headers(&origin)),
                // A cache must not answer a page with this response, which lacks those headers (Fetch, CORS and caches).
                None if is_public => add_headers(&mut response, [("vary", "origin".to_owned())]),
                None => {}
            }
            let org = caller.as_ref().map_or("", |caller| caller.org.as_str());
            log_refusal(&gateway, response, org, &uri)
        }
    }
}

/// Returns the response; logs the refusal that it reports if that is not of a call. `org` is empty for an unknown caller.
fn log_refusal(gateway: &Gateway, response: Response, org: &str, uri: &Uri) -> Response {
    if let Some(mark) = RefusalMark::of_response(response.extensions()) {
        gateway.pipeline.log_refusal(&mark.described(org, uri.path()));
    }
    response
}

/// Refuses requests that Envoy would not have let through, with Envoy's answer (RFC 6585 section 5; RFC 9112 section 6.1
/// for an unknown transfer coding). `size`: bytes of the headers.
fn refused_as_http(parts: &Parts, size: usize, trace: Trace) -> Option<Reply> {
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
    let (status, words) = if size > MAX_HEADER_BYTES || parts.headers.len() > MAX_HEADERS {
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, LONG_HEADERS)
    } else if codings.any(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
        (StatusCode::NOT_IMPLEMENTED, TRANSFER_CODING)
    } else {
        return None;
    };
    Some(error_form(parts).refuse_http(status.as_u16(), words, trace))
}

/// Returns the form of a refusal before the request is evaluated.
fn error_form(parts: &Parts) -> ErrorForm {
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    ErrorForm::of(parts.uri.path().as_bytes(), content_type.map(HeaderValue::as_bytes))
}

/// Returns the size of all names and values, in bytes.
fn header_bytes(parts: &Parts) -> usize {
    parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// The credentials of a request.
struct RequestCredentials<'a> {
    headers: &'a [(&'a str, &'a [u8])],
    /// Certificate that the client presented to an Envoy of the platform.
    certificate: Option<ClientCertificate>,
    peer: PeerKey,
    /// Network of a client that sent the request without an Envoy in between.
    network: Option<Network>,
}

impl RequestCredentials<'_> {
    /// Returns the reason if the credentials identify no caller.
    fn fault(&self) -> Reason {
        match self.certificate.is_none() && proof::authorization(self.headers).is_none() {
            true => Reason::TokenMissing,
            false => Reason::TokenInvalid,
        }
    }
}

/// An admitted request, and the snapshot by which it was evaluated.
struct AdmittedRequest {
    snapshot: Arc<Snapshot>,
    admitted: RequestFacts,
    body: ReceivedBody,
}

/// Size from which a body takes long to check, in bytes. Its task yields first, because other requests of the
/// connection share it.
const MUCH: usize = 16 * 1024;

/// Evaluates the headers, then the body if it is needed. A body that the edge does not require is not read here.
async fn evaluate(
    gateway: &Gateway,
    offered: &RequestCredentials<'_>,
    body: Body,
    trace: Trace,
) -> Result<AdmittedRequest, Reply> {
    let headers = offered.headers;
    let mut snapshot = in_force(gateway, trace)?;
    let end_of_stream = axum::body::HttpBody::is_end_stream(&body);
    let mut step = on_headers(gateway, offered, &snapshot, end_of_stream, trace);
    if let Some(issuer) = proof::unknown_key_of(&step) {
        // Boxed, so that the state of every request does not include this rare wait.
        snapshot = Box::pin(proof::with_newest_keys(gateway, snapshot, issuer)).await;
        step = on_headers(gateway, offered, &snapshot, end_of_stream, trace);
    }
    // Before the body, so that a caller unknown to every issuer cannot make a gateway hold one.
    let caller = match proof::unverified(&step) {
        None => None,
        Some(admitted) => {
            let found = Box::pin(proof::caller(gateway, &snapshot, offered, admitted)).await?;
            if found.is_none() {
                let edge = &snapshot.edge;
                return Err(gateway.edge().unproved(edge, admitted, offered.fault(), &env(trace)));
            }
            found
        }
    };
    let pending = match step {
        Step::Decided(verdict) => {
            let decided = admit(snapshot, verdict, ReceivedBody::default())?;
            let reads_body = matches!(
                decided.admitted.path_kind,
                PathKind::Rest
                    | PathKind::A2aRest
                    | PathKind::A2aRestV03
                    | PathKind::A2aGrpc
                    | PathKind::Public
            );
            let decided = match reads_body && !end_of_stream {
                true => with_body(gateway, offered, decided, caller.as_deref(), body).await?,
                false => decided,
            };
            return proved(gateway, decided, caller, offered);
        }
        Step::NeedBody(pending) => pending,
    };
    let body = read_body(gateway, &pending, caller.as_deref(), body).await?;
    if body.bytes.len() > MUCH {
        tokio::task::yield_now().await;
    }
    // The client decides how long its body takes, so changes in force since then apply, and so does the token's expiry.
    let since = in_force(gateway, trace)?;
    let stands = Arc::ptr_eq(&snapshot, &since) && !has_expired(&pending.admitted);
    let verdict = match stands {
        true => gateway.edge().on_body(&snapshot.edge, *pending, &body.bytes, &env(trace)),
        // The token's signature is cached, and a gateway charges no coarse limits, so nothing is counted twice.
        false => match gateway.edge().on_headers(&since.edge, headers, false, &env(trace)) {
            Step::Decided(verdict) => verdict,
            Step::NeedBody(pending) => {
                gateway.edge().on_body(&since.edge, *pending, &body.bytes, &env(trace))
            }
        },
    };
    proved(gateway, admit(since, verdict, body)?, caller, offered)
}

/// Evaluates the headers of a new request, within the limits of unauthenticated ones.
fn on_headers(
    gateway: &Gateway,
    offered: &RequestCredentials<'_>,
    snapshot: &Snapshot,
    end_of_stream: bool,
    trace: Trace,
) -> Step {
    let network = || offered.network;
    let edge = gateway.edge();
    edge.on_headers_from(&network, &snapshot.edge, offered.headers, end_of_stream, &env(trace))
}

/// Completes a request that the edge left unauthenticated with the caller found here; refuses it if there is none.
fn proved(
    gateway: &Gateway,
    request: AdmittedRequest,
    caller: Option<Arc<Caller>>,
    offered: &RequestCredentials<'_>,
) -> Result<AdmittedRequest, Reply> {
    if !request.admitted.unverified {
        return Ok(request);
    }
    let AdmittedRequest { snapshot, admitted, body } = request;
    let env = env(admitted.trace);
    // A key or certificate may have been removed while the body arrived.
    let caller = caller.filter(|caller| caller.issuer != MACHINE_ISSUER || snapshot.machines.has(caller));
    let admitted = match caller {
        Some(caller) => gateway.edge().admit(&snapshot.edge, admitted, caller, &env)?,
        None => return Err(gateway.edge().unproved(&snapshot.edge, &admitted, offered.fault(), &env)),
    };
    Ok(AdmittedRequest { snapshot, admitted, body })
}

/// Reads the body of a request whose protocol does not need it for the edge's evaluation.
async fn with_body(
    gateway: &Gateway,
    offered: &RequestCredentials<'_>,
    decided: AdmittedRequest,
    caller: Option<&Caller>,
    body: Body,
) -> Result<AdmittedRequest, Reply> {
    let AdmittedRequest { snapshot, admitted, .. } = decided;
    let trace = admitted.trace;
    let received = match admitted.path_kind {
        PathKind::Public => {
            let network = proof::network(&offered.peer);
            body::receive(&gateway.memory.of_nobody, &network, admitted.max_body, body).await
        }
        _ => body::receive(&gateway.memory.of_callers, org(&admitted, caller), admitted.max_body, body).await,
    };
    let body = received.map_err(|fault| unreceived(&fault, &admitted))?;
    // Changes in force since then apply here as well.
    let since = in_force(gateway, trace)?;
    if Arc::ptr_eq(&snapshot, &since) && !has_expired(&admitted) {
        return Ok(AdmittedRequest { snapshot, admitted, body });
    }
    match gateway.edge().on_headers(&since.edge, offered.headers, false, &env(trace)) {
        Step::Decided(verdict) => admit(since, verdict, body),
        Step::NeedBody(pending) => {
            let verdict = gateway.edge().on_body(&since.edge, *pending, &body.bytes, &env(trace));
            admit(since, verdict, body)
        }
    }
}

/// Whether the token has expired by this clock; the edge then evaluates again with its own leeway.
fn has_expired(admitted: &RequestFacts) -> bool {
    admitted.caller.as_ref().is_some_and(|caller| caller.expires_at <= unix_ms() / 1000)
}

fn in_force(gateway: &Gateway, trace: Trace) -> Result<Arc<Snapshot>, Reply> {
    let none = || asp_edge::refuse(Reason::UpstreamUnavailable, Era::Legacy, None, Some(trace));
    gateway.snapshot().ok_or_else(none)
}

fn env(trace: Trace) -> asp_edge::Env {
    asp_edge::Env { now_ms: unix_ms(), random: [0; 8], trace }
}

fn admit(snapshot: Arc<Snapshot>, verdict: Verdict, body: ReceivedBody) -> Result<AdmittedRequest, Reply> {
    match verdict {
        Verdict::Reply(reply) => Err(reply),
        Verdict::Forward(forward) => Ok(AdmittedRequest { snapshot, admitted: forward.admitted, body }),
    }
}

async fn read_body(
    gateway: &Gateway,
    pending: &PendingBody,
    caller: Option<&Caller>,
    body: Body,
) -> Result<ReceivedBody, Reply> {
    let org = org(&pending.admitted, caller);
    let received = body::receive(&gateway.memory.of_callers, org, pending.max_body, body).await;
    received.map_err(|fault| unreceived(&fault, &pending.admitted))
}

/// Returns the org charged for the request; empty if its caller is unknown.
fn org<'a>(admitted: &'a RequestFacts, found: Option<&'a Caller>) -> &'a str {
    found.or(admitted.caller.as_deref()).map(|caller| caller.org.as_str()).unwrap_or_default()
}

/// Returns the refusal of a request whose body was not received.
fn unreceived(fault: &BodyFault, admitted: &RequestFacts) -> Reply {
    match fault {
        BodyFault::TooLarge => admitted.refuse(Reason::BodyTooLarge),
        BodyFault::Broken => admitted.refuse(Reason::ParseError),
        // gRPC has a status of its own.
        BodyFault::Slow if admitted.path_kind == PathKind::A2aGrpc => admitted.refuse(Reason::Deadline),
        BodyFault::Slow => {
            Reply { status: StatusCode::REQUEST_TIMEOUT.as_u16(), ..admitted.refuse(Reason::Deadline) }
        }
        BodyFault::Taken(why) => {
            let mut refusal = admitted.refuse(why.reason());
            let after = why.retry_after_seconds();
            refusal.headers.extend(after.map(|seconds| ("retry-after", seconds.to_string())));
            refusal
        }
    }
}

async fn serve(
    gateway: Arc<Replica>,
    request: AdmittedRequest,
    reached: Option<Vec<ReachedServer>>,
    (parts, peer): (Parts, PeerKey),
) -> Response {
    let RequestFacts { path_kind, era, trace, .. } = request.admitted;
    let form = request.admitted.error_form();
    let refuse = |reason| reply(form.refuse(reason, era, Some(trace)));
    match path_kind {
        PathKind::Health => Response::new(Body::from("ok\n")),
        PathKind::Public => {
            public::serve(&gateway, &request.snapshot, (&parts, &request.body.bytes, &peer), trace).await
        }
        PathKind::Mcp => match with_caller(gateway, request, parts) {
            Ok(request) => mcp::serve(ProtocolRequest { reached, ..request }).await,
            Err(reason) => refuse(reason),
        },
        PathKind::Rest => match with_caller(gateway, request, parts) {
            Ok(request) => rest::serve(request).await,
            Err(reason) => rest::refuse(reason, trace),
        },
        PathKind::A2a | PathKind::A2aRest | PathKind::A2aRestV03 | PathKind::A2aGrpc => {
            match with_caller(gateway, request, parts) {
                Ok(request) => a2a::serve(request).await,
                Err(reason) => refuse(reason),
            }
        }
    }
}

/// Completes an admitted request for its protocol, with its server and its caller.
fn with_caller(
    gateway: Arc<Replica>,
    request: AdmittedRequest,
    parts: Parts,
) -> Result<ProtocolRequest, Reason> {
    let AdmittedRequest { snapshot, admitted, body: ReceivedBody { bytes: body, held } } = request;
    let server = snapshot.server(&admitted.server).cloned().ok_or(Reason::UnknownServer)?;
    let caller = identify(&admitted, &server)?;
    let memory = held.map(|held| Arc::new(held) as HeldMemory);
    let Parts { method, headers, uri, .. } = parts;
    let reached = None;
    Ok(ProtocolRequest {
        gateway,
        snapshot,
        server,
        caller,
        admitted,
        reached,
        method,
        uri,
        headers,
        body,
        memory,
    })
}

/// Returns the headers in the order the edge's code expects, pseudo-headers first.
fn edge_headers(parts: &Parts) -> Vec<(&str, &[u8])> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = Vec::with_capacity(parts.headers.len() + 3);
    headers.push((":method", parts.method.as_str().as_bytes()));
    headers.push((":path", path.as_bytes()));
    // HTTP/2 has the authority in the URI, HTTP/1.1 in Host. Every Host is passed on, because the edge refuses two.
    if let Some(authority) = parts.uri.authority() {
        headers.push((":authority", authority.as_str().as_bytes()));
    }
    headers.extend(parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    headers
}

fn reply(reply: Reply) -> Response {
    let mark = RefusalMark::of(&reply);
    let mut response = Response::new(Body::from(reply.body));
    if let Some(mark) = mark {
        mark.put(response.extensions_mut());
    }
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    add_headers(&mut response, reply.headers);
    response
}

/// Adds headers of the edge's code; an invalid value is left out.
fn add_headers(response: &mut Response, headers: impl IntoIterator<Item = (&'static str, String)>) {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().append(name, value);
        }
    }
}
