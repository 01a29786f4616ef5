//! Limits, pool and sandbox of processes that serve several primitives: the widest limits and the strictest sandbox.

use asp_proto::snapshot::{Primitive, RiskClass, Worker};
use serde_json::{Map, Value, json};

use super::{plugin_keys, runtime_manifest};

/// Limits that the runtime enforces on a process; the gateway enforces the others.
const LIMITS: [&str; 8] = [
    "maxRuntimeSeconds",
    "inputTimeoutSeconds",
    "cpuMillis",
    "memoryBytes",
    "pids",
    "files",
    "diskBytes",
    "logBytesPerSecond",
];

/// Settings of processes that serve several primitives.
#[derive(Default)]
pub(super) struct SharedSettings {
    limits: Map<String, Value>,
    pool: Map<String, Value>,
    domains: Vec<String>,
    services: Vec<String>,
    is_ephemeral: bool,
    /// 0: no primitive states a level.
    isolation: u32,
    is_high_risk: bool,
    supports_progress: bool,
    supports_cancellation: bool,
}

impl SharedSettings {
    /// Adds the settings of one primitive.
    pub(super) fn add(&mut self, primitive: &Primitive, worker: &Worker) {
        let mut manifest = runtime_manifest(primitive);
        let Some(object) = manifest.as_object_mut() else { return };
        plugin_keys(primitive, worker, object);
        for key in LIMITS {
            widen(&mut self.limits, key, object.get("limits").and_then(|own| own.get(key)));
        }
        for key in ["min", "max", "concurrency", "idleSeconds"] {
            widen(&mut self.pool, key, object.get("pool").and_then(|own| own.get(key)));
        }
        self.is_ephemeral |= object.get("pool").and_then(|own| own.get("mode")) == Some(&json!("ephemeral"));
        self.isolation = self.isolation.max(worker.min_isolation);
        self.is_high_risk |= primitive.risk_class() == RiskClass::High;
        self.supports_progress |= primitive.supports_progress;
        self.supports_cancellation |= primitive.supports_cancellation;
        self.domains.extend(primitive.allowed_domains.iter().cloned());
        self.services.extend(primitive.allowed_tcp.iter().cloned());
    }

    /// Writes the settings into a `plugin.json`.
    pub(super) fn write_to(mut self, manifest: &mut Map<String, Value>) {
        for listed in [&mut self.domains, &mut self.services] {
            listed.sort();
            listed.dedup();
        }
        self.pool.insert("mode".into(), json!(if self.is_ephemeral { "ephemeral" } else { "warm" }));
        let mut set = |key: &str, value: Value| {
            manifest.insert(key.to_owned(), value);
        };
        set("limits", Value::Object(self.limits));
        set("pool", Value::Object(self.pool));
        set("riskClass", json!(if self.is_high_risk { "high" } else { "medium" }));
        set("supportsProgress", json!(self.supports_progress));
        set("supportsCancellation", json!(self.supports_cancellation));
        set("allowedDomains", json!(self.domains));
        if !self.services.is_empty() {
            set("allowedTcp", json!(self.services));
        }
        if self.isolation > 0 {
            set("isolation", json!({ "minLevel": self.isolation }));
        }
    }
}

/// Keeps the larger of two numbers.
fn widen(object: &mut Map<String, Value>, key: &str, given: Option<&Value>) {
    let Some(given) = given.and_then(Value::as_u64) else { return };
    let known = object.get(key).and_then(Value::as_u64).unwrap_or(0);
    object.insert(key.to_owned(), json!(given.max(known)));
}
