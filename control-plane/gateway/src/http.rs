//! The gateway's HTTP entry: runs the edge's evaluation again (I-1), reads the bounded body, and hands the
//! request to its face.
//!
//! Refuses: trust in anything a header says about identity. Keeps true: every answer is well-formed in the
//! caller's own protocol (I-11); what is revoked, disabled or expires while a body comes counts for its request.

use std::sync::Arc;

use asp_edge::{
    Admitted, Caller, Era, Face, MACHINE_ISSUER, PendingBody, Reason, Reply, Step, Trace, Verdict, reply,
};
use asp_snapshot::Snapshot;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, StatusCode, header, request::Parts};

use crate::call::HeldMemory;
use crate::clock::unix_ms;
use crate::digest::PeerKey;
use crate::faces::{FaceRequest, login, mcp, registry, rest, unserved, wellknown};
use crate::gateway::Gateway;
use crate::pipeline::identity;
use body::{Fault, Received};
use client_certificate::ClientCertificate;

mod body;
mod client_certificate;
mod header_memory;
mod peer;
mod proof;

/// Names and values of one request's headers: the 60 KiB that Envoy lets through, and what it adds.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Likewise, 100 of the client's.
const MAX_HEADERS: usize = 120;
/// Faults of a request as HTTP, in Envoy's words (`envoy/bootstrap.yaml`).
const LONG_HEADERS: &str = "the headers are larger than this server accepts";
const TRANSFER_CODING: &str = "a body comes with Content-Length or in chunks, in no other transfer coding";

/// The whole gateway port, `/healthz`, `/readyz` and `/metrics` included.
pub fn router(gateway: Arc<Gateway>) -> axum::Router {
    open_to_all().fallback(entry).with_state(gateway)
}

/// A port in clear for probes and collectors of figures alone: whatever carries a token is told where to go.
pub fn figures(gateway: Arc<Gateway>) -> axum::Router {
    open_to_all().fallback(elsewhere).with_state(gateway)
}

fn open_to_all() -> axum::Router<Arc<Gateway>> {
    axum::Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

async fn elsewhere() -> (StatusCode, &'static str) {
    (
        StatusCode::MISDIRECTED_REQUEST,
        "this port is in clear and answers /healthz, /readyz and /metrics alone: requests come by mutual TLS from an Envoy \
         (ASP_GATEWAY_MTLS_PORT)\n",
    )
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    let Some(reason) = gateway.unready() else { return Response::new(Body::from("ready\n")) };
    let mut response = Response::new(Body::from(format!("{reason}\n")));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut response = Response::new(Body::from(gateway.metrics().encode()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
    );
    response
}

async fn entry(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let shown = proof::client_certificate(&mut parts);
    let headers = edge_headers(&parts);
    let trace = Trace::of(&headers, rand::random());
    let size = header_bytes(&parts);
    if let Some(refusal) = refused_as_http(&parts, size, trace) {
        return reply(refusal);
    }
    let peer = peer::key(&parts, gateway.config.in_mesh);
    let _held_headers = match header_memory::hold(&gateway.memory.of_headers, (&parts, size), &peer, trace) {
        Ok(held) => held,
        Err(refusal) => {
            gateway.metrics().refused(Reason::RateLimited.as_str());
            return reply(refusal);
        }
    };
    let offered = Offered { headers: &headers, certificate: shown, peer };
    match evaluate(&gateway, &offered, body, trace).await {
        Err(refusal) => {
            if let Some(cause) = refusal.cause {
                tracing::warn!(
                    path = parts.uri.path(), %trace,
                    "a token that a trusted issuer signed is refused, and its caller gets a 401: {cause}"
                );
            }
            if let Some(reason) = refusal.reason {
                gateway.metrics().refused(reason.as_str());
            }
            reply(refusal)
        }
        Ok(Evaluated { snapshot, admitted, body }) => {
            let origin = admitted.origin.clone();
            let mut response = serve(gateway.clone(), snapshot, (parts, peer), admitted, body).await;
            // Others may reach the store that this gateway does not.
            if unserved::is_marked(response.extensions()) && gateway.pipeline.is_away() {
                response.headers_mut().insert(unserved::HEADER, HeaderValue::from_static("1"));
            }
            if let Some(origin) = origin {
                add_headers(&mut response, reply::response_headers(&origin));
            }
            response
        }
    }
}

/// Refuses as Envoy does what Envoy would not have let through: JSON-RPC on the paths of its faces, a problem
/// document elsewhere (RFC 6585 section 5; RFC 9112 section 6.1 for a transfer coding that nobody decodes). `size`: bytes
/// of the headers.
fn refused_as_http(parts: &Parts, size: usize, trace: Trace) -> Option<Reply> {
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
    let (status, words) = if size > MAX_HEADER_BYTES || parts.headers.len() > MAX_HEADERS {
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, LONG_HEADERS)
    } else if codings.any(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked")) {
        (StatusCode::NOT_IMPLEMENTED, TRANSFER_CODING)
    } else {
        return None;
    };
    let mut refusal = refuse_in_face(parts, Reason::InvalidRequest, trace);
    // A problem document repeats the status.
    let text = String::from_utf8_lossy(&refusal.body)
        .replace("\"status\":400", &format!("\"status\":{}", status.as_u16()))
        .replace(Reason::InvalidRequest.message(), words);
    refusal.status = status.as_u16();
    refusal.body = text.into_bytes();
    Some(refusal)
}

/// JSON-RPC on the paths of its faces, a problem document elsewhere.
fn refuse_in_face(parts: &Parts, reason: Reason, trace: Trace) -> Reply {
    match parts.uri.path().split('/').nth(2) {
        Some("mcp" | "a2a") => asp_edge::refuse(reason, Era::Legacy, None, Some(trace)),
        _ => asp_edge::refuse_problem(reason, Era::Legacy, Some(trace)),
    }
}

/// Names and values together.
fn header_bytes(parts: &Parts) -> usize {
    parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// By what a request may prove who calls.
struct Offered<'a> {
    headers: &'a [(&'a str, &'a [u8])],
    /// The certificate that the client has shown to an Envoy of the platform.
    certificate: Option<ClientCertificate>,
    peer: PeerKey,
}

impl Offered<'_> {
    /// Why nobody was found.
    fn fault(&self) -> Reason {
        match self.certificate.is_none() && proof::authorization(self.headers).is_none() {
            true => Reason::TokenMissing,
            false => Reason::TokenInvalid,
        }
    }
}

/// A request that is let through, and the snapshot by which it was evaluated.
struct Evaluated {
    snapshot: Arc<Snapshot>,
    admitted: Admitted,
    body: Received,
}

/// A body that takes long to check: its request leaves its connection's task, on which others wait meanwhile.
const MUCH: usize = 16 * 1024;

/// Headers, then the body where it is needed. A body the edge does not ask for is not read.
async fn evaluate(
    gateway: &Gateway,
    offered: &Offered<'_>,
    body: Body,
    trace: Trace,
) -> Result<Evaluated, Reply> {
    let headers = offered.headers;
    let mut snapshot = in_force(gateway, trace)?;
    let end_of_stream = axum::body::HttpBody::is_end_stream(&body);
    let mut step = gateway.edge().on_headers(&snapshot.edge, headers, end_of_stream, &env(trace));
    if let Some(issuer) = proof::unknown_key_of(&step) {
        // What few requests wait for is no part of every request's own state.
        snapshot = Box::pin(proof::with_newest_keys(gateway, snapshot, issuer)).await;
        step = gateway.edge().on_headers(&snapshot.edge, headers, end_of_stream, &env(trace));
    }
    // Before the body: nobody whom no issuer knows makes a gateway hold one.
    let caller = match proof::unjudged(&step) {
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
            let decided = evaluated(snapshot, verdict, Received::default())?;
            let takes_body = matches!(decided.admitted.face, Face::Rest | Face::Public) && !end_of_stream;
            let decided = match takes_body {
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
    // A client decides how long its body takes: what came into force meanwhile counts, and so does the token's end.
    let since = in_force(gateway, trace)?;
    let stands = Arc::ptr_eq(&snapshot, &since) && !has_expired(&pending.admitted);
    let verdict = match stands {
        true => gateway.edge().on_body(&snapshot.edge, *pending, &body.bytes, &env(trace)),
        // The token's signature is remembered, and a gateway takes nothing from coarse limits: nothing counts twice.
        false => match gateway.edge().on_headers(&since.edge, headers, false, &env(trace)) {
            Step::Decided(verdict) => verdict,
            Step::NeedBody(pending) => {
                gateway.edge().on_body(&since.edge, *pending, &body.bytes, &env(trace))
            }
        },
    };
    proved(gateway, evaluated(since, verdict, body)?, caller, offered)
}

/// For the caller that was found, where the edge's code could find none; else it is refused.
fn proved(
    gateway: &Gateway,
    request: Evaluated,
    caller: Option<Arc<Caller>>,
    offered: &Offered<'_>,
) -> Result<Evaluated, Reply> {
    if !request.admitted.unverified {
        return Ok(request);
    }
    let Evaluated { snapshot, admitted, body } = request;
    let env = env(admitted.trace);
    // A key or certificate may have gone while the body came.
    let caller = caller.filter(|caller| caller.issuer != MACHINE_ISSUER || snapshot.machines.has(caller));
    let admitted = match caller {
        Some(caller) => gateway.edge().found(&snapshot.edge, admitted, caller, &env)?,
        None => return Err(gateway.edge().unproved(&snapshot.edge, &admitted, offered.fault(), &env)),
    };
    Ok(Evaluated { snapshot, admitted, body })
}

/// A request of a face whose body the edge's code does not look at.
async fn with_body(
    gateway: &Gateway,
    offered: &Offered<'_>,
    decided: Evaluated,
    caller: Option<&Caller>,
    body: Body,
) -> Result<Evaluated, Reply> {
    let Evaluated { snapshot, admitted, .. } = decided;
    let trace = admitted.trace;
    let refuse = |reason| {
        let mut refusal = asp_edge::refuse_problem(reason, Era::Legacy, Some(trace));
        refusal.headers.extend(cors(&admitted));
        refusal
    };
    let received = match admitted.face {
        Face::Public => {
            let network = peer::network(&offered.peer);
            body::receive(&gateway.memory.of_nobody, &network, admitted.max_body, body).await
        }
        _ => body::receive(&gateway.memory.of_callers, org(&admitted, caller), admitted.max_body, body).await,
    };
    let body = received.map_err(|fault| unreceived(&fault, refuse))?;
    // As for a body that the edge's code looks at: what came into force meanwhile counts.
    let since = in_force(gateway, trace)?;
    if Arc::ptr_eq(&snapshot, &since) && !has_expired(&admitted) {
        return Ok(Evaluated { snapshot, admitted, body });
    }
    match gateway.edge().on_headers(&since.edge, offered.headers, false, &env(trace)) {
        Step::Decided(verdict) => evaluated(since, verdict, body),
        Step::NeedBody(pending) => {
            let verdict = gateway.edge().on_body(&since.edge, *pending, &body.bytes, &env(trace));
            evaluated(since, verdict, body)
        }
    }
}

/// Whether the token may have ended; the edge evaluates by its own leeway.
fn has_expired(admitted: &Admitted) -> bool {
    admitted.caller.as_ref().is_some_and(|caller| caller.expires_at <= unix_ms() / 1000)
}

fn in_force(gateway: &Gateway, trace: Trace) -> Result<Arc<Snapshot>, Reply> {
    let none = || asp_edge::refuse(Reason::UpstreamUnavailable, Era::Legacy, None, Some(trace));
    gateway.snapshot().ok_or_else(none)
}

fn env(trace: Trace) -> asp_edge::Env {
    asp_edge::Env { now_ms: unix_ms(), random: [0; 8], trace }
}

fn evaluated(snapshot: Arc<Snapshot>, verdict: Verdict, body: Received) -> Result<Evaluated, Reply> {
    match verdict {
        Verdict::Reply(reply) => Err(reply),
        Verdict::Forward(forward) => Ok(Evaluated { snapshot, admitted: forward.admitted, body }),
    }
}

async fn read_body(
    gateway: &Gateway,
    pending: &PendingBody,
    caller: Option<&Caller>,
    body: Body,
) -> Result<Received, Reply> {
    let Admitted { era, trace, .. } = pending.admitted;
    let org = org(&pending.admitted, caller);
    let refuse = |reason| match reason {
        Reason::BodyTooLarge => gateway.edge().body_too_large(pending),
        reason => {
            let mut refusal = asp_edge::refuse(reason, era, None, Some(trace));
            refusal.headers.extend(cors(&pending.admitted));
            refusal
        }
    };
    let received = body::receive(&gateway.memory.of_callers, org, pending.max_body, body).await;
    received.map_err(|fault| unreceived(&fault, refuse))
}

/// What a browser wants of an answer to an Origin that is allowed.
fn cors(admitted: &Admitted) -> impl Iterator<Item = (&'static str, String)> {
    admitted.origin.iter().flat_map(|origin| reply::response_headers(origin))
}

/// Whose request it is; of nobody's where no caller is known.
fn org<'a>(admitted: &'a Admitted, found: Option<&'a Caller>) -> &'a str {
    found.or(admitted.caller.as_deref()).map(|caller| caller.org.as_str()).unwrap_or_default()
}

/// The refusal of a request whose body did not come, or may not.
fn unreceived(fault: &Fault, refuse: impl Fn(Reason) -> Reply) -> Reply {
    match fault {
        Fault::TooLarge => refuse(Reason::BodyTooLarge),
        Fault::Broken => refuse(Reason::ParseError),
        Fault::Slow => Reply { status: StatusCode::REQUEST_TIMEOUT.as_u16(), ..refuse(Reason::Deadline) },
        Fault::Taken(why) => {
            let mut refusal = refuse(why.reason());
            let after = why.retry_after_seconds();
            refusal.headers.extend(after.map(|seconds| ("retry-after", seconds.to_string())));
            refusal
        }
    }
}

async fn serve(
    gateway: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    (parts, peer): (Parts, PeerKey),
    admitted: Admitted,
    Received { bytes: body, held }: Received,
) -> Response {
    let trace = Some(admitted.trace);
    let memory = held.map(|held| Arc::new(held) as HeldMemory);
    let not_found = || reply(asp_edge::refuse(Reason::UnknownServer, Era::Legacy, None, trace));
    match admitted.face {
        Face::Health => Response::new(Body::from("ok\n")),
        Face::Public => public(&gateway, &snapshot, (&parts, &body, &peer), admitted.trace).await,
        Face::Mcp => {
            let Some(server) = snapshot.server(&admitted.server).cloned() else { return not_found() };
            let caller = match identity::identify(&admitted, &server) {
                Ok(caller) => caller,
                Err(reason) => return reply(asp_edge::refuse(reason, admitted.era, None, trace)),
            };
            let Parts { method, headers, uri, .. } = parts;
            mcp::serve(FaceRequest {
                gateway,
                snapshot,
                server,
                caller,
                admitted,
                method,
                uri,
                headers,
                body,
                memory,
            })
            .await
        }
        Face::Rest => {
            let trace = admitted.trace;
            let Some(server) = snapshot.server(&admitted.server).cloned() else {
                return rest::refuse(Reason::UnknownServer, trace);
            };
            let caller = match identity::identify(&admitted, &server) {
                Ok(caller) => caller,
                Err(reason) => return rest::refuse(reason, trace),
            };
            let Parts { method, headers, uri, .. } = parts;
            rest::serve(FaceRequest {
                gateway,
                snapshot,
                server,
                caller,
                admitted,
                method,
                uri,
                headers,
                body,
                memory,
            })
            .await
        }
        // No face for these paths is built yet: they do not exist.
        Face::A2a => not_found(),
    }
}

/// What needs no caller.
async fn public(
    gateway: &Gateway,
    snapshot: &Snapshot,
    (parts, body, peer): (&Parts, &Bytes, &PeerKey),
    trace: Trace,
) -> Response {
    if let Some(response) = login::serve(gateway, snapshot, (parts, body, peer)).await {
        return response;
    }
    let path = parts.uri.path();
    // The keys cost nothing, and a service without them takes no call.
    if path != wellknown::KEYS
        && let Err(seconds) = gateway.issuers.logins.charge_document(peer)
    {
        gateway.metrics().refused(Reason::RateLimited.as_str());
        let mut refusal = rest::refuse(Reason::RateLimited, trace);
        refusal.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return refusal;
    }
    if let Some(response) = registry::serve(gateway, snapshot, &parts.method, &parts.uri) {
        return response;
    }
    let found = wellknown::serve(gateway, snapshot, &parts.method, path).await;
    found.unwrap_or_else(|| rest::refuse(Reason::UnknownServer, trace))
}

/// The headers as the edge's code reads them, pseudo-headers first.
fn edge_headers(parts: &Parts) -> Vec<(&str, &[u8])> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = Vec::with_capacity(parts.headers.len() + 3);
    headers.push((":method", parts.method.as_str().as_bytes()));
    headers.push((":path", path.as_bytes()));
    // HTTP/2 has the authority in the URI, HTTP/1.1 in Host. Every Host is shown: two are the edge's to refuse.
    if let Some(authority) = parts.uri.authority() {
        headers.push((":authority", authority.as_str().as_bytes()));
    }
    headers.extend(parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    headers
}

fn reply(reply: Reply) -> Response {
    let mut response = Response::new(Body::from(reply.body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    add_headers(&mut response, reply.headers);
    response
}

/// Headers of the edge's code; a value it made that is no header value is left out.
fn add_headers(response: &mut Response, headers: impl IntoIterator<Item = (&'static str, String)>) {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().append(name, value);
        }
    }
}
