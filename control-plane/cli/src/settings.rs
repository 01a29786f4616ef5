//! Every setting of `asp serve`, read once at start into typed sections.
//!
//! A flag takes precedence over the environment, and the environment over the default. Keeps true: all faults are found and
//! reported together, and a secret prints as `***`.

pub mod calls;
pub mod credentials;
mod cross_checks;
pub mod database;
pub mod delegates;
pub mod dev;
pub mod gateway;
pub mod listen;
pub mod runtimes;
pub mod s3;
pub mod source;
pub mod stack;
pub mod suggestions;
pub mod tls;

use std::path::PathBuf;

use asp_control::admin::queues::WriteRate;

use crate::args::ServeArgs;
use calls::CallSection;
use database::Database;
use gateway::GatewaySection;
use listen::Listen;
use s3::S3Section;
use source::{Environment, ListNote, Reader, SettingFault, absolute};
use stack::StackSection;
use tls::{PeerSection, Tls};

pub const ENV_STATE_DIR: &str = "ASP_STATE_DIR";
pub const ENV_PUBLIC_URL: &str = "ASP_PUBLIC_URL";
pub const ENV_FILTER_WASM: &str = "ASP_FILTER_WASM";
pub const ENV_UPSTREAMS: &str = "ASP_UPSTREAMS";
pub const ENV_ISSUERS: &str = "ASP_ISSUERS";
pub const ENV_BREAK_GLASS: &str = "ASP_BREAK_GLASS";
pub const ENV_ISSUER_ORIGINS: &str = "ASP_ISSUER_ORIGINS";
pub const ENV_EDGE_WORKERS: &str = "ASP_EDGE_WORKERS";
pub const DEFAULT_STATE_DIR: &str = ".asp";
pub const DEFAULT_FILTER_WASM: &str = "target/wasm32-wasip1/wasm/asp_filter.wasm";

/// Roles of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub control: bool,
    pub gateway: bool,
}

/// All settings of `asp serve`.
#[derive(Clone, Debug)]
pub struct Settings {
    pub roles: Roles,
    pub dev: bool,
    pub listen: Listen,
    /// Origin that clients use; decided at start if the edge's port is 0.
    pub public_url: Option<String>,
    pub state_dir: PathBuf,
    pub database: Database,
    pub calls: CallSection,
    pub admin_writes: WriteRate,
    /// Object store for artifacts and packages; `None`: files on this machine.
    pub s3: Option<S3Section>,
    pub filter_wasm: PathBuf,
    /// Envoy's concurrency; coarse limits are divided by it.
    pub edge_workers: u32,
    pub primitives: Option<PathBuf>,
    /// Hosts, private or plain http, that requests of some primitives may reach.
    pub upstreams: Vec<UpstreamEntry>,
    /// Entries of operator lists that apply to every primitive or to none.
    pub list_notes: Vec<ListNote>,
    /// Issuers other than the development one, see [`asp_control::issuers`].
    pub issuers: Option<PathBuf>,
    /// Whether the admin API accepts emergency tokens.
    pub break_glass: bool,
    /// Origins of issuers that may use plain http or a private address.
    pub issuer_origins: Vec<String>,
    pub gateway: GatewaySection,
    pub stack: Option<StackSection>,
    pub tls: Option<Tls>,
    /// TLS of the admin API.
    pub admin_tls: Option<Tls>,
    pub peer: Option<PeerSection>,
    /// User ids on this machine that may subscribe to xDS without a certificate, besides this process's own and root.
    pub xds_accounts: Vec<u32>,
    /// Whether a mesh protects the traffic between the platform's processes.
    pub mesh: bool,
}

impl Settings {
    /// Reads all settings, or returns every fault.
    pub fn read(args: &ServeArgs, environment: &dyn Environment) -> Result<Settings, Vec<SettingFault>> {
        let dev = args.dev;
        let mut reader = Reader::of_development(environment, dev);
        let roles = roles(&mut reader, args.roles.as_deref());
        let state_dir = reader.path(ENV_STATE_DIR, DEFAULT_STATE_DIR);
        let mut settings = Settings {
            roles,
            dev,
            listen: listen::read(&mut reader, args.bind.as_deref()),
            public_url: reader.origin(ENV_PUBLIC_URL),
            database: database::read(&mut reader, &state_dir),
            calls: calls::read(&mut reader),
            admin_writes: calls::writes(&mut reader),
            s3: s3::read(&mut reader),
            state_dir,
            filter_wasm: absolute(reader.path(ENV_FILTER_WASM, DEFAULT_FILTER_WASM)),
            edge_workers: reader.number(ENV_EDGE_WORKERS, 2_u32, 1..=1_024),
            primitives: args.primitives.clone(),
            issuers: reader.optional(ENV_ISSUERS).map(PathBuf::from),
            break_glass: break_glass(&mut reader),
            issuer_origins: issuer_origins(&mut reader),
            upstreams: upstreams(&mut reader),
            gateway: gateway::read(&mut reader),
            stack: if args.stack { stack::read(&mut reader, args.allow_private) } else { None },
            tls: tls::edge(&mut reader),
            admin_tls: tls::admin(&mut reader),
            peer: tls::peer(&mut reader),
            xds_accounts: listen::accounts(&mut reader),
            mesh: tls::mesh(&mut reader),
            list_notes: Vec::new(),
        };
        settings.list_notes = reader.take_notes();
        settings.cross_check(&mut reader, args);
        reader.finish(settings)
    }

    /// Whether clients reach the gateway directly, without Envoy.
    pub fn is_direct(&self) -> bool {
        self.stack.as_ref().is_some_and(|stack| stack.envoy.is_none())
    }

    /// Whether the gateway takes requests by mutual TLS only: it listens beyond this machine and no mesh encrypts.
    pub fn proved_alone(&self) -> bool {
        self.roles.gateway && !self.listen.gateway.is_loopback() && !self.mesh
    }
}

/// Location of the state, for commands that need no other settings.
#[derive(Clone, Debug)]
pub struct StateSettings {
    pub state_dir: PathBuf,
    pub database: Database,
}

impl StateSettings {
    pub fn read(environment: &dyn Environment) -> Result<StateSettings, Vec<SettingFault>> {
        let mut reader = Reader::new(environment);
        let state_dir = reader.path(ENV_STATE_DIR, DEFAULT_STATE_DIR);
        let stored = StateSettings { database: database::read(&mut reader, &state_dir), state_dir };
        reader.finish(stored)
    }
}

fn roles(reader: &mut Reader<'_>, text: Option<&str>) -> Roles {
    let mut roles = Roles { control: false, gateway: false };
    for role in text.unwrap_or("control,gateway").split(',').map(str::trim) {
        match role {
            "control" => roles.control = true,
            "gateway" => roles.gateway = true,
            other => {
                reader.fault("--roles", format!("`{other}` is not a role; use control, gateway or both"))
            }
        }
    }
    roles
}

fn break_glass(reader: &mut Reader<'_>) -> bool {
    match reader.optional(ENV_BREAK_GLASS).as_deref() {
        None | Some("on") => true,
        Some("off") => false,
        Some(text) => {
            reader.fault(ENV_BREAK_GLASS, format!("must be `on` or `off`, not `{text}`"));
            true
        }
    }
}

/// Parses origins separated by commas.
fn issuer_origins(reader: &mut Reader<'_>) -> Vec<String> {
    let text = reader.optional(ENV_ISSUER_ORIGINS).unwrap_or_default();
    let mut origins = Vec::new();
    for origin in text.split(',').filter(|origin| !origin.is_empty()) {
        if source::is_origin(origin) {
            origins.push(origin.to_owned());
        } else {
            reader.fault(ENV_ISSUER_ORIGINS, format!("must be http(s)://host[:port],…, not `{origin}`"));
        }
    }
    origins
}

/// One entry of `ASP_UPSTREAMS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamEntry {
    /// Host as specs write it.
    pub name: String,
    /// Origin that requests go to, and the path they stay below.
    pub url: String,
    /// Primitives that may use it.
    pub primitives: Vec<String>,
}

/// Parses `name=http://host:port[/path];for=…` entries, separated by commas. A name has one origin and may have several paths.
fn upstreams(reader: &mut Reader<'_>) -> Vec<UpstreamEntry> {
    let mut upstreams: Vec<UpstreamEntry> = Vec::new();
    for (entry, primitives) in reader.operator_list(ENV_UPSTREAMS, |entry| upstream(entry).is_some()) {
        let Some((name, url)) = upstream(&entry) else {
            let message = format!("must be name=http(s)://host[:port][/path];for=…, not `{entry}`");
            reader.fault(ENV_UPSTREAMS, message);
            continue;
        };
        let known = upstreams.iter().find(|known| known.name == name);
        if known.is_some_and(|known| origin_of(&known.url) != origin_of(url)) {
            reader.fault(ENV_UPSTREAMS, format!("gives {name} two origins"));
        }
        upstreams.push(UpstreamEntry { name: name.to_owned(), url: url.to_owned(), primitives });
    }
    upstreams
}

/// Splits `name=url`.
fn upstream(entry: &str) -> Option<(&str, &str)> {
    entry.split_once('=').filter(|(name, url)| !name.is_empty() && is_origin_with_path(url))
}

/// Returns the text before the path.
fn origin_of(url: &str) -> &str {
    url.match_indices('/').nth(2).map_or(url, |(at, _)| url.get(..at).unwrap_or(url))
}

/// Whether the text is an origin and a path of plain characters without dot segments.
fn is_origin_with_path(url: &str) -> bool {
    let origin = origin_of(url);
    let path = url.get(origin.len()..).unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let dots = |segment: &str| matches!(segment, "." | "..");
    source::is_origin(origin) && path.bytes().all(plain) && !path.split('/').any(dots)
}

#[cfg(test)]
mod tests;
