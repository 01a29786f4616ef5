//! Mode `plugin`: the name of a package, and its `plugin.json`.
//!
//! Keeps true: a package that serves one primitive under the primitive's own id and version has the format of that primitive;
//! any other has `primitives`, each with what concerns its calls alone.

use asp_proto::snapshot::{Plugin, Primitive, runtime};
use serde_json::{Map, Value, json};

use super::shared::SharedSettings;
use super::{PLUGIN_FORMAT, single_manifest};

/// Keys of a primitive's own part; the others concern the processes of the whole package.
const OF_PRIMITIVE: [&str; 14] = [
    "version",
    "kind",
    "entrypoint",
    "inputSchema",
    "outputSchema",
    "artifactSchema",
    "limits",
    "mutation",
    "riskClass",
    "supportsProgress",
    "supportsCancellation",
    "elicitations",
    "delegations",
    "secrets",
];
/// Limits of a primitive's own part.
const OF_CALL: [&str; 4] =
    ["maxRuntimeSeconds", "inputTimeoutSeconds", "heartbeatSeconds", "concurrentInvocations"];

/// Returns name and version of the package that has a primitive's code: `package` or `package@version`; without a version,
/// the primitive's; without a package, the primitive's id and version.
pub fn plugin_package<'a>(plugin: &'a Plugin, id: &'a str, version: &'a str) -> (&'a str, &'a str) {
    match plugin.package.as_str() {
        "" => (id, version),
        package => package.rsplit_once('@').unwrap_or((package, version)),
    }
}

/// Returns the `plugin.json` of a package that serves these primitives, as defined in `runtime/README.md`. `None` if one of
/// them is not run by a plugin, or if they may reach different hosts.
pub fn plugin_manifest(
    (id, version): (&str, &str),
    primitives: &[&Primitive],
    artifact_sha256: &str,
) -> Option<Value> {
    if let [only] = primitives
        && (only.id.as_str(), only.version.as_str()) == (id, version)
    {
        return single_manifest(only, artifact_sha256);
    }
    let mut shared = SharedSettings::default();
    let mut own = Map::new();
    let mut language = "";
    for primitive in primitives {
        let runtime::Mode::Plugin(plugin) = primitive.runtime.as_ref()?.mode.as_ref()? else { return None };
        let mut worker = plugin.worker.unwrap_or_default();
        if worker.min_isolation == 0 {
            // The runtime's default must not yield to another primitive's lower level.
            worker.min_isolation = 3;
        }
        shared.add(primitive, &worker);
        language = &plugin.language;
        own.insert(primitive.id.clone(), own_part(primitive, artifact_sha256)?);
    }
    let first = hosts(primitives.first()?);
    if primitives.iter().any(|primitive| hosts(primitive) != first) {
        return None;
    }
    let mut manifest = json!({
        "format": PLUGIN_FORMAT,
        "id": id,
        "version": version,
        "mode": "plugin",
        "language": language,
        "artifactSha256": artifact_sha256,
        "primitives": own,
    });
    shared.write_to(manifest.as_object_mut()?);
    Some(manifest)
}

/// Returns what a primitive may reach: by HTTP, and by TCP.
fn hosts(primitive: &Primitive) -> [Vec<&str>; 2] {
    [&primitive.allowed_domains, &primitive.allowed_tcp].map(|listed| {
        let mut hosts: Vec<&str> = listed.iter().map(String::as_str).collect();
        hosts.sort_unstable();
        hosts
    })
}

/// Returns the part of one primitive.
fn own_part(primitive: &Primitive, artifact_sha256: &str) -> Option<Value> {
    let mut manifest = single_manifest(primitive, artifact_sha256)?;
    let object = manifest.as_object_mut()?;
    object.retain(|key, _| OF_PRIMITIVE.contains(&key.as_str()));
    let limits = object.get_mut("limits").and_then(Value::as_object_mut)?;
    limits.retain(|key, _| OF_CALL.contains(&key.as_str()));
    Some(manifest)
}

#[cfg(test)]
mod tests {
    use asp_proto::snapshot::{Kind, Runtime, Worker};

    use super::*;

    fn primitive(id: &str, plugin: Plugin) -> Primitive {
        Primitive {
            id: id.into(),
            version: "1.2.3".into(),
            input_schema: r#"{"type":"object"}"#.into(),
            runtime: Some(Runtime { mode: Some(runtime::Mode::Plugin(plugin)) }),
            ..Primitive::default()
        }
    }

    fn plugin(package: &str) -> Plugin {
        Plugin { language: "python".into(), package: package.into(), ..Plugin::default() }
    }

    #[test]
    fn a_package_is_named_by_the_spec_or_by_the_primitive() {
        let named = |package: &str| {
            let plugin = plugin(package);
            let (id, version) = plugin_package(&plugin, "p", "1.0.0");
            format!("{id} {version}")
        };
        assert_eq!(named(""), "p 1.0.0");
        assert_eq!(named("weather"), "weather 1.0.0");
        assert_eq!(named("weather@2.1.0"), "weather 2.1.0");
    }

    #[test]
    fn a_package_of_several_primitives_has_a_part_for_each_and_one_process_for_all() {
        let mut forecast = primitive(
            "forecast",
            Plugin {
                entrypoint: "main.py:forecast".into(),
                memory_bytes: 5,
                worker: Some(Worker { max_workers: 2, ..Worker::default() }),
                ..plugin("weather")
            },
        );
        forecast.elicitations = vec!["city".into()];
        let secrets = vec!["crm-key".to_owned()];
        let mut sweep =
            primitive("sweep", Plugin { entrypoint: "sweep.py".into(), secrets, ..plugin("weather") });
        sweep.kind = Kind::Task.into();
        sweep.max_runtime_seconds = 600;
        let manifest = plugin_manifest(("weather", "1.2.3"), &[&forecast, &sweep], "ab").unwrap();
        assert_eq!((&manifest["id"], &manifest["language"]), (&json!("weather"), &json!("python")));
        assert_eq!((manifest.get("kind"), manifest.get("entrypoint")), (None, None));
        assert_eq!(manifest["limits"]["memoryBytes"], 5);
        assert_eq!(manifest["pool"], json!({"mode": "warm", "max": 2}));
        assert_eq!(manifest["isolation"]["minLevel"], 3);
        let parts = &manifest["primitives"];
        assert_eq!(parts["forecast"]["entrypoint"], "main.py:forecast");
        assert_eq!(parts["forecast"]["elicitations"], json!(["city"]));
        assert_eq!(parts["forecast"]["limits"], json!({"maxRuntimeSeconds": 60, "inputTimeoutSeconds": 300}));
        assert_eq!(parts["forecast"].get("pool"), None);
        assert_eq!((&parts["sweep"]["kind"], &parts["sweep"]["elicitations"]), (&json!("task"), &json!([])));
        assert_eq!(parts["sweep"]["limits"]["maxRuntimeSeconds"], 600);
        assert_eq!(
            (&parts["sweep"]["secrets"], parts["forecast"].get("secrets")),
            (&json!(["crm-key"]), None)
        );
        assert_eq!(manifest.get("secrets"), None, "each primitive has its own");
        let one = plugin_manifest(("weather", "1.2.3"), &[&sweep], "ab").unwrap();
        assert_eq!(one["primitives"]["sweep"]["entrypoint"], "sweep.py", "the package has another name");
    }

    #[test]
    fn primitives_that_may_reach_different_hosts_share_no_package() {
        let one = primitive("one", plugin("weather"));
        let mut two = primitive("two", plugin("weather"));
        two.allowed_domains = vec!["api.example".into()];
        assert_eq!(plugin_manifest(("weather", "1.2.3"), &[&one, &two], "ab"), None);
        let mut two = primitive("two", plugin("weather"));
        two.allowed_tcp = vec!["db.example:5432".into()];
        assert_eq!(plugin_manifest(("weather", "1.2.3"), &[&one, &two], "ab"), None);
        let both = plugin_manifest(("weather", "1.2.3"), &[&two, &two], "ab").unwrap();
        assert_eq!(both["allowedTcp"], json!(["db.example:5432"]));
    }
}
