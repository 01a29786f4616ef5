//! Checks across settings: requirements of a role, of development mode or of an address beyond loopback.

use std::net::{IpAddr, Ipv4Addr};

use asp_control::issuers;

use super::database::Database;
use super::gateway::{ENV_SEAL_KEY, ENV_XDS_URL};
use super::listen::{ENV_ADMIN_BIND, ENV_GATEWAY_BIND, ENV_GATEWAY_MTLS_PORT, ENV_XDS_BIND, Listen};
use super::runtimes::RuntimeAddress;
use super::s3::ENV_S3_URL;
use super::source::Reader;
use super::tls::{ENV_ADMIN_TLS_CERT, ENV_ADMIN_TLS_KEY, ENV_PEER_CERT};
use super::{ENV_FILTER_WASM, ENV_ISSUERS, ENV_PUBLIC_URL, Settings};
use crate::args::ServeArgs;

impl Settings {
    /// Checks the rules that involve more than one setting.
    pub(super) fn cross_check(&self, reader: &mut Reader<'_>, args: &ServeArgs) {
        if args.stack && !self.dev {
            reader.fault("--stack", "is for development: it needs --dev");
        }
        if args.stack && !(self.roles.control && self.roles.gateway) {
            reader.fault("--stack", "needs both roles in this process");
        }
        if args.stack {
            let wrong = |address: IpAddr| address != IpAddr::V4(Ipv4Addr::LOCALHOST);
            self.faulty_binds(reader, wrong, "must be 127.0.0.1 with --stack: Envoy's bootstrap looks there");
        }
        if args.stack && !self.filter_wasm.is_file() {
            let message =
                format!("is not a file: {}; `make wasm` builds the filter", self.filter_wasm.display());
            reader.fault(ENV_FILTER_WASM, message);
        }
        if self.dev && !args.stack {
            let wrong = |address: IpAddr| !address.is_loopback();
            self.faulty_binds(
                reader,
                wrong,
                "must be a loopback address with --dev: anyone can mint its tokens",
            );
        }
        if !self.dev && self.public_url.is_none() {
            reader.fault(ENV_PUBLIC_URL, "is required without --dev");
        }
        if !self.dev && self.roles.gateway && self.gateway.seal.is_none() {
            reader.fault(ENV_SEAL_KEY, "is required without --dev: replicas must open each other's sessions");
        }
        let by_tls = |runtime: &RuntimeAddress| runtime.url.starts_with("https://");
        if self.gateway.runtimes.iter().any(by_tls) && self.peer.is_none() {
            reader.fault(ENV_PEER_CERT, "is required with ASP_PEER_KEY and ASP_PEER_CA for an https runtime");
        }
        if self.listen.gateway_mtls_port.is_some() {
            self.check_mtls_port(reader, args);
        }
        self.check_exposure(reader);
        if let Some(s3) = &self.s3 {
            s3.check(reader, (self.dev, self.mesh));
            if !matches!(self.database, Database::Postgres(_)) {
                let message =
                    "needs PostgreSQL in ASP_DATABASE_URL, which says what is there and holds the quotas";
                reader.fault(ENV_S3_URL, message);
            }
        }
        for fault in self.issuers.iter().flat_map(|path| issuers::faults(path, self.dev)) {
            reader.fault(ENV_ISSUERS, fault);
        }
        if !self.roles.control && self.gateway.xds_urls.is_none() {
            reader.fault(ENV_XDS_URL, "is required without the control role");
        }
        if !self.roles.control && self.primitives.is_some() {
            reader.fault("--primitives", "needs the control role");
        }
    }

    /// Reports every listener whose address is `wrong`.
    fn faulty_binds(&self, reader: &mut Reader<'_>, wrong: impl Fn(IpAddr) -> bool, message: &str) {
        let Listen { bind, admin, gateway, xds, .. } = self.listen;
        if wrong(bind) {
            reader.fault("--bind", message);
        }
        for (name, address) in [(ENV_ADMIN_BIND, admin), (ENV_GATEWAY_BIND, gateway), (ENV_XDS_BIND, xds)] {
            if address != bind && wrong(address) {
                reader.fault(name, message);
            }
        }
    }

    /// Checks the mutual TLS listener: it requires certificates, the gateway role, and an Envoy that presents a certificate.
    fn check_mtls_port(&self, reader: &mut Reader<'_>, args: &ServeArgs) {
        if self.peer.is_none() {
            let message =
                format!("is required with {ENV_GATEWAY_MTLS_PORT}, and ASP_PEER_KEY and ASP_PEER_CA");
            reader.fault(ENV_PEER_CERT, message);
        }
        if !self.roles.gateway {
            reader.fault(ENV_GATEWAY_MTLS_PORT, "needs the gateway role");
        }
        if args.stack {
            reader.fault(ENV_GATEWAY_MTLS_PORT, "is not for --stack, whose Envoy has no certificate");
        }
    }

    /// Rejects plaintext listeners beyond this machine, unless a mesh encrypts.
    fn check_exposure(&self, reader: &mut Reader<'_>) {
        if self.dev || self.mesh {
            return;
        }
        let Listen { admin, gateway, xds, .. } = self.listen;
        if self.roles.control && !xds.is_loopback() && self.peer.is_none() {
            let message = "is required beyond loopback, with ASP_PEER_KEY and ASP_PEER_CA: whoever subscribes \
                           learns every policy (or ASP_PEER_PLAINTEXT=mesh)";
            reader.fault(ENV_PEER_CERT, message);
        }
        if self.roles.control && !admin.is_loopback() && self.admin_tls.is_none() {
            let message = format!(
                "is required with {ENV_ADMIN_TLS_KEY}: the admin API would be reachable at {admin} with admin tokens in \
                 clear. Give it a certificate, or set {ENV_ADMIN_BIND} to 127.0.0.1, or ASP_PEER_PLAINTEXT=mesh where \
                 something else encrypts (docs/certificates.md)"
            );
            reader.fault(ENV_ADMIN_TLS_CERT, message);
        }
        if self.proved_alone() && self.listen.gateway_mtls_port.is_none() {
            let message = format!(
                "is required with ASP_PEER_*: the gateway would be reachable at {gateway} with clients' tokens in clear. Let \
                 Envoys come by mutual TLS (envoy/gateway-mtls.json), or set {ENV_GATEWAY_BIND} to 127.0.0.1, or \
                 ASP_PEER_PLAINTEXT=mesh where something else encrypts (docs/certificates.md)"
            );
            reader.fault(ENV_GATEWAY_MTLS_PORT, message);
        }
    }
}
