//! Checks before the caller is found: repeated headers, Host, Origin and preflight; and the root paths, for which nothing else
//! is checked.
//!
//! Keeps true: an Origin is echoed only once it is allowed; no public path reads more than a form.

use crate::cors;
use crate::headers::Headers;
use crate::path::{PathKind, RequestTarget};
use crate::reason::Reason;
use crate::reply::{self, ErrorFormat, Reply};
use crate::server::Server;
use crate::verdict::{Forward, RequestFacts, Step, Verdict};

/// Maximum body size, in bytes, of a request to a root path or to a public document: nothing larger than a form is read
/// there.
pub(super) const PUBLIC_MAX_BODY_BYTES: usize = 64 * 1024;

/// Checks for repeated headers, gRPC's method and media type, Host and Origin; answers a preflight. Refusals after this
/// check are readable for the Origin.
pub(super) fn check_caller_headers(
    target: &RequestTarget<'_>,
    server: &Server,
    headers: &Headers<'_>,
    errors: &mut ErrorFormat,
) -> Result<(), Reply> {
    let is_grpc = || headers.method == b"POST" && reply::is_grpc(headers.content_type);
    if headers.repeated || (target.path_kind == PathKind::A2aGrpc && !is_grpc()) {
        return Err(errors.refuse(Reason::InvalidRequest));
    }
    if !server.hosts.allow(headers.host) {
        return Err(errors.refuse(Reason::HostDenied));
    }
    // Every origin may read public documents.
    let allowed = |origin: &[u8]| target.path_kind == PathKind::Public || server.origins.allow(origin);
    if headers.origin.is_some_and(|origin| !allowed(origin)) {
        return Err(errors.refuse(Reason::OriginDenied));
    }
    errors.origin = headers.origin.and_then(text);
    preflight(headers, errors.origin.as_deref()).map_or(Ok(()), Err)
}

/// Evaluates root documents and health, which are public and belong to no server. `is_root_host`: whether a page may
/// read documents under this host name.
pub(super) fn root(
    target: &RequestTarget<'_>,
    is_root_host: bool,
    headers: &Headers<'_>,
    mut errors: ErrorFormat,
) -> Result<Step, Reply> {
    if headers.repeated {
        return Err(errors.refuse(Reason::InvalidRequest));
    }
    // Every browser sends a host.
    if target.path_kind != PathKind::Health && headers.host.is_some() && !is_root_host {
        return Err(errors.refuse(Reason::HostDenied));
    }
    errors.origin = headers.origin.and_then(text);
    preflight(headers, errors.origin.as_deref()).map_or(Ok(()), Err)?;
    if headers.declared_length().is_some_and(|length| length > PUBLIC_MAX_BODY_BYTES as u64) {
        return Err(errors.refuse(Reason::BodyTooLarge));
    }
    Ok(Step::Decided(Verdict::Forward(Box::new(Forward {
        remove: headers.internal.clone(),
        set: Vec::new(),
        clear_route: false,
        admitted: RequestFacts::of(target, &errors, PUBLIC_MAX_BODY_BYTES),
    }))))
}

/// Returns a value that may be echoed in a response header.
fn text(value: &[u8]) -> Option<String> {
    let printable = !value.is_empty() && value.iter().all(u8::is_ascii_graphic);
    printable.then(|| String::from_utf8_lossy(value).into_owned())
}

fn preflight(headers: &Headers<'_>, origin: Option<&str>) -> Option<Reply> {
    let asked = headers.method == b"OPTIONS" && headers.preflight_method.is_some();
    origin.filter(|_| asked).map(|origin| cors::preflight(origin, headers.preflight_headers))
}
