//! Rules for calls, from the manifest: one set for each primitive of a package.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::plugin::manifest::{CallLimits, Kind, Manifest, Mode};
use crate::worker::call::CallRules;

/// Rules for the calls of a package.
#[derive(Clone, Debug)]
pub struct PackageRules {
    /// Rules for every call of a package without `primitives`; otherwise for calls that name none of these.
    common: Arc<CallRules>,
    primitives: HashMap<String, Arc<CallRules>>,
}

impl From<CallRules> for PackageRules {
    fn from(common: CallRules) -> PackageRules {
        PackageRules { common: Arc::new(common), primitives: HashMap::new() }
    }
}

impl PackageRules {
    pub fn of_manifest(manifest: &Manifest) -> PackageRules {
        let names = (manifest.elicitations.as_slice(), manifest.delegations.as_slice());
        let common = call_rules(manifest, manifest.kind, &manifest.limits.of_calls(), names);
        let primitives = manifest.primitives.iter().map(|(id, primitive)| {
            let names = (primitive.elicitations.as_slice(), primitive.delegations.as_slice());
            (id.clone(), Arc::new(call_rules(manifest, Some(primitive.kind), &primitive.limits, names)))
        });
        PackageRules { primitives: primitives.collect(), ..PackageRules::from(common) }
    }

    /// Returns the rules for a call of this primitive.
    pub fn of(&self, primitive: &str) -> Arc<CallRules> {
        Arc::clone(self.primitives.get(primitive).unwrap_or(&self.common))
    }

    pub fn is_stdio(&self) -> bool {
        self.common.is_stdio
    }
}

fn call_rules(
    manifest: &Manifest,
    kind: Option<Kind>,
    limits: &CallLimits,
    (elicitations, delegations): (&[String], &[String]),
) -> CallRules {
    CallRules {
        max_runtime: Duration::from_secs(limits.max_runtime_seconds),
        input_timeout: Duration::from_secs(limits.input_timeout_seconds),
        heartbeat: (kind == Some(Kind::Task)).then(|| Duration::from_secs(limits.heartbeat_seconds)),
        artifact_bytes: manifest.limits.disk_bytes,
        log_bytes_per_second: manifest.limits.log_bytes_per_second,
        elicitations: elicitations.iter().cloned().collect(),
        delegations: delegations.iter().cloned().collect(),
        is_stdio: manifest.mode == Mode::McpStdio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_primitive_has_rules_of_its_own() {
        let text = r#"{"format": 1, "id": "weather", "version": "1.0.0", "mode": "plugin", "language": "python",
            "limits": {"diskBytes": 5000, "maxRuntimeSeconds": 600},
            "primitives": {
                "forecast": {"kind": "tool", "entrypoint": "main.py", "elicitations": ["city"],
                    "limits": {"maxRuntimeSeconds": 5}},
                "sweep": {"kind": "task", "entrypoint": "sweep.py", "limits": {"heartbeatSeconds": 3}}}}"#;
        let rules = PackageRules::of_manifest(&Manifest::parse(text).unwrap());
        let forecast = rules.of("forecast");
        let sweep = rules.of("sweep");
        let unknown = rules.of("else");
        assert_eq!((forecast.heartbeat, sweep.heartbeat), (None, Some(Duration::from_secs(3))));
        assert_eq!((forecast.max_runtime.as_secs(), forecast.artifact_bytes), (5, 5000));
        assert!(forecast.elicitations.contains("city") && sweep.elicitations.is_empty());
        assert!(unknown.elicitations.is_empty() && !rules.is_stdio());
    }
}
