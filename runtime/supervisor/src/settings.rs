//! Every setting of `asp-runtime`, read once at start.
//!
//! A flag takes precedence over the environment, and the environment over the default. Keeps true: all faults are found
//! and reported together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use asp_launcher::{Bounds, Level};
use asp_peer::PeerFiles;
use asp_platform::operator_list::{self, ListEntry};
use clap::Parser;

use crate::egress::PrivateRoute;
use crate::secrets::Secrets;

/// Maximum length of the state directory's path: `sun_path` has 108 bytes, and a worker's socket adds this much.
const MAX_STATE_PATH: usize = 107 - "/w/0123456789abcdef/s/s".len();
/// Maximum number of threads; more do not help, since one carries some ten thousand calls a second.
const MAX_THREADS: usize = 64;
const MIN_MEMORY: u64 = 16 << 20;

/// Runs plugins written in Python, Node or Java, each in its own process inside a sandbox
#[derive(Clone, Debug, Parser)]
#[command(name = "asp-runtime", version)]
pub struct Arguments {
    /// Directory of installed plugins: ID/VERSION/plugin.json
    #[arg(long, env = "ASP_RUNTIME_PLUGINS", value_name = "DIR")]
    pub plugins: PathBuf,
    /// Directory for sockets and work files; created if missing
    #[arg(long, env = "ASP_RUNTIME_STATE", value_name = "DIR")]
    pub state: PathBuf,
    /// Unix socket to serve on
    #[arg(long, env = "ASP_RUNTIME_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Address to serve on over mutual TLS; requires --tls-cert, --tls-key and --tls-client-ca
    #[arg(long, env = "ASP_RUNTIME_LISTEN", value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Certificate chain (PEM)
    #[arg(long, env = "ASP_RUNTIME_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM)
    #[arg(long, env = "ASP_RUNTIME_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Authority of the gateways' certificates (PEM)
    #[arg(long, env = "ASP_RUNTIME_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Revoked certificates of that authority (PEM) [default: none]
    #[arg(long, env = "ASP_RUNTIME_TLS_CRL", value_name = "FILE")]
    pub tls_crl: Option<PathBuf>,
    /// The launcher [default: worker-init beside this binary]
    #[arg(long, env = "ASP_RUNTIME_WORKER_INIT", value_name = "PATH")]
    pub worker_init: Option<PathBuf>,
    /// Minimum sandbox level of every plugin, regardless of its manifest: 1, 2 or 3
    #[arg(long, env = "ASP_RUNTIME_MIN_LEVEL", value_name = "LEVEL", default_value_t = 3)]
    pub min_level: u32,
    /// Enforcement of workers' limits: cgroup, or sampled if there is no control group (no defence against a hostile
    /// plugin)
    #[arg(long, env = "ASP_RUNTIME_BOUNDS", value_name = "BOUNDS", default_value = "cgroup")]
    pub bounds: String,
    /// Maximum number of processes of all plugins together
    #[arg(long, env = "ASP_RUNTIME_MAX_WORKERS", value_name = "N", default_value_t = 64)]
    pub max_workers: usize,
    /// Memory for all workers together, in bytes [default: three quarters of the machine's memory]
    #[arg(long, env = "ASP_RUNTIME_MEMORY_BUDGET", value_name = "BYTES")]
    pub memory_budget: Option<u64>,
    /// Threads that run the calls; a call that crosses threads costs more than one that does not
    #[arg(long, env = "ASP_RUNTIME_THREADS", value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Calls of one tenant that may wait for one plugin; all tenants together twice that
    #[arg(long, env = "ASP_RUNTIME_QUEUE", value_name = "N", default_value_t = 256)]
    pub queue: usize,
    /// First user id for workers, one each; only if this process is root
    #[arg(long, env = "ASP_RUNTIME_UID_BASE", value_name = "UID", default_value_t = 58_000)]
    pub uid_base: u32,
    /// Private networks that the plugins of some primitives may reach by one name: NAME=ADDRESS/PREFIX;for=SERVER/PRIMITIVE,
    /// comma-separated
    #[arg(long, env = "ASP_RUNTIME_EGRESS_ALLOW_PRIVATE", value_name = "NAME=CIDR;for=..,..")]
    pub egress_allow_private: Vec<String>,
    /// Development only: plugins reach private addresses, on any port, by the names they list
    #[arg(long)]
    pub egress_development: bool,
    /// Development only: nothing is quarantined, a failed start is not repeated, and callers get the texts of exceptions
    #[arg(long)]
    pub development: bool,
    /// JSON file of the named secrets that plugins and stdio servers may use, each with the list of its users [default: none]
    #[arg(long, env = "ASP_SECRETS", value_name = "FILE")]
    pub secrets: Option<PathBuf>,
    /// Python interpreter whose environment has the package asp-plugin
    #[arg(long, env = "ASP_PLUGIN_PYTHON", value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Node binary
    #[arg(long, env = "ASP_PLUGIN_NODE", value_name = "PATH")]
    pub node: Option<PathBuf>,
    /// Directory with worker.mjs and its node_modules
    #[arg(long, env = "ASP_PLUGIN_NODE_SHIM", value_name = "DIR")]
    pub node_shim: Option<PathBuf>,
    /// Java binary
    #[arg(long, env = "ASP_PLUGIN_JAVA", value_name = "PATH")]
    pub java: Option<PathBuf>,
    /// Directory of the jars with asp.plugin.Worker
    #[arg(long, env = "ASP_PLUGIN_JAVA_SHIM", value_name = "DIR")]
    pub java_shim: Option<PathBuf>,
}

/// Node, its shim, and the flags that the shim requires for this release.
#[derive(Clone, Debug)]
pub struct Node {
    pub binary: PathBuf,
    pub shim: PathBuf,
    /// Command-line flags; `{plugin}` stands for the plugin's directory.
    pub flags: Vec<String>,
}

/// Installed languages; `None`: this runtime does not have it.
#[derive(Clone, Debug, Default)]
pub struct Languages {
    pub python: Option<PathBuf>,
    pub node: Option<Node>,
    pub java: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub plugins: PathBuf,
    pub state: PathBuf,
    pub socket: Option<PathBuf>,
    /// Address and files of the listener with mutual TLS.
    pub tls: Option<(SocketAddr, PeerFiles)>,
    pub worker_init: PathBuf,
    pub min_level: Level,
    /// `Sampled` also permits the mode without control groups, which is used only if there are none.
    pub bounds: Bounds,
    pub max_workers: usize,
    pub threads: usize,
    pub memory_budget: u64,
    pub queue: usize,
    pub uid_base: u32,
    pub egress_allow_private: Vec<PrivateRoute>,
    pub egress_development: bool,
    pub development: bool,
    pub secrets: Secrets,
    pub languages: Languages,
}

impl Settings {
    /// Checks the arguments and creates the state directory. Returns every fault.
    pub fn read(arguments: Arguments) -> Result<Settings, Vec<String>> {
        let mut faults = Vec::new();
        if arguments.socket.is_none() && arguments.listen.is_none() {
            faults.push("--socket or --listen is needed".to_owned());
        }
        let plugins = directory("--plugins", &arguments.plugins, &mut faults);
        let state = state_directory(&arguments.state, &mut faults);
        let tls = tls(&arguments, &mut faults);
        let min_level = level(arguments.min_level).unwrap_or_else(|| {
            faults.push(format!("--min-level is {}, not 1, 2 or 3", arguments.min_level));
            Level::L3
        });
        let bounds = bounds(&arguments.bounds).unwrap_or_else(|| {
            faults.push(format!("--bounds is {:?}, not cgroup or sampled", arguments.bounds));
            Bounds::Cgroup
        });
        let worker_init = worker_init(arguments.worker_init.as_deref(), &mut faults);
        for (flag, value) in [("--max-workers", arguments.max_workers), ("--queue", arguments.queue)] {
            if value == 0 || value > 4096 {
                faults.push(format!("{flag} is {value}, not 1 to 4096"));
            }
        }
        let memory_budget = arguments.memory_budget.unwrap_or_else(three_quarters_of_memory);
        if memory_budget < MIN_MEMORY {
            faults.push(format!("--memory-budget is {memory_budget}, less than {MIN_MEMORY}"));
        }
        if arguments.threads == 0 || arguments.threads > MAX_THREADS {
            faults.push(format!("--threads is {}, not 1 to {MAX_THREADS}", arguments.threads));
        }
        if arguments.uid_base == 0 || arguments.uid_base > 2_000_000_000 {
            faults.push(format!("--uid-base is {}, not 1 to 2000000000", arguments.uid_base));
        }
        let egress_allow_private = private_routes(&arguments.egress_allow_private, &mut faults);
        let secrets = secrets(arguments.secrets.as_deref(), &mut faults);
        let languages = languages(&arguments, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Settings {
            plugins,
            state,
            socket: arguments.socket,
            tls,
            worker_init,
            min_level,
            bounds,
            max_workers: arguments.max_workers,
            threads: arguments.threads,
            memory_budget,
            queue: arguments.queue,
            uid_base: arguments.uid_base,
            egress_allow_private,
            egress_development: arguments.egress_development,
            development: arguments.development,
            secrets,
            languages,
        })
    }
}

/// Returns the level with this number.
pub fn level(number: u32) -> Option<Level> {
    [Level::L1, Level::L2, Level::L3].into_iter().find(|level| level.number() == number)
}

fn bounds(word: &str) -> Option<Bounds> {
    [Bounds::Cgroup, Bounds::Sampled].into_iter().find(|bounds| bounds.name() == word)
}

fn directory(flag: &str, path: &Path, faults: &mut Vec<String>) -> PathBuf {
    match path.canonicalize() {
        Ok(path) if path.is_dir() => return path,
        Ok(_) => faults.push(format!("{flag} {} is not a directory", path.display())),
        Err(error) => faults.push(format!("{flag} {}: {error}", path.display())),
    }
    path.to_path_buf()
}

fn state_directory(path: &Path, faults: &mut Vec<String>) -> PathBuf {
    if let Err(error) = std::fs::create_dir_all(path) {
        faults.push(format!("--state {}: {error}", path.display()));
        return path.to_path_buf();
    }
    let path = directory("--state", path, faults);
    if path.as_os_str().len() > MAX_STATE_PATH {
        faults.push(format!("--state {} is longer than {MAX_STATE_PATH} bytes", path.display()));
    }
    path
}

fn file(flag: &str, path: &Path, faults: &mut Vec<String>) -> PathBuf {
    match std::path::absolute(path) {
        Ok(path) if path.is_file() => return path,
        Ok(_) => faults.push(format!("{flag} {} is not a file", path.display())),
        Err(error) => faults.push(format!("{flag} {}: {error}", path.display())),
    }
    path.to_path_buf()
}

fn tls(arguments: &Arguments, faults: &mut Vec<String>) -> Option<(SocketAddr, PeerFiles)> {
    let files = [
        ("--tls-cert", &arguments.tls_cert),
        ("--tls-key", &arguments.tls_key),
        ("--tls-client-ca", &arguments.tls_client_ca),
    ];
    let Some(address) = arguments.listen else {
        if files.iter().any(|(_, path)| path.is_some()) || arguments.tls_crl.is_some() {
            faults.push("the --tls settings need --listen".to_owned());
        }
        return None;
    };
    let mut found = Vec::new();
    for (flag, path) in files {
        match path {
            Some(path) => found.push(file(flag, path, faults)),
            None => faults.push(format!("--listen needs {flag}")),
        }
    }
    let revoked = arguments.tls_crl.as_deref().map(|path| file("--tls-crl", path, faults));
    let [certificate, key, authority] = <[PathBuf; 3]>::try_from(found).ok()?;
    Some((address, PeerFiles { certificate, key, authority, revoked }))
}

fn worker_init(given: Option<&Path>, faults: &mut Vec<String>) -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("worker-init"));
    match given.map(Path::to_path_buf).or_else(beside) {
        Some(path) => file("--worker-init", &path, faults),
        None => {
            faults.push("--worker-init is needed".to_owned());
            PathBuf::new()
        }
    }
}

fn secrets(path: Option<&Path>, faults: &mut Vec<String>) -> Secrets {
    // An empty variable means no file.
    let read = path.filter(|path| !path.as_os_str().is_empty()).map(Secrets::read);
    read.unwrap_or_else(|| Ok(Secrets::default())).unwrap_or_else(|found| {
        faults.extend(found.into_iter().map(|fault| format!("--secrets {fault}")));
        Secrets::default()
    })
}

/// Parses the operator's list of private networks. If entries are incomplete, the fault ends with the setting to paste.
fn private_routes(listed: &[String], faults: &mut Vec<String>) -> Vec<PrivateRoute> {
    const FLAG: &str = "--egress-allow-private";
    let mut entries = match operator_list::parse(&listed.join(",")) {
        Ok(entries) => entries,
        Err(found) => {
            faults.extend(found.into_iter().map(|fault| format!("{FLAG} {fault}")));
            return Vec::new();
        }
    };
    if entries.iter().any(|entry| entry.patterns.is_none() || !entry.value.contains('=')) {
        for entry in entries.iter_mut().filter(|entry| !entry.value.contains('=')) {
            entry.value = format!("NAME={}", entry.value);
        }
        let line = operator_list::completed("ASP_RUNTIME_EGRESS_ALLOW_PRIVATE", &entries);
        faults.push(format!(
            "{FLAG} has entries that do not name a host and the primitives they serve; complete and paste \
             (docs/operator-lists.md):\n  {line}"
        ));
        return Vec::new();
    }
    let mut routes = Vec::new();
    for ListEntry { value, patterns } in entries {
        let patterns = patterns.unwrap_or_default();
        if patterns.is_empty() {
            tracing::warn!(
                list = "ASP_RUNTIME_EGRESS_ALLOW_PRIVATE",
                entry = value,
                "an operator's entry serves nobody: its `for` is empty; name primitives or remove the entry"
            );
        }
        match PrivateRoute::parse(&value, patterns) {
            Ok(route) => routes.push(route),
            Err(fault) => faults.push(format!("{FLAG} {value}: {fault}")),
        }
    }
    routes
}

fn languages(arguments: &Arguments, faults: &mut Vec<String>) -> Languages {
    let python = arguments.python.as_ref().map(|path| file("ASP_PLUGIN_PYTHON", path, faults));
    let node = pair(
        ("ASP_PLUGIN_NODE", arguments.node.as_deref()),
        ("ASP_PLUGIN_NODE_SHIM", arguments.node_shim.as_deref()),
        faults,
    );
    let node = node.map(|(binary, shim)| {
        let flags = node_flags(&binary, &shim, faults);
        Node { binary, shim, flags }
    });
    let java = pair(
        ("ASP_PLUGIN_JAVA", arguments.java.as_deref()),
        ("ASP_PLUGIN_JAVA_SHIM", arguments.java_shim.as_deref()),
        faults,
    );
    Languages { python, node, java }
}

/// Asks the shim for the flags that this release of Node needs.
fn node_flags(node: &Path, shim: &Path, faults: &mut Vec<String>) -> Vec<String> {
    let asked = std::process::Command::new(node).arg(shim.join("src/flags.mjs")).env_clear().output();
    match asked {
        Ok(answer) if answer.status.success() => {
            return String::from_utf8_lossy(&answer.stdout).lines().map(str::to_owned).collect();
        }
        Ok(answer) => faults.push(format!("ASP_PLUGIN_NODE_SHIM {}: {}", shim.display(), answer.status)),
        Err(error) => faults.push(format!("ASP_PLUGIN_NODE {}: {error}", node.display())),
    }
    Vec::new()
}

/// Returns the paths of a language that needs a binary and a directory: both or neither must be set.
fn pair(
    (binary_name, binary): (&str, Option<&Path>),
    (shim_name, shim): (&str, Option<&Path>),
    faults: &mut Vec<String>,
) -> Option<(PathBuf, PathBuf)> {
    match (binary, shim) {
        (Some(binary), Some(shim)) => {
            Some((file(binary_name, binary, faults), directory(shim_name, shim, faults)))
        }
        (None, None) => None,
        (Some(_), None) => {
            faults.push(format!("{binary_name} needs {shim_name}"));
            None
        }
        (None, Some(_)) => {
            faults.push(format!("{shim_name} needs {binary_name}"));
            None
        }
    }
}

/// Default for the workers' memory; the rest is for this process and the gateway.
fn three_quarters_of_memory() -> u64 {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    total.map_or(1 << 30, |kibibytes| kibibytes * 1024 / 4 * 3)
}

#[cfg(test)]
mod tests;
