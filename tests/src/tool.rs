//! Where the built binaries and the installed tools are. What is missing is an error, never a skip.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The repository's root.
pub fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_path_buf).context("the tests crate lies below the repository's root")
}

/// What a stack runs: its programs, and the checkout whose files belong to them.
#[derive(Clone, Debug)]
pub struct Build {
    /// The checkout: its primitives, its configuration of Envoy.
    pub root: PathBuf,
    pub asp: PathBuf,
    pub filter_wasm: PathBuf,
}

impl Build {
    /// Of this repository.
    pub fn own() -> Result<Build> {
        Ok(Build { root: root()?, asp: asp()?, filter_wasm: filter_wasm()? })
    }

    /// Of another commit, as `scripts/bench-against` lays it out: `source`, `asp` and `asp_filter.wasm`.
    pub fn at(directory: &Path) -> Result<Build> {
        let directory = directory.canonicalize().with_context(|| directory.display().to_string())?;
        let part = |name: &str| existing(directory.join(name), "scripts/bench-against");
        Ok(Build { root: part("source")?, asp: part("asp")?, filter_wasm: part("asp_filter.wasm")? })
    }
}

/// The `asp` binary: `ASP_BIN`, else target/release/asp.
pub fn asp() -> Result<PathBuf> {
    built("ASP_BIN", "release/asp", "cargo build --release -p asp")
}

/// The language runtime: `ASP_RUNTIME_BIN`, else target/release/asp-runtime.
pub fn runtime() -> Result<PathBuf> {
    built("ASP_RUNTIME_BIN", "release/asp-runtime", "cargo build --release -p asp-runtime -p asp-launcher")
}

/// The built filter: `ASP_FILTER_WASM`, else target/wasm32-wasip1/wasm/asp_filter.wasm.
pub fn filter_wasm() -> Result<PathBuf> {
    built("ASP_FILTER_WASM", "wasm32-wasip1/wasm/asp_filter.wasm", "make wasm")
}

pub fn envoy() -> Result<PathBuf> {
    installed("ASP_ENVOY_BIN", "envoy/envoy")
}

pub fn node() -> Result<PathBuf> {
    installed("ASP_NODE_BIN", "node/bin/node")
}

pub fn python() -> Result<PathBuf> {
    installed("ASP_PYTHON_BIN", "python/bin/python")
}

/// The Python SDK's 1.x line.
pub fn python_1() -> Result<PathBuf> {
    installed("ASP_PYTHON_1_BIN", "python-1/bin/python")
}

/// The reference server's program.
pub fn everything_js() -> Result<PathBuf> {
    installed(
        "ASP_EVERYTHING_JS",
        "everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
    )
}

/// The server of an object store.
pub fn versitygw() -> Result<PathBuf> {
    installed("ASP_VERSITYGW_BIN", "bin/versitygw")
}

/// A server of the API of AWS KMS.
pub fn moto_server() -> Result<PathBuf> {
    let path = clients()?.join("moto/bin/moto_server");
    existing(path, "scripts/setup test")
}

/// A Kubernetes KMS plugin.
pub fn kms_plugin() -> Result<PathBuf> {
    installed("ASP_KMS_PLUGIN_BIN", "bin/kms-plugin")
}

/// The interpreter with the Python shim.
pub fn plugin_python() -> Result<PathBuf> {
    installed("ASP_PLUGIN_PYTHON", "plugin-python/bin/python")
}

/// Node for plugins, and the folder of its shim.
pub fn plugin_node() -> Result<(PathBuf, PathBuf)> {
    Ok((installed("ASP_PLUGIN_NODE", "node/bin/node")?, installed("ASP_PLUGIN_NODE_SHIM", "plugin-node")?))
}

/// Java for plugins, and the folder of its shim.
pub fn plugin_java() -> Result<(PathBuf, PathBuf)> {
    Ok((installed("ASP_PLUGIN_JAVA", "plugin-java/java")?, installed("ASP_PLUGIN_JAVA_SHIM", "plugin-java")?))
}

pub fn redis() -> Result<PathBuf> {
    installed("ASP_REDIS_BIN", "redis-server")
}

/// The folder of PostgreSQL's server programs.
pub fn postgres() -> Result<PathBuf> {
    installed("ASP_POSTGRES_DIR", "postgres")
}

/// The folder of Keycloak, built for a database in memory.
pub fn keycloak() -> Result<PathBuf> {
    installed("ASP_KEYCLOAK_DIR", "keycloak")
}

/// The folder of Kafka's libraries.
pub fn kafka() -> Result<PathBuf> {
    Ok(installed("ASP_KAFKA_DIR", "kafka")?.join("libs"))
}

/// The browser, and the program that drives it.
pub fn chromium() -> Result<PathBuf> {
    installed("ASP_CHROMIUM_BIN", "chromium")
}

pub fn chromedriver() -> Result<PathBuf> {
    installed("ASP_CHROMEDRIVER_BIN", "chromedriver")
}

/// The folder below which set-up puts the Node clients.
pub fn clients() -> Result<PathBuf> {
    installed("ASP_CLIENTS_DIR", "clients")
}

/// The peer that the gateway is measured beside; only `make bench` needs it.
pub fn mcp_proxy() -> Result<PathBuf> {
    let path = match env::var_os("ASP_MCP_PROXY_BIN") {
        Some(path) => PathBuf::from(path),
        None => root()?.join(".tools/mcp-proxy/bin/mcp-proxy"),
    };
    existing(path, "scripts/setup bench")
}

fn built(variable: &str, below_target: &str, command: &str) -> Result<PathBuf> {
    let path = match env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => {
            let target = env::var_os("CARGO_TARGET_DIR").map_or(root()?.join("target"), PathBuf::from);
            target.join(below_target)
        }
    };
    existing(path, command)
}

fn installed(variable: &str, below_tools: &str) -> Result<PathBuf> {
    let path = match env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => root()?.join(".tools").join(below_tools),
    };
    existing(path, "scripts/setup test")
}

fn existing(path: PathBuf, command: &str) -> Result<PathBuf> {
    if !path.exists() {
        bail!("{} is missing; `{command}` makes it", path.display());
    }
    Ok(path)
}

/// Writes a program that can be executed at once. A shell writes it: while a file is open for writing in this process,
/// a process that another test starts inherits that, and whoever executes the file is told "Text file busy".
pub fn write_program(path: &Path, text: &str) -> Result<()> {
    let write = r#"printf %s "$2" > "$1" && chmod 755 "$1""#;
    let written = Command::new("sh").args(["-c", write, "sh"]).arg(path).arg(text).status()?;
    ensure!(written.success(), "{} is not written", path.display());
    Ok(())
}
