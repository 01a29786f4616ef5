//! Who calls, where the edge's code has passed a request on unjudged: a signed token whose key is newer than the
//! snapshot, an opaque one, a machine's key, or its certificate.
//!
//! Refuses: to believe anybody but an Envoy of the platform, which a connection's own certificate proves, what certificate
//! a client has shown; and a certificate beside another credential, which is the one that counts.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::{Admitted, Caller, Face, KEY_PREFIX, Reason, Reply, Step, Verdict};
use asp_peer::{Identity, Role};
use asp_proto::snapshot::AuthScheme;
use asp_snapshot::Snapshot;
use http::request::Parts;

use super::Offered;
use super::client_certificate::{self, ClientCertificate};
use crate::gateway::Gateway;
use crate::issuers::introspection::NoCaller;
use crate::pipeline::identity::{self, MachineCredential};

/// How long a request waits for the snapshot that has its key, once the control plane has said which one it is.
const APPLIED: Duration = Duration::from_secs(5);

/// What Envoy says of the certificate that its client has shown.
const FORWARDED: &str = "x-forwarded-client-cert";

/// Takes the header from a request, whoever sent it: nothing behind this reads it. What it says is believed of an Envoy
/// that has proved its role on this very connection (`asp_peer`), and of nobody else: any client can write a header.
pub(super) fn client_certificate(parts: &mut Parts) -> Option<ClientCertificate> {
    if !parts.headers.contains_key(FORWARDED) {
        return None;
    }
    let is_envoy = parts.extensions.get::<Identity>().is_some_and(|peer| peer.role == Role::Envoy);
    let values: Vec<_> = parts.headers.get_all(FORWARDED).iter().cloned().collect();
    parts.headers.remove(FORWARDED);
    let value = match values.as_slice() {
        [value] if is_envoy => value,
        [_, _, ..] if is_envoy => {
            tracing::warn!(
                "a client certificate is not believed: the header {FORWARDED} is there twice; Envoy must say SANITIZE_SET"
            );
            return None;
        }
        _ => return None,
    };
    match client_certificate::parse(value.as_bytes()) {
        Ok(certificate) => Some(certificate),
        Err(fault) => {
            tracing::warn!(%fault, "a client certificate is not believed: {FORWARDED} is not as Envoy writes it with SANITIZE_SET (docs/certificates.md)");
            None
        }
    }
}

/// What is known of a request so far, where it goes on.
fn admitted(step: &Step) -> Option<&Admitted> {
    match step {
        Step::Decided(Verdict::Forward(forward)) => Some(&forward.admitted),
        Step::Decided(Verdict::Reply(_)) => None,
        Step::NeedBody(pending) => Some(&pending.admitted),
    }
}

/// What is known of a request that goes on, and of whose caller nothing is known.
pub(super) fn unjudged(step: &Step) -> Option<&Admitted> {
    admitted(step).filter(|admitted| admitted.unverified)
}

/// The issuer whose key a request's token names and this snapshot has not.
pub(super) fn unknown_key_of(step: &Step) -> Option<String> {
    admitted(step)?.unknown_key_of.clone()
}

/// The snapshot with the newest keys of an issuer.
pub(super) async fn with_newest_keys(
    gateway: &Gateway,
    snapshot: Arc<Snapshot>,
    issuer: String,
) -> Arc<Snapshot> {
    if let Some(revision) = gateway.issuers.fresh_keys.of(&issuer).await {
        gateway.until(revision, APPLIED).await;
    }
    gateway.snapshot().unwrap_or(snapshot)
}

/// The caller of a request with an opaque token, or a machine's key or certificate; `None`: it has none.
pub(super) async fn caller(
    gateway: &Gateway,
    snapshot: &Snapshot,
    offered: &Offered<'_>,
    admitted: &Admitted,
) -> Result<Option<Arc<Caller>>, Reply> {
    if admitted.unknown_key_of.is_some() {
        return Ok(None);
    }
    let Some(server) = snapshot.server(&admitted.server) else { return Ok(None) };
    let Some(authorization) = authorization(offered.headers) else {
        let shown = offered.certificate.as_ref().map(|shown| MachineCredential::Certificate {
            fingerprint: shown.fingerprint,
            uri: shown.uri.as_deref(),
            all_uris: &shown.all_uris,
        });
        let caller = shown.and_then(|shown| identity::machine(snapshot, server, shown));
        return Ok(caller.map(Arc::new));
    };
    let Some(token) = bearer(authorization) else { return Ok(None) };
    if token.starts_with(KEY_PREFIX) {
        return Ok(identity::machine(snapshot, server, MachineCredential::Key(token)).map(Arc::new));
    }
    if !server.accepts(AuthScheme::Opaque) {
        return Ok(None);
    }
    match gateway.issuers.introspections.caller(snapshot, server, token, &offered.peer).await {
        Ok(caller) => Ok(Some(caller)),
        Err(NoCaller::Invalid) => Ok(None),
        Err(NoCaller::Unavailable) => Err(refused(admitted, Reason::UpstreamUnavailable)),
        Err(NoCaller::TooMany(seconds)) => {
            let mut refusal = refused(admitted, Reason::RateLimited);
            refusal.headers.push(("retry-after", seconds.to_string()));
            Err(refusal)
        }
    }
}

fn refused(admitted: &Admitted, reason: Reason) -> Reply {
    let era = admitted.era;
    let trace = Some(admitted.trace);
    match admitted.face {
        Face::Mcp | Face::A2a => asp_edge::refuse(reason, era, None, trace),
        Face::Rest | Face::Public | Face::Health => asp_edge::refuse_problem(reason, era, trace),
    }
}

/// What the request offers in its header; of several the edge's code has refused it.
pub(super) fn authorization<'a>(headers: &[(&str, &'a [u8])]) -> Option<&'a [u8]> {
    headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization")).map(|(_, value)| *value)
}

fn bearer(value: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}
