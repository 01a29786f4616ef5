//! Requests that need no caller: logins, approvals, linked accounts, pages and documents.
//!
//! Keeps true: each is served from the snapshot by which it was evaluated; documents draw from the limit of their client's network,
//! except the keys, without which a service accepts no call.

use asp_call::digest::PeerKey;
use asp_edge::{Reason, Trace};
use asp_protocols::replica::Replica;
use asp_protocols::{approvals, home, login, registry, rest, wellknown};
use asp_snapshot::Snapshot;
use axum::body::Bytes;
use axum::response::Response;
use http::{HeaderValue, header, request::Parts};

/// Answers requests that need no caller.
pub(super) async fn serve(
    gateway: &Replica,
    snapshot: &Snapshot,
    (parts, body, peer): (&Parts, &Bytes, &PeerKey),
    trace: Trace,
) -> Response {
    if let Some(response) = login::serve(gateway, snapshot, (parts, body, peer)).await {
        return response;
    }
    // Boxed, so that the state of every request does not include that of a login.
    let of_approvals = Box::pin(approvals::serve(gateway, snapshot, (parts, body, peer))).await;
    if let Some(response) = of_approvals {
        return response;
    }
    // Boxed, so that the state of every request does not include this one's.
    let account = Box::pin(login::linking::serve_account(gateway, snapshot, (parts, body, peer)));
    if let Some(response) = account.await {
        return response;
    }
    let path = parts.uri.path();
    // The keys are not charged: they cost nothing, and a service without them accepts no call.
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
    if let Some(response) = home::serve(gateway, snapshot, parts) {
        return response;
    }
    let found = wellknown::serve(gateway, snapshot, parts).await;
    found.unwrap_or_else(|| rest::refuse(Reason::UnknownServer, trace))
}
