//! Checks across settings: requirements of a role, of development mode or of an address beyond loopback.

use std::net::{IpAddr, Ipv4Addr};

use super::runtimes::RuntimeAddress;
use super::source::Checks;
use super::{ENV_ISSUERS, ENV_PUBLIC_URL, Settings};
use crate::args::ServeArgs;

impl Settings {
    /// Checks the rules that involve more than one setting.
    pub(super) fn cross_check(&self, checks: &mut Checks<'_>, args: &ServeArgs) {
        if args.stack && !self.dev {
            checks.fault("--stack", "is for development: it needs --dev");
        }
        if args.stack && !(self.roles.control && self.roles.gateway) {
            checks.fault("--stack", "needs both roles in this process");
        }
        if args.stack {
            let wrong = |address: IpAddr| address != IpAddr::V4(Ipv4Addr::LOCALHOST);
            self.faulty_binds(checks, wrong, "must be 127.0.0.1 with --stack: Envoy's bootstrap looks there");
        }
        if args.stack && !self.filter_wasm.is_file() {
            let message =
                format!("is not a file: {}; `make wasm` builds the filter", self.filter_wasm.display());
            checks.fault("ASP_FILTER_WASM", message);
        }
        if self.dev && !args.stack {
            let wrong = |address: IpAddr| !address.is_loopback();
            self.faulty_binds(
                checks,
                wrong,
                "must be a loopback address with --dev: anyone can mint its tokens",
            );
        }
        if !self.dev && self.public_url.is_none() {
            checks.fault(ENV_PUBLIC_URL, "is required without --dev");
        }
        if !self.dev && self.roles.gateway && self.gateway.seal_key.is_none() {
            checks
                .fault("ASP_SEAL_KEY", "is required without --dev: replicas must open each other's sessions");
        }
        let by_tls = |runtime: &RuntimeAddress| runtime.url.starts_with("https://");
        if self.gateway.runtimes.iter().any(by_tls) && self.peer.is_none() {
            checks
                .fault("ASP_PEER_CERT", "is required with ASP_PEER_KEY and ASP_PEER_CA for an https runtime");
        }
        if self.listen.gateway_mtls_port.is_some() {
            self.check_mtls_port(checks, args);
        }
        self.check_exposure(checks);
        self.s3.check(checks, self);
        self.kafka.check(checks, self);
        self.vault.check(checks, self);
        for fault in self.issuers.iter().flat_map(|path| asp_issuers::faults(path, self.dev)) {
            checks.fault(ENV_ISSUERS, fault);
        }
        if !self.roles.control && self.gateway.xds_urls.is_none() {
            checks.fault("ASP_XDS_URL", "is required without the control role");
        }
        if !self.roles.control && self.primitives.is_some() {
            checks.fault("--primitives", "needs the control role");
        }
    }

    /// Reports every listener whose address is `wrong`.
    fn faulty_binds(&self, checks: &mut Checks<'_>, wrong: impl Fn(IpAddr) -> bool, message: &str) {
        let listen = &self.listen;
        if wrong(listen.bind) {
            checks.fault("--bind", message);
        }
        for (name, address) in [
            ("ASP_ADMIN_BIND", listen.admin()),
            ("ASP_GATEWAY_BIND", listen.gateway()),
            ("ASP_XDS_BIND", listen.xds()),
        ] {
            if address != listen.bind && wrong(address) {
                checks.fault(name, message);
            }
        }
    }

    /// Checks the mutual TLS listener: it requires certificates, the gateway role, and an Envoy that presents a certificate.
    fn check_mtls_port(&self, checks: &mut Checks<'_>, args: &ServeArgs) {
        if self.peer.is_none() {
            checks.fault(
                "ASP_PEER_CERT",
                "is required with ASP_GATEWAY_MTLS_PORT, and ASP_PEER_KEY and ASP_PEER_CA",
            );
        }
        if !self.roles.gateway {
            checks.fault("ASP_GATEWAY_MTLS_PORT", "needs the gateway role");
        }
        if args.stack {
            checks.fault("ASP_GATEWAY_MTLS_PORT", "is not for --stack, whose Envoy has no certificate");
        }
    }

    /// Rejects plaintext listeners beyond this machine, unless a mesh encrypts.
    fn check_exposure(&self, checks: &mut Checks<'_>) {
        if self.dev || self.in_mesh() {
            return;
        }
        let admin = self.listen.admin();
        let gateway = self.listen.gateway();
        let xds = self.listen.xds();
        if self.roles.control && !xds.is_loopback() && self.peer.is_none() {
            let message = "is required beyond loopback, with ASP_PEER_KEY and ASP_PEER_CA, because subscribers \
                           receive every policy (or set ASP_PEER_PLAINTEXT=mesh)";
            checks.fault("ASP_PEER_CERT", message);
        }
        if self.roles.control && !admin.is_loopback() && self.admin_tls.is_none() {
            let message = format!(
                "is required with ASP_ADMIN_TLS_KEY: the admin API would be reachable at {admin} with admin tokens in \
                 clear. Give it a certificate, or set ASP_ADMIN_BIND to 127.0.0.1, or ASP_PEER_PLAINTEXT=mesh where \
                 something else encrypts (docs/certificates.md)"
            );
            checks.fault("ASP_ADMIN_TLS_CERT", message);
        }
        if self.requires_mutual_tls() && self.listen.gateway_mtls_port.is_none() {
            let message = format!(
                "is required with ASP_PEER_*: the gateway would be reachable at {gateway} with clients' tokens in clear. Let \
                 Envoys come by mutual TLS (envoy/gateway-mtls.json), or set ASP_GATEWAY_BIND to 127.0.0.1, or \
                 ASP_PEER_PLAINTEXT=mesh where something else encrypts (docs/certificates.md)"
            );
            checks.fault("ASP_GATEWAY_MTLS_PORT", message);
        }
    }
}
