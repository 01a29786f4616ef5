//! A plain request that the proxy sends itself. Where a call brought a credential for its origin, it is proved: the proxy speaks
//! TLS with the service where the origin says so, and adds the header that no worker sees.
//!
//! Refuses bodies whose end two readers may find in two places and, with a credential, methods whose answer repeats the
//! request. Keeps true: one request goes to the service on a connection of its own; the host and what frames the body are
//! the proxy's, whatever the worker wrote, and so is the header, which is added while a call runs that brought it; nothing of
//! them comes back; no redirect is followed.
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

use super::head::{Head, hop_by_hop};
use super::lent::{Lending, Lent, Origin};

/// More than any client sends, in a head of at most `MAX_HEAD`.
const MAX_HEADERS: usize = 256;
/// They answer with the request as it came (RFC 9110 section 9.3.8), the header included.
const ECHOING: [&str; 2] = ["TRACE", "TRACK"];

/// Whom to believe that it is the service. Clones share what was read.
#[derive(Clone, Default)]
pub struct Trust(Arc<OnceLock<Option<TlsConnector>>>);

type Body = Either<Told, Full<Bytes>>;

/// The body of an answer, which tells of its end by being dropped.
struct Told {
    body: Incoming,
    _end: oneshot::Sender<()>,
}

impl hyper::body::Body for Told {
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

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust").finish_non_exhaustive()
    }
}

impl Trust {
    #[cfg(test)]
    pub(super) fn of(config: ClientConfig) -> Trust {
        Trust(Arc::new(OnceLock::from(Some(TlsConnector::from(Arc::new(config))))))
    }

    /// What this machine trusts, read when it is needed first. `None`: that is nobody, as the log says.
    fn connector(&self) -> Option<&TlsConnector> {
        let read = || match of_this_machine() {
            Ok(config) => Some(TlsConnector::from(Arc::new(config))),
            Err(error) => {
                tracing::error!(%error, "this machine trusts no certificates, so no credential is sent over TLS: install its authorities, or name them by SSL_CERT_FILE");
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

/// Whether the body has one end, and the path is one (RFC 3986 section 2).
pub(super) fn is_clear(head: &Head) -> bool {
    head.is_framed && head.path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether the answer repeats the request, and with it a credential.
pub(super) fn is_repeated(head: &Head) -> bool {
    ECHOING.contains(&head.method.as_str())
}

/// A connection to the service.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The service at the other end of a connection to the origin's address. `None`: it is not the one, as the log says.
pub(super) async fn secure(stream: TcpStream, lent: &Lent, trust: &Trust) -> Option<Box<dyn Stream>> {
    let Origin { tls, host, .. } = lent.origin();
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
            let credential = &lent.name;
            tracing::warn!(credential, host, %error, "a credential is not sent to its service, whose TLS does not prove it: let this machine trust its authority (SSL_CERT_FILE)");
            None
        }
    }
}

/// What a worker asked of the proxy.
pub(super) struct Asked {
    /// Path and query.
    pub(super) path: String,
    /// The host that was judged, as a request names it.
    pub(super) authority: HeaderValue,
    /// The request as far as it was read: its head and perhaps some of its body.
    pub(super) read: Vec<u8>,
    pub(super) proof: Option<Proof>,
}

/// The credential by which a request is proved.
pub(super) struct Proof {
    pub(super) lending: Arc<Lending>,
    pub(super) lent: Arc<Lent>,
}

/// Passes on one request and its answer. Ends with the worker's connection.
pub(super) async fn exchange(worker: UnixStream, mut asked: Asked, service: Box<dyn Stream>) {
    let mut client = hyper::client::conn::http1::Builder::new();
    client.max_headers(MAX_HEADERS);
    let Ok((sender, connection)) = client.handshake(TokioIo::new(service)).await else { return };
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let read = std::mem::take(&mut asked.read);
    let (unread, answers) = worker.into_split();
    let worker = tokio::io::join(Cursor::new(read).chain(unread), answers);
    let (end, ended) = oneshot::channel();
    // For the one request.
    let once = Mutex::new(Some((sender, end)));
    let asked = &asked;
    let pass = service_fn(|request| {
        let once = once.lock().take();
        async move { Ok::<_, Infallible>(answer(request, asked, once).await) }
    });
    let mut serving = hyper::server::conn::http1::Builder::new();
    serving.keep_alive(false).max_headers(MAX_HEADERS);
    let mut serving = std::pin::pin!(serving.serve_connection(TokioIo::new(worker), pass));
    // Err: one side broke off, which ends the other.
    tokio::select! {
        _ = &mut serving => return,
        _ = ended => {}
    }
    // Nobody waits for what is left of a request that was answered; what is left of the answer still goes out.
    drop(connection);
    let _ = serving.await;
}

async fn answer(
    request: Request<Incoming>,
    asked: &Asked,
    once: Option<(SendRequest<Incoming>, oneshot::Sender<()>)>,
) -> Response<Body> {
    // Again: the call that brought the credential may have ended while the service was connected to.
    let lent = asked.proof.as_ref().map(|proof| proof.lending.current(&proof.lent));
    if let Some(None) = lent {
        return refused(StatusCode::FORBIDDEN);
    }
    let lent = lent.flatten();
    let sent = sent(request, asked, lent.as_deref());
    let Some(((mut sender, end), sent)) = once.zip(sent) else { return refused(StatusCode::BAD_REQUEST) };
    match sender.send_request(sent).await {
        Ok(response) => {
            if let Some(lent) = lent.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
                lent.refuse();
            }
            returned(response, end)
        }
        Err(_) => refused(StatusCode::BAD_GATEWAY),
    }
}

/// The request as the service gets it. hyper frames the body anew.
fn sent(request: Request<Incoming>, asked: &Asked, lent: Option<&Lent>) -> Option<Request<Incoming>> {
    let (mut parts, body) = request.into_parts();
    let uri = asked.path.parse::<Uri>().ok();
    parts.uri = uri.filter(|uri| uri.scheme().is_none() && uri.authority().is_none())?;
    parts.version = Version::HTTP_11;
    parts.headers = passing(&parts.headers);
    parts.headers.insert(HOST, asked.authority.clone());
    parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if let Some(lent) = lent {
        prove(&mut parts.headers, lent);
    }
    Some(Request::from_parts(parts, body))
}

fn prove(headers: &mut HeaderMap, lent: &Lent) {
    let (name, value) = lent.header();
    let same: Vec<HeaderName> = headers.keys().filter(|key| is_same(key, &name)).cloned().collect();
    for key in same {
        headers.remove(key);
    }
    headers.insert(HOST, lent.origin().authority.clone());
    headers.insert(name, value);
}

/// Some services read `x_api_key` as `x-api-key` (RFC 3875 section 4.1.18).
fn is_same(key: &HeaderName, name: &HeaderName) -> bool {
    let plain = |name: &HeaderName| name.as_str().replace('_', "-");
    plain(key) == plain(name)
}

/// The headers that pass a hop.
fn passing(headers: &HeaderMap) -> HeaderMap {
    let listed: Vec<&str> =
        headers.get_all(CONNECTION).iter().filter_map(|list| list.to_str().ok()).collect();
    let listed: Vec<&str> = listed.iter().flat_map(|list| list.split(',')).map(str::trim).collect();
    let passes = |key: &HeaderName| {
        !hop_by_hop(key.as_str()) && !listed.iter().any(|name| key.as_str().eq_ignore_ascii_case(name))
    };
    let passing = headers.iter().filter(|(key, _)| passes(key));
    passing.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The answer as the worker gets it.
fn returned(response: Response<Incoming>, end: oneshot::Sender<()>) -> Response<Body> {
    // Nobody asked for another protocol.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return refused(StatusCode::BAD_GATEWAY);
    }
    let (mut parts, body) = response.into_parts();
    // A HEAD's answer tells how long the body would be.
    let length = parts.headers.remove(hyper::header::CONTENT_LENGTH);
    parts.headers = passing(&parts.headers);
    if let Some(length) = length {
        parts.headers.insert(hyper::header::CONTENT_LENGTH, length);
    }
    parts.version = Version::HTTP_11;
    Response::from_parts(parts, Either::Left(Told { body, _end: end }))
}

fn refused(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::default()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
