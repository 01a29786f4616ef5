//! `plugin.json`: identity and limits of an installed plugin, and the primitives that it serves (runtime/README.md, "An
//! installed plugin").
//!
//! Refuses unknown fields, values out of bounds, and names that could leave the plugin's directory. No API request
//! changes a manifest.

mod environment;
mod primitive;

use std::collections::{BTreeMap, BTreeSet};

use asp_launcher::MAX_TCP;
use serde::Deserialize;
use serde_json::value::RawValue;

pub use environment::{Variable, Variables};
pub use primitive::{CallLimits, Primitive};

use crate::egress::{Destination, EGRESS_PORT};
use crate::secrets::is_secret_name;

/// Maximum size of `plugin.json` in bytes; schemas are the largest part.
pub const MAX_BYTES: u64 = 4 << 20;
const FORMAT: u32 = 1;
const MAX_NAME: usize = 128;
const MAX_NAMES: usize = 64;
/// Maximum number of primitives of one package.
const MAX_PRIMITIVES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Tool,
    Task,
    Resource,
    ResourceTemplate,
    Prompt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Plugin,
    McpStdio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Python,
    Node,
    Java,
}

impl Language {
    pub const ALL: [Language; 3] = [Language::Python, Language::Node, Language::Java];

    pub const fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Node => "node",
            Language::Java => "java",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    format: u32,
    pub id: String,
    pub version: String,
    /// Kind of its only primitive; `None` if `primitives` has them.
    pub kind: Option<Kind>,
    pub mode: Mode,
    pub language: Option<Language>,
    #[serde(default)]
    pub entrypoint: String,
    #[serde(default)]
    pub command: Vec<String>,
    /// Variables of a stdio server, in addition to those of every worker.
    #[serde(default)]
    pub env: Variables,
    #[serde(default)]
    pub artifact_sha256: String,
    // The shims and the gateway check arguments and results; the runtime only carries the file.
    #[serde(rename = "inputSchema")]
    _input_schema: Option<Box<RawValue>>,
    #[serde(rename = "outputSchema")]
    _output_schema: Option<Box<RawValue>>,
    #[serde(rename = "artifactSchema")]
    _artifact_schema: Option<Box<RawValue>>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub pool: Pool,
    #[serde(default)]
    pub isolation: Isolation,
    #[serde(rename = "mutation", default)]
    _mutation: String,
    #[serde(rename = "riskClass", default)]
    _risk_class: String,
    #[serde(rename = "supportsProgress", default)]
    _supports_progress: bool,
    #[serde(rename = "supportsCancellation", default)]
    _supports_cancellation: bool,
    #[serde(default)]
    pub allowed_domains: Vec<String>,
    /// `host:port` of services that are reached without HTTP.
    #[serde(default)]
    pub allowed_tcp: Vec<String>,
    #[serde(default)]
    pub elicitations: Vec<String>,
    #[serde(default)]
    pub delegations: Vec<String>,
    /// Names of the operator's secrets that its code asks for.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Primitives of a package that serves several, or one under another name, by id.
    #[serde(default)]
    pub primitives: BTreeMap<String, Primitive>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    pub max_runtime_seconds: u64,
    pub input_timeout_seconds: u64,
    pub heartbeat_seconds: u64,
    /// Concurrent calls of one plugin over all tenants; enforced by the gateway's limiter.
    pub concurrent_invocations: u64,
    pub cpu_millis: u32,
    pub memory_bytes: u64,
    pub pids: u32,
    pub files: u64,
    pub disk_bytes: u64,
    pub log_bytes_per_second: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_runtime_seconds: 60,
            input_timeout_seconds: 300,
            heartbeat_seconds: 10,
            concurrent_invocations: 0,
            cpu_millis: 1000,
            memory_bytes: 512 << 20,
            pids: 64,
            files: 256,
            disk_bytes: 256 << 20,
            log_bytes_per_second: 1 << 20,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolMode {
    Warm,
    Ephemeral,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pool {
    pub mode: PoolMode,
    pub min: usize,
    pub max: usize,
    pub concurrency: usize,
    pub idle_seconds: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Pool { mode: PoolMode::Warm, min: 0, max: 4, concurrency: 8, idle_seconds: 300 }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Isolation {
    pub min_level: u32,
}

impl Default for Isolation {
    fn default() -> Self {
        Isolation { min_level: 3 }
    }
}

impl Manifest {
    /// Parses and checks the file's text.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let manifest: Manifest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        manifest.check().map(|()| manifest)
    }

    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!("format is {}, known is {FORMAT}", self.format));
        }
        if !is_name(&self.id) || !is_name(&self.version) {
            return Err(format!("id {:?} or version {:?} is not a valid name", self.id, self.version));
        }
        let digest = &self.artifact_sha256;
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if !(digest.is_empty() || digest.len() == 64 && digest.bytes().all(hex)) {
            return Err("artifactSha256 is not 64 hex digits".into());
        }
        self.check_entry()?;
        if self.mode == Mode::Plugin && !self.env.is_empty() {
            return Err("env is for mode mcp-stdio".into());
        }
        if self.mode == Mode::McpStdio && !self.secrets.is_empty() {
            return Err("secrets are for mode plugin; a stdio server has them in env".into());
        }
        check_secrets(&self.secrets)?;
        environment::check(&self.env)?;
        self.limits.check()?;
        self.pool.check()?;
        if !(1..=3).contains(&self.isolation.min_level) {
            return Err(format!("isolation.minLevel is {}", self.isolation.min_level));
        }
        check_names(&self.elicitations, &self.delegations)?;
        self.check_primitives()?;
        if self.allowed_domains.len() > MAX_NAMES || !self.allowed_domains.iter().all(|name| is_domain(name))
        {
            return Err("allowedDomains has an entry that is neither a host nor *.suffix".into());
        }
        let is_destination = |text: &String| {
            Destination::parse(text)
                .is_some_and(|to| is_domain(&to.host) && !to.host.starts_with('*') && to != own_proxy())
        };
        if self.allowed_tcp.len() > MAX_TCP || !self.allowed_tcp.iter().all(is_destination) {
            return Err(format!("allowedTcp has an entry that is not host:port, or more than {MAX_TCP}"));
        }
        Ok(())
    }

    /// Whether its workers reach anything outside of their sandbox.
    pub fn has_network(&self) -> bool {
        !self.allowed_domains.is_empty() || !self.allowed_tcp.is_empty()
    }

    /// Returns the services that its workers reach without HTTP, each once.
    pub fn destinations(&self) -> Vec<Destination> {
        let listed: BTreeSet<&String> = self.allowed_tcp.iter().collect();
        listed.into_iter().filter_map(|text| Destination::parse(text)).collect()
    }

    fn check_primitives(&self) -> Result<(), String> {
        if self.primitives.is_empty() {
            return if self.kind.is_some() { Ok(()) } else { Err("kind is missing".into()) };
        }
        let has_own = self.kind.is_some()
            || !self.entrypoint.is_empty()
            || !self.elicitations.is_empty()
            || !self.delegations.is_empty()
            || !self.secrets.is_empty();
        if self.mode != Mode::Plugin || has_own || self.primitives.len() > MAX_PRIMITIVES {
            return Err(
                "primitives are for mode plugin, at most 256, each with its own kind and entrypoint".into()
            );
        }
        for (id, primitive) in &self.primitives {
            primitive.check().map_err(|fault| format!("primitive {id:?}: {fault}"))?;
        }
        match self.primitives.keys().find(|id| !is_name(id)) {
            Some(id) => Err(format!("primitive {id:?} is not a valid name")),
            None => Ok(()),
        }
    }

    fn check_entry(&self) -> Result<(), String> {
        match self.mode {
            Mode::Plugin if self.language.is_none() => Err("language is missing".into()),
            Mode::Plugin if !self.command.is_empty() => Err("command is for mode mcp-stdio".into()),
            Mode::Plugin if self.primitives.is_empty() => check_entrypoint(&self.entrypoint),
            Mode::McpStdio if !matches!(self.kind, Some(Kind::Tool | Kind::Task)) => {
                Err("mode mcp-stdio is for tools and tasks".into())
            }
            Mode::McpStdio if self.command.is_empty() || self.command.len() > MAX_NAMES => {
                Err("command has no or too many words".into())
            }
            Mode::McpStdio if self.command.iter().any(|word| word.contains('\0')) => {
                Err("command has a NUL character".into())
            }
            Mode::Plugin | Mode::McpStdio => Ok(()),
        }
    }
}

impl Limits {
    /// Returns the limits of a call.
    pub fn of_calls(&self) -> CallLimits {
        CallLimits {
            max_runtime_seconds: self.max_runtime_seconds,
            input_timeout_seconds: self.input_timeout_seconds,
            heartbeat_seconds: self.heartbeat_seconds,
            concurrent_invocations: self.concurrent_invocations,
        }
    }

    fn check(&self) -> Result<(), String> {
        self.of_calls().check()?;
        check_bounds(&[
            ("cpuMillis", u64::from(self.cpu_millis), 10, 256_000),
            ("memoryBytes", self.memory_bytes, 16 << 20, 1 << 42),
            ("pids", u64::from(self.pids), 1, 32_768),
            ("files", self.files, 16, 1 << 20),
            ("diskBytes", self.disk_bytes, 4096, 1 << 42),
            ("logBytesPerSecond", self.log_bytes_per_second, 1024, 1 << 30),
        ])
    }
}

/// The listener of the egress proxy inside the sandbox, which nothing else may have.
fn own_proxy() -> Destination {
    Destination { host: "localhost".to_owned(), port: EGRESS_PORT }
}

/// Checks values between their least and their greatest one.
fn check_bounds(bounds: &[(&str, u64, u64, u64)]) -> Result<(), String> {
    match bounds.iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
        Some((field, value, least, most)) => Err(format!("limits.{field} is {value}, not {least} to {most}")),
        None => Ok(()),
    }
}

fn check_names(elicitations: &[String], delegations: &[String]) -> Result<(), String> {
    for (field, names) in [("elicitations", elicitations), ("delegations", delegations)] {
        if names.len() > MAX_NAMES || names.iter().any(|name| name.is_empty() || name.len() > MAX_NAME) {
            return Err(format!("{field} has too many or too long names"));
        }
    }
    Ok(())
}

fn check_secrets(names: &[String]) -> Result<(), String> {
    let fits = names.len() <= MAX_NAMES && names.iter().all(|name| is_secret_name(name));
    if fits { Ok(()) } else { Err("secrets has too many names, or one that no secret can have".into()) }
}

fn check_entrypoint(entrypoint: &str) -> Result<(), String> {
    if is_relative(entrypoint) {
        return Ok(());
    }
    Err(format!("entrypoint {entrypoint:?} is not a path within the package"))
}

impl Pool {
    fn check(&self) -> Result<(), String> {
        let fits = self.min <= self.max
            && (1..=256).contains(&self.max)
            && (1..=1024).contains(&self.concurrency)
            && (1..=86_400).contains(&self.idle_seconds);
        let Pool { min, max, concurrency, idle_seconds, .. } = self;
        let shown = format!("min {min}, max {max}, concurrency {concurrency}, idleSeconds {idle_seconds}");
        if fits { Ok(()) } else { Err(format!("pool is out of bounds: {shown}")) }
    }
}

/// Whether `text` is a name that is a single directory: `[A-Za-z0-9][A-Za-z0-9._+-]*`.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    text.len() <= MAX_NAME
        && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && text.bytes().all(plain)
}

/// Whether `text` is a relative path without special parts, or a Java class name.
pub fn is_relative(text: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.starts_with('-');
    text.len() <= 512 && !text.contains(['\0', '\\']) && text.split('/').all(plain)
}

/// Whether `text` is a host name, or `*.` and a suffix of at least two labels.
fn is_domain(text: &str) -> bool {
    let (name, labels) = match text.strip_prefix("*.") {
        Some(suffix) => (suffix, 2),
        None => (text, 1),
    };
    let label = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label) && name.split('.').count() >= labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(
        change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>),
    ) -> Result<Manifest, String> {
        let mut value = serde_json::json!({
            "format": 1, "id": "echo", "version": "1.0.0", "kind": "tool", "mode": "plugin",
            "language": "python", "entrypoint": "echo.py", "inputSchema": {"type": "object"},
            "allowedDomains": ["api.example.com", "*.example.org"], "allowedTcp": ["db.example.com:5432"],
        });
        change(value.as_object_mut().unwrap());
        Manifest::parse(&value.to_string())
    }

    #[test]
    fn a_small_manifest_has_the_defaults() {
        let manifest = manifest(|_| {}).unwrap();
        assert_eq!((manifest.isolation.min_level, manifest.pool.concurrency), (3, 8));
        assert_eq!(manifest.limits.max_runtime_seconds, 60);
    }

    #[test]
    fn a_package_has_a_part_for_each_of_its_primitives() {
        let package = |parts: serde_json::Value| {
            manifest(|object| {
                object.retain(|key, _| !["kind", "entrypoint", "inputSchema"].contains(&key.as_str()));
                object.insert("primitives".into(), parts);
            })
        };
        let part = |change: &str| {
            let part = r#"{"version": "1.0.0", "kind": "task", "entrypoint": "a.py:b", "limits": {"heartbeatSeconds": 3}}"#;
            serde_json::from_str::<serde_json::Value>(&part.replacen("1.0.0", change, 1)).unwrap()
        };
        let both = package(serde_json::json!({"one": part("1.0.0"), "two": part("2.0.0")})).unwrap();
        assert_eq!(both.primitives["two"].limits.heartbeat_seconds, 3);
        assert_eq!(both.primitives["two"].limits.max_runtime_seconds, 60);
        let entry = |key: &str, value: serde_json::Value| {
            let mut part = part("1.0.0");
            part[key] = value;
            part
        };
        for wrong in [
            serde_json::json!({}),
            serde_json::json!({"../x": part("1.0.0")}),
            serde_json::json!({"one": entry("entrypoint", "../x.py".into())}),
            serde_json::json!({"one": entry("kind", serde_json::Value::Null)}),
            serde_json::json!({"one": entry("pool", serde_json::json!({"max": 1}))}),
            serde_json::json!({"one": entry("limits", serde_json::json!({"memoryBytes": 1 << 30}))}),
            serde_json::json!({"one": entry("limits", serde_json::json!({"heartbeatSeconds": 0}))}),
            serde_json::json!({"one": entry("elicitations", serde_json::json!([""]))}),
            serde_json::json!({"one": entry("secrets", serde_json::json!([""]))}),
        ] {
            assert!(package(wrong.clone()).is_err(), "{wrong}");
        }
        let twofold = manifest(|object| {
            object.insert("primitives".into(), serde_json::json!({"one": part("1.0.0")}));
        });
        assert!(twofold.is_err(), "it has a kind and primitives");
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let table = [
            ("format", serde_json::json!(2)),
            ("id", serde_json::json!("../x")),
            ("id", serde_json::json!("")),
            ("id", serde_json::json!(".hidden")),
            ("version", serde_json::json!("a/b")),
            ("surprise", serde_json::json!(1)),
            ("kind", serde_json::Value::Null),
            ("language", serde_json::json!("ruby")),
            ("language", serde_json::Value::Null),
            ("entrypoint", serde_json::json!("../../etc/passwd")),
            ("entrypoint", serde_json::json!("/etc/passwd")),
            ("entrypoint", serde_json::json!("--eval")),
            ("entrypoint", serde_json::json!("")),
            ("command", serde_json::json!(["sh"])),
            ("env", serde_json::json!({"A": {"value": "x"}})),
            ("mode", serde_json::json!("mcp-stdio")),
            ("artifactSha256", serde_json::json!("ABC")),
            ("limits", serde_json::json!({"memoryBytes": 1})),
            ("limits", serde_json::json!({"pids": 0})),
            ("limits", serde_json::json!({"cpuMillis": -1})),
            ("pool", serde_json::json!({"min": 5, "max": 4})),
            ("pool", serde_json::json!({"max": 0})),
            ("isolation", serde_json::json!({"minLevel": 0})),
            ("allowedDomains", serde_json::json!(["*"])),
            ("allowedDomains", serde_json::json!(["*.com"])),
            ("allowedDomains", serde_json::json!(["http://x"])),
            ("allowedTcp", serde_json::json!(["db.example"])),
            ("allowedTcp", serde_json::json!(["*.example.com:5432"])),
            ("allowedTcp", serde_json::json!(["10.0.0.1:5432"])),
            ("allowedTcp", serde_json::json!(["DB.example:5432"])),
            ("allowedTcp", serde_json::json!(["localhost:3128"])),
            ("allowedTcp", serde_json::json!(vec!["db.example:5432"; 17])),
            ("elicitations", serde_json::json!([""])),
            ("secrets", serde_json::json!(["a/b"])),
            ("secrets", serde_json::json!(vec!["key"; 65])),
        ];
        for (field, value) in table {
            let fault = manifest(|object| {
                object.insert(field.into(), value.clone());
            });
            assert!(fault.is_err(), "{field} = {value}");
        }
    }
}
