//! Mode `mcp-stdio`: the name of an installed package, and its `plugin.json`.
//!
//! One server serves several primitives: its process gets the widest of their limits and the strictest of their
//! sandboxes. Keeps true: the command line comes from the package and the installer; a spec has none.

use asp_proto::snapshot::{McpStdio, Primitive, runtime};
use serde_json::{Map, Value, json};

use super::PLUGIN_FORMAT;
use super::shared::SharedSettings;

/// Returns folder and version that a stdio server is installed under: `package` or `package@version`; without a
/// version, the primitive's. A scope becomes part of the name: `@scope/server` is `scope__server`.
pub fn stdio_package(target: &McpStdio, primitive_version: &str) -> (String, String) {
    let name = target.package.strip_prefix('@').unwrap_or(&target.package);
    let (name, version) = name.rsplit_once('@').unwrap_or((name, primitive_version));
    (name.replace('/', "__"), version.to_owned())
}

/// Returns the `plugin.json` of a stdio server, as defined in `runtime/README.md`. `primitives` are those that it
/// serves; the command and the variables come from its package.
pub fn stdio_manifest(
    (id, version): (&str, &str),
    primitives: &[&Primitive],
    (command, env): (&[String], &Map<String, Value>),
    artifact_sha256: &str,
) -> Value {
    let mut shared = SharedSettings::default();
    for primitive in primitives {
        if let Some(runtime::Mode::McpStdio(stdio)) =
            primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref())
        {
            shared.add(primitive, &stdio.worker.unwrap_or_default());
        }
    }
    let mut manifest = json!({
        "format": PLUGIN_FORMAT,
        "id": id,
        "version": version,
        // Never a task: a server that does not know heartbeats must not be required to send them.
        "kind": "tool",
        "mode": "mcp-stdio",
        "command": command,
        "artifactSha256": artifact_sha256,
    });
    let Some(object) = manifest.as_object_mut() else { return manifest };
    shared.write_to(object);
    if !env.is_empty() {
        object.insert("env".into(), json!(env));
    }
    manifest
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{RiskClass, Runtime, Worker, worker};

    use super::*;

    fn primitive(id: &str, stdio: McpStdio) -> Primitive {
        let mode = Some(runtime::Mode::McpStdio(stdio));
        Primitive {
            id: id.into(),
            version: "1.2.3".into(),
            runtime: Some(Runtime { mode }),
            ..Primitive::default()
        }
    }

    #[test]
    fn a_package_has_a_folder_of_its_own_name_and_version() {
        let named = |package: &str| {
            let target = McpStdio { package: package.into(), ..McpStdio::default() };
            let (id, version) = stdio_package(&target, "1.0.0");
            format!("{id} {version}")
        };
        assert_eq!(named("server"), "server 1.0.0");
        assert_eq!(named("server@2.1.0"), "server 2.1.0");
        assert_eq!(named("@scope/server"), "scope__server 1.0.0");
        assert_eq!(named("@scope/server@2.1.0"), "scope__server 2.1.0");
    }

    #[test]
    fn one_process_has_the_widest_bounds_of_its_primitives_and_the_strictest_sandbox() {
        let bounds = Worker { pids: 9, min_isolation: 2, ..Worker::default() };
        let strict = Worker { pids: 7, min_isolation: 3, pool: worker::Pool::Ephemeral.into(), ..bounds };
        let one = McpStdio { memory_bytes: 5, worker: Some(bounds), ..McpStdio::default() };
        let two = McpStdio { memory_bytes: 3, worker: Some(strict), ..McpStdio::default() };
        let mut first = primitive("a", one);
        first.allowed_domains = vec!["b.example".into(), "a.example".into()];
        let mut second = primitive("b", two);
        second.risk_class = RiskClass::High.into();
        second.allowed_domains = vec!["a.example".into()];
        let command = ["node".to_owned(), "server.js".to_owned()];
        let manifest = stdio_manifest(("s", "2.0.0"), &[&first, &second], (&command, &Map::new()), "ab");
        assert_eq!(manifest.get("env"), None);
        assert_eq!((&manifest["id"], &manifest["version"]), (&json!("s"), &json!("2.0.0")));
        assert_eq!(manifest["command"], json!(command));
        assert_eq!((&manifest["limits"]["memoryBytes"], &manifest["limits"]["pids"]), (&json!(5), &json!(9)));
        assert_eq!(manifest["isolation"]["minLevel"], 3);
        assert_eq!(manifest["pool"]["mode"], "ephemeral");
        assert_eq!(manifest["allowedDomains"], json!(["a.example", "b.example"]));
        assert_eq!(manifest.get("package"), None);
    }
}
