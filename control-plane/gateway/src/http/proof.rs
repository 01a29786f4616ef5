//! Senders of requests: authentication of what the edge's code forwards unauthenticated (a signed token whose key is newer
//! than the snapshot, an opaque token, a machine's key or certificate), and the network address of the client, for
//! budgets of work done before a caller is authenticated.
//!
//! Refuses: client certificates reported by anyone but an Envoy of the platform, authenticated by the connection's own
//! certificate; a certificate in addition to another credential, which takes precedence; use of the address as identity.
//! Behind Envoy the address is the one the filter wrote into [`asp_edge::PEER_HEADER`]. It is trusted from an Envoy
//! authenticated by its certificate, from a process on this machine, and in a mesh from any peer: there the peer is a
//! sidecar or a proxy that all clients share, and the mesh's rules decide which peers may connect. Otherwise the address
//! is the peer's own.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use asp_call::digest::PeerKey;
use asp_edge::{Caller, KEY_PREFIX, Network, PEER_HEADER, Reason, Reply, RequestFacts, Step, Verdict};
use asp_identity::issuers::introspection::NoCaller;
use asp_peer::{Identity, Role};
use asp_pipeline::pipeline::entitlement::{MachineCredential, machine};
use asp_proto::snapshot::AuthScheme;
use asp_snapshot::Snapshot;
use axum::extract::ConnectInfo;
use http::request::Parts;

use super::RequestCredentials;
use super::client_certificate::{self, ClientCertificate};
use crate::gateway::Gateway;

/// Time that a request waits for the snapshot with its key, once the control plane has named the revision.
const APPLIED: Duration = Duration::from_secs(5);

/// Envoy's header about the certificate that its client presented.
const FORWARDED: &str = "x-forwarded-client-cert";

/// Removes the header from a request, because nothing after this reads it. It is trusted only from an Envoy
/// authenticated on this connection (`asp_peer`), because any client can send a header.
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
                header = FORWARDED,
                "client certificate ignored because its header is repeated; configure Envoy with SANITIZE_SET"
            );
            return None;
        }
        _ => return None,
    };
    match client_certificate::parse(value.as_bytes()) {
        Ok(certificate) => Some(certificate),
        Err(fault) => {
            tracing::warn!(
                header = FORWARDED, %fault,
                "client certificate ignored because its header is not in Envoy's form; configure Envoy with SANITIZE_SET (docs/certificates.md)"
            );
            None
        }
    }
}

/// Returns the request as evaluated so far, if it is not refused.
pub(super) fn admitted(step: &Step) -> Option<&RequestFacts> {
    match step {
        Step::Decided(Verdict::Forward(forward)) => Some(&forward.admitted),
        Step::Decided(Verdict::Reply(_)) => None,
        Step::NeedBody(pending) => Some(&pending.admitted),
    }
}

/// Returns the request as evaluated so far, if it continues without an authenticated caller.
pub(super) fn unverified(step: &Step) -> Option<&RequestFacts> {
    admitted(step).filter(|admitted| admitted.unverified)
}

/// Returns the issuer whose key is named by a token and missing in this snapshot.
pub(super) fn unknown_key_of(step: &Step) -> Option<String> {
    admitted(step)?.unknown_key_of.clone()
}

/// Returns the snapshot with the newest keys of an issuer.
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

/// Returns the caller of a request with an opaque token, or with a machine's key or certificate; `None` if there is
/// none.
pub(super) async fn caller(
    gateway: &Gateway,
    snapshot: &Snapshot,
    offered: &RequestCredentials<'_>,
    admitted: &RequestFacts,
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
        let caller = shown.and_then(|shown| machine(snapshot, server, shown));
        return Ok(caller.map(Arc::new));
    };
    let Some(token) = bearer(authorization) else { return Ok(None) };
    if token.starts_with(KEY_PREFIX) {
        return Ok(machine(snapshot, server, MachineCredential::Key(token)).map(Arc::new));
    }
    if !server.accepts(AuthScheme::Opaque) {
        return Ok(None);
    }
    match gateway.issuers.introspections.caller(snapshot, server, token, &offered.peer).await {
        Ok(caller) => Ok(Some(caller)),
        Err(NoCaller::Invalid) => Ok(None),
        Err(NoCaller::Unavailable) => Err(admitted.refuse(Reason::UpstreamUnavailable)),
        Err(NoCaller::TooMany(seconds)) => {
            let mut refusal = admitted.refuse(Reason::RateLimited);
            refusal.headers.push(("retry-after", seconds.to_string()));
            Err(refusal)
        }
    }
}

/// Returns the authorization header; the edge's code has already refused repeated ones.
pub(super) fn authorization<'a>(headers: &[(&str, &'a [u8])]) -> Option<&'a [u8]> {
    headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization")).map(|(_, value)| *value)
}

fn bearer(value: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}

/// Returns the client's key. IPv6 clients share the key of their /64, the smallest network that is assigned to one site
/// (RFC 6177 section 2). Clients without an address share one key.
pub(super) fn peer_key(parts: &Parts, in_mesh: bool) -> PeerKey {
    let connected =
        parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
    let is_envoy = parts.extensions.get::<Identity>().is_some_and(|peer| peer.role == Role::Envoy);
    let is_local = connected.is_some_and(|address| address.is_loopback());
    let written = parts.headers.get(PEER_HEADER).and_then(|value| value.to_str().ok());
    let written = written.filter(|_| in_mesh || is_envoy || is_local).and_then(address);
    let of_nobody = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match written.or(connected).unwrap_or(of_nobody).to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => (u128::from(address) & (u128::MAX << 64)).to_be_bytes(),
    }
}

/// Returns the network of a client that is connected without an Envoy, which has limits of its own; `None` for an Envoy, for
/// any peer in a mesh, and for this machine, where an Envoy without a certificate may run.
pub(super) fn direct_network(parts: &Parts, in_mesh: bool) -> Option<Network> {
    let is_envoy = parts.extensions.get::<Identity>().is_some_and(|peer| peer.role == Role::Envoy);
    let ConnectInfo(connected) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
    let address = connected.ip().to_canonical();
    (!in_mesh && !is_envoy && !address.is_loopback()).then(|| Network::of(address))
}

/// Returns the key as text, to reserve memory by the client's network.
pub(super) fn network(key: &PeerKey) -> String {
    format!("{:032x}", u128::from_be_bytes(*key))
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| text.parse()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(connected: &str, header: Option<&str>) -> Parts {
        let mut request = http::Request::new(());
        request.extensions_mut().insert(ConnectInfo(connected.parse::<SocketAddr>().unwrap()));
        if let Some(header) = header {
            request.headers_mut().insert(PEER_HEADER, header.parse().unwrap());
        }
        request.into_parts().0
    }

    #[test]
    fn the_header_counts_only_from_this_machine_or_a_proved_envoy() {
        let key = |connected, header| peer_key(&parts(connected, header), false);
        let direct = key("198.51.100.1:5", None);
        assert_eq!(key("198.51.100.1:5", Some("203.0.113.9:1")), direct, "a client's own header");
        let through = key("127.0.0.1:5", Some("198.51.100.1:9"));
        assert_eq!(through, direct);
        assert_eq!(key("127.0.0.1:5", Some("x")), key("127.0.0.1:6", None));
    }

    #[test]
    fn clients_behind_one_proxy_of_a_mesh_are_told_apart_by_the_header() {
        let key = |header| peer_key(&parts("10.0.0.7:5", header), true);
        assert_ne!(key(Some("198.51.100.1:9")), key(Some("198.51.100.2:9")));
        assert_eq!(key(Some("x")), key(None), "what is no address is the proxy's");
    }

    #[test]
    fn only_a_client_without_an_envoy_is_limited_by_the_gateway() {
        let of = |connected, in_mesh| direct_network(&parts(connected, Some("203.0.113.9:1")), in_mesh);
        assert_eq!(of("198.51.100.1:5", false), Network::parse("198.51.100.1"));
        assert_eq!(of("198.51.100.1:5", true), None);
        for local in ["127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert_eq!(of(local, false), None, "{local}");
        }
    }

    #[test]
    fn a_client_cannot_multiply_itself_within_its_ipv6_network() {
        let of = |address: &str| peer_key(&parts(address, None), false);
        assert_eq!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:2:ffff::9]:2"));
        assert_ne!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:3::1]:1"));
        assert_eq!(of("[::ffff:192.0.2.1]:1"), of("192.0.2.1:7"));
    }
}
