//! One server of a snapshot, indexed for the evaluation of requests.
//!
//! Owns the defaults of what a server leaves out and rejects a server that could not be evaluated: a bad name, an
//! unknown issuer. A server without any scheme requires a signed token; a scheme that is unknown here admits no caller.

use asp_proto::snapshot::{AuthScheme, EdgeServer, Protocol};

use crate::error::SnapshotError;
use crate::machine::MACHINE_ISSUER;
use crate::names;
use crate::origin::{Hosts, Origins};
use crate::path::PathKind;
use crate::token::claims::canonical_audience;
use crate::token::issuer::Issuers;

const DEFAULT_MAX_BODY_BYTES: usize = 1 << 20;
/// Envoy's buffer size (`request_body_buffer_limit` in envoy/bootstrap.yaml), so that the answer is the same with and
/// without Envoy.
const MAX_BODY_BYTES: usize = 4 << 20;

/// Settings of a server that the edge needs.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) default_allow: bool,
    pub(crate) origins: Origins,
    pub(crate) hosts: Hosts,
    pub(crate) issuers: Vec<String>,
    /// Accepted `aud` values, canonical.
    pub(crate) audiences: Vec<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) max_body: usize,
    pub(crate) accepts: AcceptedCredentials,
    protocols: Vec<i32>,
}

/// Credentials that a server accepts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AcceptedCredentials {
    /// Signed token, verified at the edge.
    pub(crate) jwt: bool,
    /// Bearer token that only the gateway can verify.
    pub(crate) opaque: bool,
    /// Machine key, sent as a bearer credential, which only the gateway can verify.
    pub(crate) psk: bool,
    /// Credential outside of `Authorization` that only the gateway can verify: a client certificate.
    pub(crate) elsewhere: bool,
    /// No credential at all.
    pub(crate) nothing: bool,
}

impl Server {
    /// `all_servers`: whether the server [`names::ALL_SERVERS`] stands for all others.
    pub(crate) fn index(
        message: &EdgeServer,
        (public_url, all_servers): (&str, bool),
        dev: bool,
        issuers: &Issuers,
    ) -> Result<Server, SnapshotError> {
        let fault = |member: &str, fault: &str| {
            Err(SnapshotError::invalid(format!("servers[{}].{member}", message.name), fault))
        };
        if !names::is_label(&message.name) {
            return fault("name", "is not [a-z0-9-]{1,63}");
        }
        if let Some(unknown) = message.issuers.iter().find(|name| !issuers.has_name(name)) {
            return fault("issuers", &format!("names the unknown issuer {unknown:?}"));
        }
        if message.scopes.iter().any(|scope| !is_scope(scope)) {
            return fault("scopes", "has an entry that is not a valid scope");
        }
        let audiences = audiences(message, public_url, all_servers);
        let max_body = match usize::try_from(message.max_body_bytes) {
            Ok(bytes) if bytes > 0 => bytes.min(MAX_BODY_BYTES),
            _ => DEFAULT_MAX_BODY_BYTES,
        };
        let accepts = accepts(&message.schemes);
        Ok(Server {
            name: message.name.clone(),
            default_allow: message.default_allow,
            origins: Origins::new(&message.origins, public_url, dev),
            hosts: Hosts::new(&message.hosts, public_url, dev && accepts.nothing),
            issuers: message.issuers.clone(),
            audiences: audiences.iter().map(|audience| canonical_audience(audience)).collect(),
            scopes: message.scopes.clone(),
            max_body,
            accepts,
            protocols: message.protocols.clone(),
        })
    }

    /// Whether the server accepts callers of this issuer.
    pub(crate) fn accepts_issuer(&self, issuer: &str) -> bool {
        match issuer {
            // The gateway has checked which of the two credentials it was.
            MACHINE_ISSUER => self.accepts.psk || self.accepts.elsewhere,
            issuer => self.issuers.iter().any(|known| known == issuer),
        }
    }

    /// Whether the server is served over this protocol at all, for any caller.
    pub(crate) fn has(&self, path_kind: PathKind) -> bool {
        protocol(path_kind).is_none_or(|protocol| self.protocols.contains(&(protocol as i32)))
    }
}

/// Returns the protocol whose exposure setting applies to a kind of path; `None` for public documents.
pub(crate) fn protocol(path_kind: PathKind) -> Option<Protocol> {
    match path_kind {
        PathKind::Mcp => Some(Protocol::Mcp),
        PathKind::A2a | PathKind::A2aRest | PathKind::A2aRestV03 | PathKind::A2aGrpc => Some(Protocol::A2a),
        PathKind::Rest => Some(Protocol::Rest),
        PathKind::Public | PathKind::Health => None,
    }
}

/// Returns the accepted `aud` values: the listed ones, otherwise the default ones. The server that stands for all others
/// accepts both, and its own are defaults of the others.
fn audiences(message: &EdgeServer, public_url: &str, all_servers: bool) -> Vec<String> {
    let own = |name: &str| [format!("{public_url}/{name}"), format!("{public_url}/{name}/mcp")];
    let is_all = all_servers && message.name == names::ALL_SERVERS;
    let mut audiences = message.audiences.clone();
    if audiences.is_empty() || is_all {
        audiences.push(public_url.to_owned());
        audiences.extend(own(&message.name));
        if all_servers && !is_all {
            audiences.extend(own(names::ALL_SERVERS));
        }
    }
    audiences
}

fn accepts(schemes: &[i32]) -> AcceptedCredentials {
    let mut accepts = AcceptedCredentials::default();
    for scheme in schemes {
        match AuthScheme::try_from(*scheme) {
            Ok(AuthScheme::Opaque) => accepts.opaque = true,
            Ok(AuthScheme::Psk) => accepts.psk = true,
            Ok(AuthScheme::Mtls) => accepts.elsewhere = true,
            Ok(AuthScheme::None) => accepts.nothing = true,
            Ok(AuthScheme::Jwt) => accepts.jwt = true,
            // Scheme of a newer snapshot: admits no caller here.
            Ok(AuthScheme::Unspecified) | Err(_) => {}
        }
    }
    accepts.jwt |= schemes.is_empty();
    accepts
}

/// Whether `scope` is a scope-token of RFC 6749 section 3.3, which is safe to quote in a header.
fn is_scope(scope: &str) -> bool {
    !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_all_servers_is_a_default_audience_and_accepts_listed_ones_too() {
        let of = |name: &str, listed: &[&str], all_servers: bool| {
            let listed = listed.iter().map(|audience| (*audience).to_owned()).collect();
            let server = EdgeServer { name: name.into(), audiences: listed, ..EdgeServer::default() };
            audiences(&server, "https://h", all_servers)
        };
        let own = ["https://h", "https://h/demo", "https://h/demo/mcp"];
        let all = ["https://h/all", "https://h/all/mcp"];
        assert_eq!(of("demo", &[], false), own);
        assert_eq!(of("demo", &[], true), [own.as_slice(), &all].concat());
        assert_eq!(of("demo", &["api://demo"], true), ["api://demo"]);
        assert_eq!(
            of("all", &["api://demo"], true),
            ["api://demo", "https://h", "https://h/all", "https://h/all/mcp"]
        );
        assert_eq!(of("all", &["api://demo"], false), ["api://demo"], "an ordinary server");
    }

    #[test]
    fn an_unknown_scheme_admits_nobody() {
        for unknown in [AuthScheme::Unspecified as i32, 99, -1] {
            let accepts = accepts(&[unknown]);
            let any = accepts.jwt || accepts.opaque || accepts.psk || accepts.elsewhere || accepts.nothing;
            assert!(!any, "{unknown}: {accepts:?}");
        }
        let beside_a_known_one = accepts(&[99, AuthScheme::Psk as i32]);
        assert!(beside_a_known_one.psk && !beside_a_known_one.jwt);
        assert!(accepts(&[]).jwt, "a server without schemes wants a signed token");
    }
}
