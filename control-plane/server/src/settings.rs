//! Every setting of `asp serve`, read once at start into typed sections.
//!
//! A flag wins over the environment, the environment over the default. Keeps true: all faults are found
//! and reported together, and a secret prints as `***`.

pub mod calls;
pub mod delegates;
mod runtimes;
pub mod source;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use crate::args::ServeArgs;
use crate::issuers;
use crate::plugins::languages::runtime_binary;
use asp_platform::secret::Secret;
use calls::CallSection;
use delegates::DelegateSection;
use source::{Environment, Fault, Reader};

pub const ENV_PORT: &str = "ASP_PORT";
pub const ENV_ADMIN_PORT: &str = "ASP_ADMIN_PORT";
pub const ENV_GATEWAY_PORT: &str = "ASP_GATEWAY_PORT";
pub const ENV_XDS_PORT: &str = "ASP_XDS_PORT";
pub const ENV_ENVOY_ADMIN_PORT: &str = "ASP_ENVOY_ADMIN_PORT";
pub const ENV_BIND: &str = "ASP_BIND";
pub const ENV_ADMIN_BIND: &str = "ASP_ADMIN_BIND";
pub const ENV_GATEWAY_BIND: &str = "ASP_GATEWAY_BIND";
pub const ENV_XDS_BIND: &str = "ASP_XDS_BIND";
pub const ENV_STATE_DIR: &str = "ASP_STATE_DIR";
pub const ENV_PUBLIC_URL: &str = "ASP_PUBLIC_URL";
pub const ENV_DATABASE_URL: &str = "ASP_DATABASE_URL";
pub const ENV_FILTER_WASM: &str = "ASP_FILTER_WASM";
pub const ENV_SEAL_KEY: &str = "ASP_SEAL_KEY";
pub const ENV_SEAL_KEY_PREVIOUS: &str = "ASP_SEAL_KEY_PREVIOUS";
pub const ENV_TOKEN_KEY: &str = "ASP_TOKEN_KEY";
pub const ENV_TOKEN_KEY_PREVIOUS: &str = "ASP_TOKEN_KEY_PREVIOUS";
pub const ENV_ADVERTISE: &str = "ASP_ADVERTISE";
pub const ENV_POOL: &str = "ASP_POOL";
pub const ENV_XDS_URL: &str = "ASP_XDS_URL";
pub const ENV_UPSTREAMS: &str = "ASP_UPSTREAMS";
pub const ENV_ISSUERS: &str = "ASP_ISSUERS";
pub const ENV_EDGE_WORKERS: &str = "ASP_EDGE_WORKERS";
pub const ENV_TLS_CERT: &str = "ASP_TLS_CERT";
pub const ENV_TLS_KEY: &str = "ASP_TLS_KEY";
pub const ENV_PEER_CERT: &str = "ASP_PEER_CERT";
pub const ENV_PEER_KEY: &str = "ASP_PEER_KEY";
pub const ENV_PEER_CA: &str = "ASP_PEER_CA";
pub const ENV_PEER_NAME: &str = "ASP_PEER_NAME";
pub const ENV_PEER_PLAINTEXT: &str = "ASP_PEER_PLAINTEXT";
pub const ENV_ENVOY_BIN: &str = "ASP_ENVOY_BIN";
pub const ENV_NODE_BIN: &str = "ASP_NODE_BIN";
pub const ENV_EVERYTHING_JS: &str = "ASP_EVERYTHING_JS";
pub const ENV_EVERYTHING_PORT: &str = "ASP_EVERYTHING_PORT";
pub const ENV_RUNTIMES: &str = "ASP_RUNTIMES";
pub const ENV_RUNTIME_BIN: &str = "ASP_RUNTIME_BIN";

/// What `asp serve --help` says of the environment.
pub const ENVIRONMENT_HELP: &str = "\
Environment (port 0 takes a free one; ports.json in the state directory says which):
  ASP_PORT              Envoy, for clients [8080]
  ASP_ADMIN_PORT        admin API [8081]
  ASP_GATEWAY_PORT      gateway [8082]
  ASP_XDS_PORT          xDS server [18000]
  ASP_ENVOY_ADMIN_PORT  Envoy's own admin port [9901]
  ASP_BIND              address of every listener [127.0.0.1]
  ASP_GATEWAY_BIND, ASP_XDS_BIND
                        address of that listener alone [ASP_BIND]
  ASP_ADMIN_BIND        address of the admin API alone, which speaks plain HTTP: beyond loopback it must be set
                        by name, or ASP_PEER_PLAINTEXT=mesh [ASP_BIND]
  ASP_STATE_DIR         state of this machine [.asp]
  ASP_PUBLIC_URL        the origin clients use, e.g. https://mcp.example.com (required without --dev)
  ASP_DATABASE_URL      sqlite:<path> or sqlite::memory: [asp.db in the state directory]
  ASP_FILTER_WASM       the edge filter, as Envoy finds it [target/wasm32-wasip1/wasm/asp_filter.wasm]
  ASP_EDGE_WORKERS      Envoy's concurrency; coarse limits are shared by it [2]
  ASP_SEAL_KEY          seals session ids, at least 32 bytes, the same on every gateway
                        (required without --dev; several gateways need it always)
  ASP_SEAL_KEY_PREVIOUS the key before, while it is being replaced
  ASP_TOKEN_KEY         file with the P-256 key (PEM PKCS #8 or JWK) that signs the tokens of plugins, the
                        same on every gateway [made once in the state directory]
  ASP_TOKEN_KEY_PREVIOUS
                        file with the key before, or its public JWK: published until its tokens have died
  ASP_ISSUERS           file of the issuers whose tokens clients and admins bring
  ASP_UPSTREAMS         name=http(s)://host[:port],... private hosts that proxied specs may name
  ASP_XDS_URL           the control plane, for a process with the gateway role alone
  ASP_ADVERTISE         <ip>:<port> on which Envoy reaches this gateway [its listener]
  ASP_POOL              the Envoy cluster this gateway belongs to [gateway]
  ASP_AUDIT_MAX_BYTES   what the audit log of calls may take on the disk; the oldest events go first, and all
                        after 30 days [1073741824]
  ASP_MAX_CALLS         calls that one gateway runs at a time [8192]
  ASP_MAX_CALLS_PER_ORG of them of one org [2048]
  ASP_RUNTIMES          language[+language]=url,... where plugins run: python, node, java, mcp-stdio;
                        unix:<path>, or https://host:port with ASP_PEER_CERT, ASP_PEER_KEY, ASP_PEER_CA
  ASP_DELEGATE_URL      base of an OpenAI-compatible endpoint, e.g. https://llm.internal/v1: it answers the
                        delegations of plugins where the client has no model
  ASP_DELEGATE_MODEL    the model's name there (required with ASP_DELEGATE_URL)
  ASP_DELEGATE_API_KEY  its key
  ASP_DELEGATE_JSON_SCHEMA
                        true: it takes JSON Schemas as response_format [false]
  ASP_DELEGATE_KEYS     name=http(s)://host[:port]=file,... keys that specs may name, and where each may go
  ASP_PEER_CERT, ASP_PEER_KEY, ASP_PEER_CA
                        PEM files: mutual TLS between control plane, gateways and Envoys
  ASP_PEER_NAME         the name in the control plane's certificate [the host of ASP_XDS_URL]
  ASP_PEER_PLAINTEXT    mesh: something else encrypts and authenticates between them
  ASP_TLS_CERT, ASP_TLS_KEY             certificate chain and key of the edge, for --stack
  ASP_ENVOY_BIN                         the envoy binary, for --stack
  ASP_RUNTIME_BIN                       the language runtime, for --stack [asp-runtime beside asp]
  ASP_NODE_BIN, ASP_EVERYTHING_JS,
  ASP_EVERYTHING_PORT                   the sample MCP server, for --stack
  ASP_LOG                               levels, e.g. info,asp=debug [info]";

pub const DEFAULT_PORT: u16 = 8080;
pub const DEFAULT_ADMIN_PORT: u16 = 8081;
pub const DEFAULT_GATEWAY_PORT: u16 = 8082;
pub const DEFAULT_XDS_PORT: u16 = 18000;
pub const DEFAULT_ENVOY_ADMIN_PORT: u16 = 9901;
pub const DEFAULT_STATE_DIR: &str = ".asp";
pub const DEFAULT_FILTER_WASM: &str = "target/wasm32-wasip1/wasm/asp_filter.wasm";
/// What a runtime may run.
pub const LANGUAGES: [&str; 4] = ["python", "node", "java", "mcp-stdio"];
/// The cluster whose endpoints the gateways are.
pub const DEFAULT_POOL: &str = "gateway";
/// Of a seal key; it is hashed to an AES-256 key.
const MIN_SEAL_KEY: usize = 32;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub control: bool,
    pub gateway: bool,
}

/// Addresses; port 0 takes one from the operating system.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// Of the edge, and of every listener that has no address of its own.
    pub bind: IpAddr,
    pub admin: IpAddr,
    pub gateway: IpAddr,
    pub xds: IpAddr,
    /// Whether the admin API's address was set by its own name.
    pub admin_named: bool,
    pub edge_port: u16,
    pub admin_port: u16,
    pub gateway_port: u16,
    pub xds_port: u16,
    pub envoy_admin_port: u16,
}

/// Where the control plane's state lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    Memory,
}

/// The keys that seal session ids and other state that travels through clients.
#[derive(Clone, Debug)]
pub struct SealKeys {
    pub current: Secret,
    pub previous: Option<Secret>,
}

/// Where the keys are that sign the tokens of plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKeyFiles {
    pub current: PathBuf,
    pub previous: Option<PathBuf>,
}

/// How the gateway role finds its snapshots and is found itself.
#[derive(Clone, Debug)]
pub struct GatewaySection {
    /// `host:port` that Envoy connects to; the listener's own address by default.
    pub advertise: Option<String>,
    /// The Envoy cluster this replica belongs to.
    pub pool: String,
    /// The control plane's xDS server; this process's own by default.
    pub xds_url: Option<String>,
    /// `None`: a key of this machine's own, in its state directory; only with `--dev`.
    pub seal: Option<SealKeys>,
    /// The file of the key that signs plugins' tokens; `None`: one of this machine's own.
    pub token_key: Option<TokenKeyFiles>,
    pub runtimes: Vec<RuntimeAddress>,
    /// The models of the platform, for delegations.
    pub delegates: DelegateSection,
}

/// Where a language runtime is, and what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeAddress {
    pub languages: Vec<String>,
    /// `unix:<path>` or `https://host:port`.
    pub url: String,
}

/// The tools of `--stack`.
#[derive(Clone, Debug)]
pub struct StackSection {
    pub envoy: PathBuf,
    pub node: Option<PathBuf>,
    /// The reference MCP server's script; it is not started when this is missing.
    pub everything: Option<PathBuf>,
    pub everything_port: u16,
    /// The language runtime; plugins are off where it is missing.
    pub runtime: Option<PathBuf>,
}

/// TLS of the edge.
#[derive(Clone, Debug)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Mutual TLS between the platform's own processes: PEM files.
#[derive(Clone, Debug)]
pub struct PeerSection {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The authority that signed both sides' certificates.
    pub authority: PathBuf,
    pub name: Option<String>,
}

/// All settings of `asp serve`.
#[derive(Clone, Debug)]
pub struct Settings {
    pub roles: Roles,
    pub dev: bool,
    pub listen: Listen,
    /// The origin clients use; decided at start when the edge's port is 0.
    pub public_url: Option<String>,
    pub state_dir: PathBuf,
    pub database: Database,
    pub calls: CallSection,
    pub filter_wasm: PathBuf,
    /// Envoy's concurrency: the coarse rates are shared by that many workers.
    pub edge_workers: u32,
    pub primitives: Option<PathBuf>,
    /// Private or plain-http hosts that the proxy executor may reach: name and origin.
    pub upstreams: Vec<(String, String)>,
    /// Issuers other than the development one, see [`crate::issuers`].
    pub issuers: Option<PathBuf>,
    pub gateway: GatewaySection,
    pub stack: Option<StackSection>,
    pub tls: Option<Tls>,
    pub peer: Option<PeerSection>,
    /// Whether a mesh protects what runs between the platform's processes.
    pub mesh: bool,
}

impl Settings {
    /// Reads everything, or returns every fault.
    pub fn read(args: &ServeArgs, environment: &dyn Environment) -> Result<Settings, Vec<Fault>> {
        let mut reader = Reader::new(environment);
        let roles = roles(&mut reader, args.roles.as_deref());
        let dev = args.dev;
        let state_dir = reader.path(ENV_STATE_DIR, DEFAULT_STATE_DIR);
        let settings = Settings {
            roles,
            dev,
            listen: listen(&mut reader, args.bind.as_deref()),
            public_url: reader.origin(ENV_PUBLIC_URL),
            database: database(&mut reader, &state_dir),
            calls: calls::read(&mut reader),
            state_dir,
            filter_wasm: absolute(reader.path(ENV_FILTER_WASM, DEFAULT_FILTER_WASM)),
            edge_workers: reader.number(ENV_EDGE_WORKERS, 2_u32, 1..=1_024),
            primitives: args.primitives.clone(),
            issuers: reader.optional(ENV_ISSUERS).map(PathBuf::from),
            upstreams: upstreams(&mut reader),
            gateway: gateway(&mut reader),
            stack: if args.stack { stack(&mut reader) } else { None },
            tls: tls(&mut reader),
            peer: peer(&mut reader),
            mesh: mesh(&mut reader),
        };
        settings.check_together(&mut reader, args);
        reader.finish(settings)
    }

    /// Rules over more than one setting.
    fn check_together(&self, reader: &mut Reader<'_>, args: &ServeArgs) {
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
                format!("is no file: {}; `make wasm` builds the filter", self.filter_wasm.display());
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
        self.check_exposure(reader);
        for fault in self.issuers.iter().flat_map(|path| issuers::faults(path, self.dev)) {
            reader.fault(ENV_ISSUERS, fault);
        }
        if !self.roles.control && self.gateway.xds_url.is_none() {
            reader.fault(ENV_XDS_URL, "is required without the control role");
        }
        if !self.roles.control && self.primitives.is_some() {
            reader.fault("--primitives", "needs the control role");
        }
    }

    /// Names every listener whose address is `wrong`.
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

    /// What the control plane may show beyond this machine.
    fn check_exposure(&self, reader: &mut Reader<'_>) {
        if !self.roles.control || self.dev || self.mesh {
            return;
        }
        if !self.listen.xds.is_loopback() && self.peer.is_none() {
            let message = "is required beyond loopback, with ASP_PEER_KEY and ASP_PEER_CA: whoever subscribes \
                           learns every policy (or ASP_PEER_PLAINTEXT=mesh)";
            reader.fault(ENV_PEER_CERT, message);
        }
        if !self.listen.admin.is_loopback() && !self.listen.admin_named {
            let message = format!(
                "is required: the admin API speaks plain HTTP and would be reachable at {}, with admin tokens in \
                 clear. Set it to 127.0.0.1, or to the address by name where something else encrypts (or \
                 ASP_PEER_PLAINTEXT=mesh)",
                self.listen.admin
            );
            reader.fault(ENV_ADMIN_BIND, message);
        }
    }

    /// Whether admin tokens cross a network in clear because the operator has said so.
    pub fn exposes_admin(&self) -> bool {
        self.roles.control && !self.listen.admin.is_loopback() && !self.mesh
    }
}

fn roles(reader: &mut Reader<'_>, text: Option<&str>) -> Roles {
    let mut roles = Roles { control: false, gateway: false };
    for role in text.unwrap_or("control,gateway").split(',').map(str::trim) {
        match role {
            "control" => roles.control = true,
            "gateway" => roles.gateway = true,
            other => reader.fault("--roles", format!("`{other}` is no role; there are control and gateway")),
        }
    }
    roles
}

fn listen(reader: &mut Reader<'_>, bind_flag: Option<&str>) -> Listen {
    let text = bind_flag.map(str::to_owned).or_else(|| reader.optional(ENV_BIND));
    let bind = address(reader, "--bind", text).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let [admin, gateway, xds] = [ENV_ADMIN_BIND, ENV_GATEWAY_BIND, ENV_XDS_BIND].map(|name| {
        let text = reader.optional(name);
        address(reader, name, text)
    });
    let any = 0..=u16::MAX;
    Listen {
        bind,
        admin: admin.unwrap_or(bind),
        gateway: gateway.unwrap_or(bind),
        xds: xds.unwrap_or(bind),
        admin_named: admin.is_some(),
        edge_port: reader.number(ENV_PORT, DEFAULT_PORT, any.clone()),
        admin_port: reader.number(ENV_ADMIN_PORT, DEFAULT_ADMIN_PORT, any.clone()),
        gateway_port: reader.number(ENV_GATEWAY_PORT, DEFAULT_GATEWAY_PORT, any.clone()),
        xds_port: reader.number(ENV_XDS_PORT, DEFAULT_XDS_PORT, any.clone()),
        envoy_admin_port: reader.number(ENV_ENVOY_ADMIN_PORT, DEFAULT_ENVOY_ADMIN_PORT, any),
    }
}

fn address(reader: &mut Reader<'_>, name: &str, text: Option<String>) -> Option<IpAddr> {
    let text = text?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        reader.fault(name, format!("`{text}` is no IP address"));
    }
    parsed
}

fn database(reader: &mut Reader<'_>, state_dir: &std::path::Path) -> Database {
    let Some(url) = reader.optional(ENV_DATABASE_URL) else {
        return Database::Sqlite(state_dir.join("asp.db"));
    };
    match url.strip_prefix("sqlite:").map(|rest| rest.trim_start_matches("//")) {
        Some(":memory:") => Database::Memory,
        Some(path) if !path.is_empty() => Database::Sqlite(PathBuf::from(path)),
        _ => {
            // The URL may carry a password: it is not repeated.
            reader.fault(ENV_DATABASE_URL, "must be sqlite:<path> or sqlite::memory:");
            Database::Memory
        }
    }
}

/// `name=http://host:port`, separated by commas.
fn upstreams(reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let text = reader.optional(ENV_UPSTREAMS).unwrap_or_default();
    let mut upstreams = Vec::new();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        match entry.split_once('=') {
            Some((name, origin)) if !name.is_empty() && source::is_origin(origin) => {
                upstreams.push((name.to_owned(), origin.to_owned()));
            }
            _ => reader.fault(ENV_UPSTREAMS, format!("must be name=http(s)://host[:port],…, not `{entry}`")),
        }
    }
    upstreams
}

fn gateway(reader: &mut Reader<'_>) -> GatewaySection {
    let seal_key = |reader: &mut Reader<'_>, name: &'static str| {
        let key = reader.optional(name)?;
        if key.len() < MIN_SEAL_KEY {
            reader.fault(name, format!("must be at least {MIN_SEAL_KEY} bytes long"));
        }
        Some(Secret::new(key))
    };
    let current = seal_key(reader, ENV_SEAL_KEY);
    let previous = seal_key(reader, ENV_SEAL_KEY_PREVIOUS);
    GatewaySection {
        advertise: reader.socket_address(ENV_ADVERTISE),
        pool: reader.optional(ENV_POOL).unwrap_or_else(|| DEFAULT_POOL.to_owned()),
        xds_url: reader.optional(ENV_XDS_URL),
        seal: current.map(|current| SealKeys { current, previous }),
        token_key: token_key(reader),
        runtimes: runtimes::read(reader),
        delegates: delegates::read(reader),
    }
}

fn token_key(reader: &mut Reader<'_>) -> Option<TokenKeyFiles> {
    let [current, previous] =
        [ENV_TOKEN_KEY, ENV_TOKEN_KEY_PREVIOUS].map(|name| reader.optional(name).map(PathBuf::from));
    if current.is_none() && previous.is_some() {
        reader.fault(ENV_TOKEN_KEY, format!("is required with {ENV_TOKEN_KEY_PREVIOUS}"));
    }
    Some(TokenKeyFiles { current: current?, previous })
}

fn stack(reader: &mut Reader<'_>) -> Option<StackSection> {
    let envoy = reader.optional(ENV_ENVOY_BIN);
    if envoy.is_none() {
        reader.fault(ENV_ENVOY_BIN, "is required with --stack: the path of the envoy binary");
    }
    let everything = reader.optional(ENV_EVERYTHING_JS).map(PathBuf::from);
    let node = reader.optional(ENV_NODE_BIN).map(PathBuf::from);
    if everything.is_some() && node.is_none() {
        reader.fault(ENV_NODE_BIN, format!("is required with {ENV_EVERYTHING_JS}"));
    }
    Some(StackSection {
        envoy: PathBuf::from(envoy?),
        node,
        everything,
        everything_port: reader.number(ENV_EVERYTHING_PORT, 0_u16, 0..=u16::MAX),
        runtime: reader.optional(ENV_RUNTIME_BIN).map(PathBuf::from).or_else(runtime_binary),
    })
}

fn tls(reader: &mut Reader<'_>) -> Option<Tls> {
    match (reader.optional(ENV_TLS_CERT), reader.optional(ENV_TLS_KEY)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            Some(Tls { certificate: absolute(certificate.into()), key: absolute(key.into()) })
        }
        (Some(_), None) => {
            reader.fault(ENV_TLS_KEY, format!("is required with {ENV_TLS_CERT}"));
            None
        }
        (None, Some(_)) => {
            reader.fault(ENV_TLS_CERT, format!("is required with {ENV_TLS_KEY}"));
            None
        }
    }
}

fn peer(reader: &mut Reader<'_>) -> Option<PeerSection> {
    let names = [ENV_PEER_CERT, ENV_PEER_KEY, ENV_PEER_CA];
    let values = names.map(|name| reader.optional(name).map(PathBuf::from));
    let name = reader.optional(ENV_PEER_NAME);
    match values {
        [Some(certificate), Some(key), Some(authority)] => {
            Some(PeerSection { certificate, key, authority, name })
        }
        [None, None, None] => None,
        values => {
            for (name, value) in names.iter().zip(values) {
                if value.is_none() {
                    reader.fault(name, "is required: certificate, key and authority come together");
                }
            }
            None
        }
    }
}

fn mesh(reader: &mut Reader<'_>) -> bool {
    match reader.optional(ENV_PEER_PLAINTEXT).as_deref() {
        None => false,
        Some("mesh") => true,
        Some(other) => {
            reader.fault(ENV_PEER_PLAINTEXT, format!("must be mesh or unset, not `{other}`"));
            false
        }
    }
}

/// Envoy and other processes resolve relative paths from their own directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests;
