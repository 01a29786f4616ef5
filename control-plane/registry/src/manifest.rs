//! The runtime manifest: the data that the plugin manager needs to run a primitive.
//!
//! Owns one JSON object for each primitive, `{id, version, kind, mode, …}` with limits in plain units, and the
//! `plugin.json` of an installed package, which also has the schemas. Keys that have no meaning for the mode are left
//! out.

mod package;
mod shared;
mod stdio;

use asp_proto::snapshot::worker::Pool;
use asp_proto::snapshot::{self, runtime};
use serde_json::{Map, Value, json};

pub use package::{plugin_manifest, plugin_package};
pub use stdio::{stdio_manifest, stdio_package};

/// Default of `capabilities.maxRuntimeSeconds`.
pub const DEFAULT_MAX_RUNTIME_SECONDS: u32 = 60;
/// Default of `capabilities.inputTimeoutSeconds`.
pub const DEFAULT_INPUT_TIMEOUT_SECONDS: u32 = 300;

/// Returns the manifest of one primitive. Times are seconds, memory is bytes, cpu is thousandths of a core.
pub fn runtime_manifest(primitive: &snapshot::Primitive) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), json!(primitive.id));
    object.insert("version".into(), json!(primitive.version));
    object.insert("kind".into(), json!(word(primitive.kind().as_str_name(), "KIND_")));
    let mode = primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
    let mut limits = limits(primitive);
    if let Some(mode) = mode {
        describe(mode, &mut object, &mut limits);
    }
    object.insert("limits".into(), Value::Object(limits));
    object.insert("mutation".into(), json!(word(primitive.mutation().as_str_name(), "MUTATION_")));
    object.insert("riskClass".into(), json!(word(primitive.risk_class().as_str_name(), "RISK_CLASS_")));
    object.insert("supportsProgress".into(), json!(primitive.supports_progress));
    object.insert("supportsCancellation".into(), json!(primitive.supports_cancellation));
    object.insert("allowedDomains".into(), json!(primitive.allowed_domains));
    if !primitive.allowed_tcp.is_empty() {
        object.insert("allowedTcp".into(), json!(primitive.allowed_tcp));
    }
    object.insert("elicitations".into(), json!(primitive.elicitations));
    object.insert("delegations".into(), json!(primitive.delegations));
    Value::Object(object)
}

/// Version of the `plugin.json` format.
const PLUGIN_FORMAT: u32 = 1;

/// Returns the `plugin.json` of a package that serves only this primitive, under its id and version; `None` if it is not run
/// by a plugin.
fn single_manifest(primitive: &snapshot::Primitive, artifact_sha256: &str) -> Option<Value> {
    let runtime::Mode::Plugin(plugin) = primitive.runtime.as_ref()?.mode.as_ref()? else { return None };
    let worker = plugin.worker.unwrap_or_default();
    let mut manifest = runtime_manifest(primitive);
    let object = manifest.as_object_mut()?;
    object.remove("package");
    object.insert("format".into(), json!(PLUGIN_FORMAT));
    object.insert("artifactSha256".into(), json!(artifact_sha256));
    if !plugin.secrets.is_empty() {
        object.insert("secrets".into(), json!(plugin.secrets));
    }
    let schemas = [
        ("inputSchema", &primitive.input_schema),
        ("outputSchema", &primitive.output_schema),
        ("artifactSchema", &primitive.artifact_schema),
    ];
    for (key, text) in schemas {
        // An absent schema is an empty text; a compiled one is JSON.
        if let Ok(schema) = serde_json::from_str::<Value>(text) {
            object.insert(key.into(), schema);
        }
    }
    plugin_keys(primitive, &worker, object);
    if worker.min_isolation > 0 {
        object.insert("isolation".into(), json!({"minLevel": worker.min_isolation}));
    }
    Some(manifest)
}

/// Adds pool and limits in the form that the runtime reads.
fn plugin_keys(primitive: &snapshot::Primitive, worker: &snapshot::Worker, object: &mut Map<String, Value>) {
    object.insert("pool".into(), pool(primitive, worker));
    if let Some(limits) = object.get_mut("limits").and_then(Value::as_object_mut) {
        // The gateway enforces rates.
        limits.remove("invocationCount");
        limits.remove("windowSeconds");
        insert_if_set(limits, "pids", worker.pids.into());
        insert_if_set(limits, "files", worker.files.into());
        insert_if_set(limits, "diskBytes", worker.disk_bytes);
        insert_if_set(limits, "logBytesPerSecond", worker.log_bytes_per_second);
    }
}

fn pool(primitive: &snapshot::Primitive, worker: &snapshot::Worker) -> Value {
    let ephemeral = match worker.pool() {
        Pool::Warm => false,
        Pool::Ephemeral => true,
        // At high risk a process serves only one call (ADR 5).
        Pool::Unspecified => primitive.risk_class() == snapshot::RiskClass::High,
    };
    let mut pool = Map::new();
    pool.insert("mode".into(), json!(if ephemeral { "ephemeral" } else { "warm" }));
    insert_if_set(&mut pool, "min", worker.min_workers.into());
    insert_if_set(&mut pool, "max", worker.max_workers.into());
    insert_if_set(&mut pool, "concurrency", worker.concurrency.into());
    insert_if_set(&mut pool, "idleSeconds", worker.idle_seconds.into());
    Value::Object(pool)
}

fn insert_if_set(object: &mut Map<String, Value>, key: &str, value: u64) {
    if value > 0 {
        object.insert(key.into(), json!(value));
    }
}

fn limits(primitive: &snapshot::Primitive) -> Map<String, Value> {
    let or = |value: u32, default: u32| if value == 0 { default } else { value };
    let mut limits = Map::new();
    let runtime = or(primitive.max_runtime_seconds, DEFAULT_MAX_RUNTIME_SECONDS);
    limits.insert("maxRuntimeSeconds".into(), json!(runtime));
    let input = or(primitive.input_timeout_seconds, DEFAULT_INPUT_TIMEOUT_SECONDS);
    limits.insert("inputTimeoutSeconds".into(), json!(input));
    if primitive.heartbeat_seconds > 0 {
        limits.insert("heartbeatSeconds".into(), json!(primitive.heartbeat_seconds));
    }
    if let Some(limit) = &primitive.limit {
        limits.insert("invocationCount".into(), json!(limit.invocation_count));
        limits.insert("windowSeconds".into(), json!(limit.window_seconds));
        if limit.concurrent_invocations > 0 {
            limits.insert("concurrentInvocations".into(), json!(limit.concurrent_invocations));
        }
    }
    limits
}

fn describe(mode: &runtime::Mode, object: &mut Map<String, Value>, limits: &mut Map<String, Value>) {
    // Leaves out a text that the snapshot leaves empty.
    let mut set = |key: &str, value: Value| {
        if value.as_str() != Some("") {
            object.insert(key.into(), value);
        }
    };
    let mut resources = (0, 0);
    match mode {
        runtime::Mode::Builtin(builtin) => {
            set("mode", json!("builtin"));
            set("entrypoint", json!(builtin.entrypoint));
        }
        runtime::Mode::ProxyHttp(http) => {
            set("mode", json!("proxy"));
            set("http", json!({"method": http.method, "url": http.url}));
        }
        runtime::Mode::ProxyMcp(mcp) => {
            set("mode", json!("proxy"));
            set("mcp", json!({"url": mcp.url, "tool": mcp.tool}));
        }
        runtime::Mode::ProxyCalls(calls) => {
            set("mode", json!("proxy"));
            set("calls", json!({"url": calls.url, "tool": calls.tool}));
        }
        runtime::Mode::ProxyA2a(a2a) => {
            set("mode", json!("proxy"));
            set("a2a", json!({"url": a2a.url, "skill": a2a.skill}));
        }
        runtime::Mode::ProxyOpenai(openai) => {
            set("mode", json!("proxy"));
            set("openai", json!({"url": openai.url, "model": openai.model}));
        }
        runtime::Mode::Primitive(other) => {
            set("mode", json!("primitive"));
            set("primitive", json!(other.id));
        }
        runtime::Mode::Plugin(plugin) => {
            set("mode", json!("plugin"));
            set("language", json!(plugin.language));
            set("entrypoint", json!(plugin.entrypoint));
            set("package", json!(plugin.package));
            set("artifactSha256", json!(plugin.artifact_sha256));
            resources = (plugin.cpu_millis, plugin.memory_bytes);
        }
        runtime::Mode::McpStdio(stdio) => {
            set("mode", json!("mcp-stdio"));
            set("package", json!(stdio.package));
            set("tool", json!(stdio.tool));
            set("artifactSha256", json!(stdio.artifact_sha256));
            resources = (stdio.cpu_millis, stdio.memory_bytes);
        }
        runtime::Mode::Static(_) => set("mode", json!("static")),
    }
    if resources.0 > 0 {
        limits.insert("cpuMillis".into(), json!(resources.0));
    }
    if resources.1 > 0 {
        limits.insert("memoryBytes".into(), json!(resources.1));
    }
}

/// Converts a name of the wire, such as `KIND_RESOURCE_TEMPLATE` to `resource_template`.
fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primitive(mode: runtime::Mode) -> snapshot::Primitive {
        snapshot::Primitive {
            id: "p".into(),
            version: "1.2.3".into(),
            input_schema: r#"{"type":"object"}"#.into(),
            runtime: Some(snapshot::Runtime { mode: Some(mode) }),
            risk_class: snapshot::RiskClass::High.into(),
            ..snapshot::Primitive::default()
        }
    }

    #[test]
    fn a_plugins_manifest_has_its_schemas_digest_and_pool() {
        let plugin = snapshot::Plugin {
            language: "python".into(),
            entrypoint: "main.py".into(),
            memory_bytes: 5,
            secrets: vec!["crm-key".into()],
            worker: Some(snapshot::Worker { pids: 7, max_workers: 2, ..snapshot::Worker::default() }),
            ..snapshot::Plugin::default()
        };
        let only = primitive(runtime::Mode::Plugin(plugin));
        let manifest = plugin_manifest(("p", "1.2.3"), &[&only], "ab").unwrap();
        assert_eq!(manifest["format"], 1);
        assert_eq!(manifest["artifactSha256"], "ab");
        assert_eq!(manifest["inputSchema"], json!({"type": "object"}));
        assert_eq!(manifest.get("outputSchema"), None);
        assert_eq!(manifest["limits"]["memoryBytes"], 5);
        assert_eq!(manifest["limits"]["pids"], 7);
        assert_eq!(manifest["pool"], json!({"mode": "ephemeral", "max": 2}));
        assert_eq!((&manifest["language"], &manifest["entrypoint"]), (&json!("python"), &json!("main.py")));
        assert_eq!(manifest["secrets"], json!(["crm-key"]));
        assert_eq!(manifest.get("primitives"), None);
    }

    #[test]
    fn what_no_plugin_runs_has_no_plugin_manifest() {
        let builtin = runtime::Mode::Builtin(snapshot::Builtin { entrypoint: "echo".into() });
        assert_eq!(plugin_manifest(("p", "1.2.3"), &[&primitive(builtin)], ""), None);
    }
}
