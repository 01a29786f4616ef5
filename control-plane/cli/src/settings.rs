//! Every setting of `asp serve`, declared for clap: its name, parser, default and help.
//!
//! Values come from the environment; a flag takes precedence over it. Keeps true: all faults are found and reported
//! together, and a secret prints as `***`.

pub mod calls;
pub mod commands;
pub mod credentials;
mod cross_checks;
pub mod database;
pub mod delegates;
pub mod dev;
pub mod gateway;
pub mod given;
pub mod kafka;
pub mod listen;
mod model_price;
pub mod runtimes;
pub mod s3;
pub mod source;
pub mod stack;
pub mod suggestions;
pub mod tls;
pub mod traces;
mod values;
pub mod vault;

use std::path::PathBuf;

use asp_command::environment::Environment;
use asp_command::failure::SettingFault;
use asp_peer::PeerFiles;
use asp_platform::operator_list::ListEntry;
use asp_proto::snapshot::Upstream;
use clap::{ArgAction, Args, Command};

use crate::args::ServeArgs;
use calls::CallSection;
use commands::CommandArgs;
use database::{Database, DatabaseArgs};
use gateway::GatewaySection;
use kafka::KafkaSection;
use listen::Listen;
use s3::S3Section;
use source::{Checks, ListNote};
use stack::StackSection;
use tls::{Tls, TlsArgs};
use traces::TraceSection;
use values::{
    List, absolute, choice, is_origin, list_entries, number, origin, origins, server_name, server_names,
};
use vault::VaultSection;

pub const ENV_STATE_DIR: &str = "ASP_STATE_DIR";
pub const ENV_PUBLIC_URL: &str = "ASP_PUBLIC_URL";
pub const ENV_UPSTREAMS: &str = "ASP_UPSTREAMS";
pub const ENV_AGENT_HOSTS: &str = "ASP_AGENT_HOSTS";
pub const ENV_ISSUERS: &str = "ASP_ISSUERS";
pub const DEFAULT_STATE_DIR: &str = ".asp";

/// Roles of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    pub control: bool,
    pub gateway: bool,
}

/// All settings of `asp serve`
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Platform")]
pub struct Settings {
    #[arg(skip)]
    pub roles: Roles,
    #[arg(skip)]
    pub dev: bool,
    #[arg(skip)]
    pub primitives: Option<PathBuf>,
    /// Origin that clients use, e.g. `https://mcp.example.com` (required without `--dev`) [default: with `--dev` this machine's]
    #[arg(long, env = ENV_PUBLIC_URL, value_parser = origin)]
    pub public_url: Option<String>,
    /// Directory for the state of this machine
    #[arg(long, env = ENV_STATE_DIR, default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,
    /// JSON file of issuers of clients and admins (docs/identity.md) [default: those that the admin API stores]
    #[arg(long, env = ENV_ISSUERS)]
    pub issuers: Option<PathBuf>,
    /// Origins of issuers that may use plain http or a private address: `http(s)://host[:port],…` [default: none]
    #[arg(long, env = "ASP_ISSUER_ORIGINS", default_value = "", value_parser = origins)]
    pub issuer_origins: List<String>,
    /// Whether the admin API accepts emergency tokens (`asp token --break-glass`): `on` or `off`
    #[arg(long, env = "ASP_BREAK_GLASS", action = ArgAction::Set, default_value = "on",
        value_parser = choice(&[("on", true), ("off", false)]))]
    pub break_glass: bool,
    /// Private hosts, and the primitives whose specs may name them: `name=http(s)://host[:port][/path];for=server/*,…`
    /// (docs/operator-lists.md) [default: none]
    #[arg(long, env = ENV_UPSTREAMS, default_value = "", value_parser = list_entries)]
    upstream_entries: List<ListEntry>,
    /// Server that answers gRPC of A2A, and whose agent card answers at `/.well-known/agent-card.json`, at the public URL's host and
    /// at each that no server has [default: none]
    #[arg(long, env = "ASP_DEFAULT_AGENT", value_parser = server_name)]
    pub default_agent: Option<String>,
    /// Other hosts, and the servers with A2A that may have them in `hosts`: `host[:port];for=server/*,…` (docs/operator-lists.md)
    /// [default: none; every host with `--dev`]
    #[arg(long, env = ENV_AGENT_HOSTS, default_value = "", value_parser = list_entries)]
    agent_host_entries: List<ListEntry>,
    /// `on` if callers reach the tools of all servers at `/all/mcp` (docs/clients.md); always so with `--dev`
    #[arg(long, env = "ASP_ALL_SERVERS", action = ArgAction::Set, default_value = "off",
        value_parser = choice(&[("on", true), ("off", false)]))]
    pub all_servers: bool,
    /// Servers whose calls' arguments and results are kept in the audit, redacted, for admins with the role `auditor`: `NAME,…`
    /// (docs/audit.md) [default: none]
    #[arg(long, env = "ASP_AUDIT_CAPTURE", default_value = "", value_parser = server_names)]
    pub audit_capture: List<String>,
    /// Edge filter, as a path that Envoy can read
    #[arg(long, env = "ASP_FILTER_WASM", default_value = "target/wasm32-wasip1/wasm/asp_filter.wasm", value_parser = absolute)]
    pub filter_wasm: PathBuf,
    /// Concurrency of Envoy; coarse limits are divided by it
    #[arg(long, env = "ASP_EDGE_WORKERS", default_value_t = 2, value_parser = number(1..=1_024_u32))]
    pub edge_workers: u32,
    /// Requests per second without a valid credential that one client address may send, of each kind; 0 for no limit
    /// (docs/limits.md)
    #[arg(long, env = "ASP_UNAUTHENTICATED_RATE", default_value_t = 50, value_parser = number(0..=100_000_u32))]
    pub unauthenticated_rate: u32,
    #[command(flatten)]
    pub listen: Listen,
    #[command(flatten)]
    database_args: DatabaseArgs,
    #[command(flatten)]
    pub gateway: GatewaySection,
    #[command(flatten)]
    pub certificates: TlsArgs,
    #[command(flatten)]
    pub calls: CallSection,
    #[command(flatten)]
    pub s3: S3Section,
    #[command(flatten)]
    pub traces: TraceSection,
    #[command(flatten)]
    pub kafka: KafkaSection,
    #[command(flatten)]
    pub vault: VaultSection,
    #[arg(skip = Database::Memory)]
    pub database: Database,
    /// Hosts, private or plain http, that requests of some primitives may reach
    #[arg(skip)]
    pub upstreams: Vec<Upstream>,
    /// Hosts that servers with A2A may have
    #[arg(skip)]
    pub agent_hosts: Vec<(String, Vec<String>)>,
    /// Entries of operator lists that apply to every primitive or to none
    #[arg(skip)]
    pub list_notes: Vec<ListNote>,
    #[arg(skip)]
    pub stack: Option<StackSection>,
    #[arg(skip)]
    pub tls: Option<Tls>,
    /// TLS of the admin API
    #[arg(skip)]
    pub admin_tls: Option<Tls>,
    #[arg(skip)]
    pub peer: Option<PeerFiles>,
}

impl Settings {
    /// Reads all settings, or returns every fault.
    pub fn read(args: &ServeArgs, environment: &dyn Environment) -> Result<Settings, Vec<SettingFault>> {
        let mut checks = Checks::new(environment, args.dev);
        let settings = checks.read::<Settings>().map(|settings| settings.resolved(args, &mut checks));
        checks.finish(settings)
    }

    /// Adds what follows from several settings, from flags and from files, and checks all of it.
    fn resolved(mut self, args: &ServeArgs, checks: &mut Checks<'_>) -> Settings {
        self.roles = roles(checks, args.roles.as_deref());
        self.dev = args.dev;
        self.primitives.clone_from(&args.primitives);
        self.listen.apply_flag(checks, args.bind.as_deref());
        self.database = self.database_args.database(checks, &self.state_dir);
        self.s3.check_parts(checks);
        self.kafka.check_parts(checks);
        self.upstreams = upstreams(checks, &self.upstream_entries);
        self.agent_hosts = agent_hosts(checks, &self.agent_host_entries);
        self.gateway.resolve(checks);
        if args.stack {
            self.stack = stack::read(checks, args.allow_private);
        }
        self.tls = self.certificates.edge(checks);
        self.admin_tls = self.certificates.admin(checks);
        self.peer = self.certificates.peer(checks);
        self.list_notes = std::mem::take(&mut checks.notes);
        self.cross_check(checks, args);
        self
    }

    /// Whether clients reach the gateway directly, without Envoy.
    pub fn is_direct(&self) -> bool {
        self.stack.as_ref().is_some_and(|stack| stack.envoy.is_none())
    }

    /// Whether a mesh protects the traffic between the platform's processes.
    pub fn in_mesh(&self) -> bool {
        self.certificates.mesh
    }

    /// Whether the gateway takes requests by mutual TLS only: it listens beyond this machine and no mesh encrypts.
    pub fn requires_mutual_tls(&self) -> bool {
        self.roles.gateway && !self.listen.gateway().is_loopback() && !self.in_mesh()
    }
}

/// Returns a command that declares every setting of `asp`, for the reference.
pub fn command() -> Command {
    let serve = Settings::augment_args(Command::new("asp"));
    CommandArgs::augment_args(StackSection::augment_args(serve))
}

/// Location of the state, for commands that need no other settings
#[derive(Clone, Debug, Args)]
pub struct StateSettings {
    #[arg(long, env = ENV_STATE_DIR, default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,
    #[command(flatten)]
    database_args: DatabaseArgs,
    #[arg(skip = Database::Memory)]
    pub database: Database,
}

impl StateSettings {
    pub fn read(environment: &dyn Environment) -> Result<StateSettings, Vec<SettingFault>> {
        let mut checks = Checks::new(environment, false);
        let mut settings = checks.read::<StateSettings>();
        if let Some(settings) = &mut settings {
            settings.database = settings.database_args.database(&mut checks, &settings.state_dir);
        }
        checks.finish(settings)
    }
}

fn roles(checks: &mut Checks<'_>, text: Option<&str>) -> Roles {
    let mut roles = Roles::default();
    for role in text.unwrap_or("control,gateway").split(',').map(str::trim) {
        match role {
            "control" => roles.control = true,
            "gateway" => roles.gateway = true,
            other => {
                checks.fault("--roles", format!("`{other}` is not a role; use control, gateway or both"))
            }
        }
    }
    roles
}

/// Reads `name=http://host:port[/path];for=…` entries. A name has one origin and may have several paths.
fn upstreams(checks: &mut Checks<'_>, entries: &[ListEntry]) -> Vec<Upstream> {
    let mut upstreams: Vec<Upstream> = Vec::new();
    let is_entry = |entry: &str| upstream(entry).is_some();
    for (entry, primitives) in checks.operator_list(ENV_UPSTREAMS, entries, is_entry) {
        let Some((name, url)) = upstream(&entry) else {
            let message = format!("must be name=http(s)://host[:port][/path];for=…, not `{entry}`");
            checks.fault(ENV_UPSTREAMS, message);
            continue;
        };
        let known = upstreams.iter().find(|known| known.name == name);
        if known.is_some_and(|known| origin_of(&known.url) != origin_of(url)) {
            checks.fault(ENV_UPSTREAMS, format!("gives {name} two origins"));
        }
        upstreams.push(Upstream { name: name.to_owned(), url: url.to_owned(), primitives });
    }
    upstreams
}

/// Reads `host[:port];for=…` entries.
fn agent_hosts(checks: &mut Checks<'_>, entries: &[ListEntry]) -> Vec<(String, Vec<String>)> {
    let is_host: fn(&str) -> bool = |entry| is_origin(&format!("http://{entry}"));
    let hosts = checks.operator_list(ENV_AGENT_HOSTS, entries, is_host);
    for (host, _) in hosts.iter().filter(|(host, _)| !is_host(host)) {
        checks.fault(ENV_AGENT_HOSTS, format!("must be host[:port];for=…, not `{host}`"));
    }
    hosts
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
    is_origin(origin) && path.bytes().all(plain) && !path.split('/').any(dots)
}

#[cfg(test)]
mod tests;
