//! Plain requests that the proxy sends itself. If a call brought a credential for the origin, the request is
//! authenticated: the proxy speaks TLS with the service if the origin requires it, and adds the header, which no worker
//! sees.
//!
//! Refuses bodies whose end is ambiguous and, with a credential, methods whose answer repeats the request. Keeps true:
//! one request goes to the service on a connection of its own; the proxy sets the host and the framing of the body,
//! whatever the worker wrote, and so it does the header, which is added only while a call that brought it runs; none of
//! these is returned to the worker; redirects are not followed.
//! Source: RFC 9110 sections 7.6.1 (hop-by-hop) and 9.3.8 (TRACE), RFC 9112 sections 6.3 and 11.2 (smuggling).

use std::convert::Infallible;
use std::io::Cursor;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{IpAddr, ServerName};
use tokio_util::task::AbortOnDropHandle;

use super::credential_lease::{ActiveCredentials, CredentialLease, Origin};
use super::head::{Head, hop_by_hop};

/// Maximum number of headers, more than any client sends in a head of at most `MAX_HEAD`.
const MAX_HEADERS: usize = 256;
/// Methods whose answer is the request as received (RFC 9110 section 9.3.8), including the header.
const ECHOING: [&str; 2] = ["TRACE", "TRACK"];

/// Certificate authorities trusted for services. Clones share what was read.
#[derive(Clone, Default)]
pub struct ServiceTrust(Arc<OnceLock<Option<TlsConnector>>>);

type AnswerBody = Either<TrackedBody, Full<Bytes>>;

/// The body of an answer, which reports its end by being dropped.
struct TrackedBody {
    body: Incoming,
    _end: oneshot::Sender<()>,
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl std::fmt::Debug for ServiceTrust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceTrust").finish_non_exhaustive()
    }
}

impl ServiceTrust {
    /// Returns the connector with this machine's authorities, read on first use. `None`: there are none, and the log
    /// says so.
    fn connector(&self) -> Option<&TlsConnector> {
        let read = || match of_this_machine() {
            Ok(config) => Some(TlsConnector::from(Arc::new(config))),
            Err(error) => {
                tracing::error!(%error, "this machine trusts no certificate authority, so no credential is sent over TLS; install authorities, or name them by SSL_CERT_FILE");
                None
            }
        };
        self.0.get_or_init(read).as_ref()
    }
}

fn of_this_machine() -> Result<ClientConfig, tokio_rustls::rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_platform_verifier()?;
    Ok(config.with_no_client_auth())
}

/// Whether the end of the body is unambiguous, and the path valid (RFC 3986 section 2).
pub(super) fn is_clear(head: &Head) -> bool {
    head.is_framed && head.path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether the answer repeats the request, and a credential with it.
pub(super) fn is_repeated(head: &Head) -> bool {
    ECHOING.contains(&head.method.as_str())
}

/// A connection to the service.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Secures a connection to the origin's address. `None`: the service could not be verified, and the log says so.
pub(super) async fn secure(
    stream: TcpStream,
    lease: &CredentialLease,
    trust: &ServiceTrust,
) -> Option<Box<dyn Stream>> {
    let Origin { tls, host, .. } = lease.origin();
    if !tls {
        return Some(Box::new(stream));
    }
    let name = match IpAddr::try_from(host.as_str()) {
        Ok(address) => ServerName::IpAddress(address),
        Err(_) => ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned()).ok()?,
    };
    match trust.connector()?.connect(name, stream).await {
        Ok(stream) => Some(Box::new(stream)),
        Err(error) => {
            let credential = &lease.name;
            tracing::warn!(credential, host, %error, "a service could not be verified by TLS, so its credential is not sent; let this machine trust its authority (SSL_CERT_FILE)");
            None
        }
    }
}

/// A worker's request to the proxy.
pub(super) struct ForwardRequest {
    /// Path and query.
    pub(super) path: String,
    /// The checked host, as a request names it.
    pub(super) authority: HeaderValue,
    /// The bytes read so far: the head and perhaps some of the body.
    pub(super) read: Vec<u8>,
    pub(super) credential: Option<RequestCredential>,
}

/// The credential that authenticates a request.
pub(super) struct RequestCredential {
    pub(super) credentials: Arc<ActiveCredentials>,
    pub(super) lease: Arc<CredentialLease>,
}

/// Forwards one request and its answer. Returns when the worker's connection ends.
pub(super) async fn exchange(worker: UnixStream, mut forward: ForwardRequest, service: Box<dyn Stream>) {
    let mut client = hyper::client::conn::http1::Builder::new();
    client.max_headers(MAX_HEADERS);
    let Ok((sender, connection)) = client.handshake(TokioIo::new(service)).await else { return };
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let read = std::mem::take(&mut forward.read);
    let (unread, answers) = worker.into_split();
    let worker = tokio::io::join(Cursor::new(read).chain(unread), answers);
    let (end, ended) = oneshot::channel();
    // Taken by the first request; there is no second.
    let once = Mutex::new(Some((sender, end)));
    let forward = &forward;
    let pass = service_fn(|request| {
        let once = once.lock().take();
        async move { Ok::<_, Infallible>(answer(request, forward, once).await) }
    });
    let mut serving = hyper::server::conn::http1::Builder::new();
    serving.keep_alive(false).max_headers(MAX_HEADERS);
    let mut serving = std::pin::pin!(serving.serve_connection(TokioIo::new(worker), pass));
    // Err: one side disconnected, which ends the other.
    tokio::select! {
        _ = &mut serving => return,
        _ = ended => {}
    }
    // Once the request was answered, its remaining body is not needed; the rest of the answer is still sent.
    drop(connection);
    let _ = serving.await;
}

async fn answer(
    request: Request<Incoming>,
    forward: &ForwardRequest,
    once: Option<(SendRequest<Incoming>, oneshot::Sender<()>)>,
) -> Response<AnswerBody> {
    // Checked again: the call that brought the credential may have ended while the proxy connected to the service.
    let lease =
        forward.credential.as_ref().map(|credential| credential.credentials.current(&credential.lease));
    if let Some(None) = lease {
        return refused(StatusCode::FORBIDDEN);
    }
    let lease = lease.flatten();
    let sent = service_request(request, forward, lease.as_deref());
    let Some(((mut sender, end), sent)) = once.zip(sent) else { return refused(StatusCode::BAD_REQUEST) };
    match sender.send_request(sent).await {
        Ok(response) => {
            if let Some(lease) = lease.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
                lease.refuse();
            }
            worker_response(response, end)
        }
        Err(_) => refused(StatusCode::BAD_GATEWAY),
    }
}

/// Builds the request for the service. hyper sets the framing of the body itself.
fn service_request(
    request: Request<Incoming>,
    forward: &ForwardRequest,
    lease: Option<&CredentialLease>,
) -> Option<Request<Incoming>> {
    let (mut parts, body) = request.into_parts();
    let uri = forward.path.parse::<Uri>().ok();
    parts.uri = uri.filter(|uri| uri.scheme().is_none() && uri.authority().is_none())?;
    parts.version = Version::HTTP_11;
    parts.headers = forwarded_headers(&parts.headers);
    parts.headers.insert(HOST, forward.authority.clone());
    parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if let Some(lease) = lease {
        add_credential(&mut parts.headers, lease);
    }
    Some(Request::from_parts(parts, body))
}

fn add_credential(headers: &mut HeaderMap, lease: &CredentialLease) {
    let (name, value) = lease.header();
    let same: Vec<HeaderName> = headers.keys().filter(|key| is_same_header(key, &name)).cloned().collect();
    for key in same {
        headers.remove(key);
    }
    headers.insert(HOST, lease.origin().authority.clone());
    headers.insert(name, value);
}

/// Whether two header names are equal for a service that treats `_` as `-`, as with `x_api_key` (RFC 3875 section
/// 4.1.18).
fn is_same_header(key: &HeaderName, name: &HeaderName) -> bool {
    let plain = |name: &HeaderName| name.as_str().replace('_', "-");
    plain(key) == plain(name)
}

/// Returns the headers that are forwarded.
fn forwarded_headers(headers: &HeaderMap) -> HeaderMap {
    let listed: Vec<&str> =
        headers.get_all(CONNECTION).iter().filter_map(|list| list.to_str().ok()).collect();
    let listed: Vec<&str> = listed.iter().flat_map(|list| list.split(',')).map(str::trim).collect();
    let passes = |key: &HeaderName| {
        !hop_by_hop(key.as_str()) && !listed.iter().any(|name| key.as_str().eq_ignore_ascii_case(name))
    };
    let passing = headers.iter().filter(|(key, _)| passes(key));
    passing.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Builds the answer for the worker.
fn worker_response(response: Response<Incoming>, end: oneshot::Sender<()>) -> Response<AnswerBody> {
    // The proxy never asks for another protocol.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return refused(StatusCode::BAD_GATEWAY);
    }
    let (mut parts, body) = response.into_parts();
    // The answer to HEAD contains the length that the body would have.
    let length = parts.headers.remove(hyper::header::CONTENT_LENGTH);
    parts.headers = forwarded_headers(&parts.headers);
    if let Some(length) = length {
        parts.headers.insert(hyper::header::CONTENT_LENGTH, length);
    }
    parts.version = Version::HTTP_11;
    Response::from_parts(parts, Either::Left(TrackedBody { body, _end: end }))
}

fn refused(status: StatusCode) -> Response<AnswerBody> {
    let mut response = Response::new(Either::Right(Full::default()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
