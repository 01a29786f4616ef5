//! Rules for the specs that share a plugin package, and with it its processes.
//!
//! Keeps true: the specs of one package version are in one folder and agree on everything that its processes have in common.

use std::collections::HashMap;

use asp_proto::snapshot::Plugin;
use asp_proto::snapshot::worker::Pool;

use super::Declaration;
use crate::compile;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::manifest::plugin_package;
use crate::spec::{Mode, RiskClass, Spec};

/// Isolation level of a spec that states none.
const DEFAULT_ISOLATION: u32 = 3;

/// First spec of a package, whatever its version.
struct FirstSpec<'a> {
    declared: &'a Declaration<'a>,
    version: String,
    /// Whether the version is the primitive's own.
    is_implied: bool,
}

/// Statements about one package version so far, each with the file that made it.
#[derive(Default)]
struct Statements<'a> {
    settings: HashMap<&'static str, (String, &'a str)>,
    ids: HashMap<&'a str, &'a str>,
}

/// Reports specs that cannot share a package with an earlier one, and specs that run apart although they name one package.
pub(crate) fn check_packages<'a>(declared: &'a [Declaration<'a>], findings: &mut [Findings<'_>]) {
    let mut first: HashMap<String, FirstSpec<'a>> = HashMap::new();
    let mut packages: HashMap<(String, String), Statements<'a>> = HashMap::new();
    for (item, findings) in declared.iter().zip(findings) {
        let runtime = item.spec.runtime.as_ref().filter(|runtime| runtime.mode == Mode::Plugin);
        let Some(plugin) = runtime.map(compile::plugin) else { continue };
        let (name, version) = plugin_package(&plugin, &item.spec.id, &item.spec.version);
        let is_implied = !plugin.package.contains('@');
        let earlier = first.entry(name.to_owned()).or_insert_with(|| FirstSpec {
            declared: item,
            version: version.to_owned(),
            is_implied,
        });
        let file = earlier.declared.file;
        if earlier.declared.folder != item.folder {
            // One id in two folders is reported as a duplicate.
            if earlier.declared.spec.id != item.spec.id {
                let message = format!("{file} uses the package `{name}` in another folder");
                let hint = "use another name: a package belongs to one folder";
                findings.add(FaultCode::PackageConflict, "/runtime/package", message, hint);
            }
            continue;
        }
        let key = (name.to_owned(), version.to_owned());
        let is_alone = !packages.contains_key(&key) && earlier.version != version;
        if is_alone && earlier.declared.spec.id != item.spec.id && (is_implied || earlier.is_implied) {
            let message = format!(
                "this is `{name}@{version}`, and {file} is `{name}@{}`: they run as two packages, each in processes of its own",
                earlier.version
            );
            let hint =
                format!("give both primitives one version, or write `package: {name}@VERSION` in both");
            findings.add(FaultCode::PackageVersions, "/runtime/package", message, hint);
        }
        packages.entry(key).or_default().add(item, &plugin, findings);
    }
}

impl<'a> Statements<'a> {
    /// Adds a spec's statements, and reports those that contradict an earlier one.
    fn add(&mut self, item: &'a Declaration<'a>, plugin: &Plugin, findings: &mut Findings<'_>) {
        let id = item.spec.id.as_str();
        if let Some(file) = self.ids.insert(id, item.file) {
            let message = format!("{file} has another version of `{id}` in this package");
            let hint =
                "give each version of a primitive a package version of its own: `package: name@version`";
            findings.add(FaultCode::PackageConflict, "/runtime/package", message, hint);
        }
        for (path, value) in settings(item.spec, plugin) {
            let (known, file) = self.settings.entry(path).or_insert_with(|| (value.clone(), item.file));
            if *known != value {
                let key = path.trim_start_matches('/').replace('/', ".");
                let message = format!("`{key}` is {value} here and {known} in {file}");
                let hint = "the specs of one package share its processes: state the same value, or use another package";
                findings.add(FaultCode::PackageConflict, path, message, hint);
            }
        }
    }
}

/// Returns the settings that the processes of a package have in common, by path; a spec may leave numbers and the digest to
/// the others.
fn settings(spec: &Spec, plugin: &Plugin) -> Vec<(&'static str, String)> {
    let worker = plugin.worker.unwrap_or_default();
    let numbers: [(&'static str, u64); 10] = [
        ("/runtime/resources/cpu", plugin.cpu_millis.into()),
        ("/runtime/resources/memory", plugin.memory_bytes),
        ("/runtime/resources/pids", worker.pids.into()),
        ("/runtime/resources/files", worker.files.into()),
        ("/runtime/resources/disk", worker.disk_bytes),
        ("/runtime/resources/logs", worker.log_bytes_per_second),
        ("/runtime/pool/min", worker.min_workers.into()),
        ("/runtime/pool/max", worker.max_workers.into()),
        ("/runtime/pool/concurrency", worker.concurrency.into()),
        ("/runtime/pool/idleSeconds", worker.idle_seconds.into()),
    ];
    let stated = numbers.into_iter().filter(|(_, number)| *number > 0);
    let mut found: Vec<(&'static str, String)> =
        stated.map(|(path, number)| (path, number.to_string())).collect();
    let isolation = if worker.min_isolation == 0 { DEFAULT_ISOLATION } else { worker.min_isolation };
    let is_ephemeral = match worker.pool() {
        Pool::Warm => false,
        Pool::Ephemeral => true,
        Pool::Unspecified => spec.security.risk_class == Some(RiskClass::High),
    };
    let listed = |hosts: &[String]| {
        let mut hosts = hosts.to_vec();
        hosts.sort();
        format!("[{}]", hosts.join(", "))
    };
    let texts = [
        ("/runtime/language", plugin.language.clone()),
        ("/runtime/minIsolation", isolation.to_string()),
        ("/runtime/pool/mode", (if is_ephemeral { "ephemeral" } else { "warm" }).to_owned()),
        ("/security/allowedDomains", listed(&spec.security.allowed_domains)),
        ("/security/allowedTcp", listed(&spec.security.allowed_tcp)),
    ];
    found.extend(texts);
    if !plugin.artifact_sha256.is_empty() {
        found.push(("/runtime/artifactSha256", plugin.artifact_sha256.clone()));
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::source::Source;
    use crate::{CheckReport, FaultCode, check};

    fn file(path: &str, text: String) -> Source {
        Source { path: path.into(), text }
    }

    /// Returns the report of specs, each with its id, version, and further lines; `runtime` is the last of them.
    fn report(specs: &[(&str, &str, &str)]) -> CheckReport {
        let refs: Vec<String> = specs.iter().map(|(id, ..)| format!("{{ref: s/{id}}}")).collect();
        let server = format!(
            "apiVersion: asp/v1\nname: s\nprotocols: [mcp]\nauth: {{schemes: [jwt], issuers: [dev]}}\nprimitives: [{}]\n",
            refs.join(", ")
        );
        let spec = |(id, version, rest): &(&str, &str, &str)| {
            let text = format!(
                "id: {id}\nname: N\ntype: tool\nversion: {version}\nowner: a@example.com\nsummary: S.\nmutation: read_only\n\
                 primitiveSchema: {{input_schema: {{type: object}}}}\n{rest}\n"
            );
            file(&format!("s/{id}.yaml"), text)
        };
        let files = specs.iter().map(spec).chain([file("s/server.yaml", server)]);
        check(&files.collect::<Vec<_>>())
    }

    fn runtime(rest: &str) -> String {
        format!("runtime: {{mode: plugin, language: python, entrypoint: main.py{rest}}}")
    }

    #[test]
    fn specs_of_one_package_may_differ_in_what_concerns_a_call_alone() {
        let tasks = format!("capabilities: {{maxRuntimeSeconds: 600}}\n{}", runtime(", package: weather"));
        let bounded = runtime(", package: weather, resources: {memory: 1Gi}, pool: {max: 2}");
        let report = report(&[
            ("weather", "1.0.0", &runtime("")),
            ("alerts", "1.0.0", &tasks),
            ("radar", "1.0.0", &bounded),
        ]);
        assert!(report.faults.is_empty() && report.warnings.is_empty(), "{report:?}");
    }

    #[test]
    fn specs_of_one_package_share_what_concerns_its_processes() {
        let joined = runtime(", package: weather");
        let table = [
            (joined.replace("python", "node"), "/runtime/language"),
            (runtime(", package: weather, minIsolation: 2"), "/runtime/minIsolation"),
            (runtime(", package: weather, pool: {mode: ephemeral}"), "/runtime/pool/mode"),
            (format!("security: {{riskClass: high}}\n{joined}"), "/runtime/pool/mode"),
            (format!("security: {{allowedDomains: [a.example]}}\n{joined}"), "/security/allowedDomains"),
            (format!("security: {{allowedTcp: ['db.example:5432']}}\n{joined}"), "/security/allowedTcp"),
            (runtime(", package: weather, resources: {memory: 2Gi}"), "/runtime/resources/memory"),
        ];
        for (rest, path) in table {
            let first = runtime(", resources: {memory: 1Gi}");
            let report = report(&[("weather", "1.0.0", &first), ("zones", "1.0.0", &rest)]);
            let found: Vec<_> = report.faults.iter().map(|fault| (fault.code, fault.path.as_str())).collect();
            assert_eq!(found, [(FaultCode::PackageConflict, path)], "{rest}");
        }
    }

    #[test]
    fn specs_whose_package_versions_differ_run_apart_and_are_reported() {
        let joined = runtime(", package: weather");
        let apart = report(&[("weather", "1.0.0", &runtime("")), ("zones", "1.1.0", &joined)]);
        assert_eq!(apart.warnings[0].code, FaultCode::PackageVersions, "{apart:?}");
        assert!(apart.faults.is_empty(), "{apart:?}");
        let stated = runtime(", package: weather@3.0.0");
        let together = report(&[("weather", "1.0.0", &stated), ("zones", "1.1.0", &stated)]);
        assert!(together.warnings.is_empty() && together.faults.is_empty(), "{together:?}");
    }

    #[test]
    fn a_plugins_package_has_no_scope() {
        let report = report(&[("weather", "1.0.0", &runtime(", package: \"@scope/weather\""))]);
        assert_eq!(report.faults[0].code, FaultCode::BadEntrypoint, "{report:?}");
    }
}
