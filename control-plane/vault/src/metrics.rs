//! Prometheus metrics of the vault. Every label is from a closed set.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::error::VaultError;

/// Upper bounds of the buckets, in seconds: a local file answers within the first, a request that takes longer than the
/// last has been given up.
const LATENCY: [f64; 10] = [0.0005, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Operation on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Seal,
    Open,
}

/// Request to a key service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRequest {
    Wrap,
    Unwrap,
}

pub(crate) struct VaultMetrics {
    operations: Family<Labels<2>, Counter>,
    requests: Family<Labels<3>, Histogram, fn() -> Histogram>,
    cached: Gauge,
}

impl Default for VaultMetrics {
    fn default() -> VaultMetrics {
        VaultMetrics {
            operations: Family::default(),
            requests: Family::new_with_constructor(|| Histogram::new(LATENCY)),
            cached: Gauge::default(),
        }
    }
}

impl VaultMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "asp_vault_operations",
            "Records sealed and opened, by outcome; offline: opened while the key service was unavailable",
            self.operations.clone(),
        );
        registry.register(
            "asp_vault_key_request_duration_seconds",
            "Time of one request to a key service, by service, request and outcome",
            self.requests.clone(),
        );
        registry.register(
            "asp_vault_cached_keys",
            "Data keys in memory, which stay usable for a while when the key service is unavailable",
            self.cached.clone(),
        );
    }

    /// Counts an operation. `offline` if it used a data key that its service could not confirm.
    pub(crate) fn ended<T>(&self, operation: Operation, result: &Result<T, VaultError>, offline: bool) {
        let operation = match operation {
            Operation::Seal => "seal",
            Operation::Open => "open",
        };
        let outcome = match result {
            Ok(_) if offline => "offline",
            other => outcome(other),
        };
        self.operations.get_or_create(&[("operation", operation), ("outcome", outcome)]).inc();
    }

    /// Records a request to a key service.
    pub(crate) fn requested<T>(
        &self,
        service: &'static str,
        request: KeyRequest,
        result: &Result<T, VaultError>,
        took: Duration,
    ) {
        let request = match request {
            KeyRequest::Wrap => "wrap",
            KeyRequest::Unwrap => "unwrap",
        };
        let labels = [("service", service), ("request", request), ("outcome", outcome(result))];
        self.requests.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn set_cached(&self, keys: usize) {
        self.cached.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }
}

fn outcome<T>(result: &Result<T, VaultError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(error) => error.label(),
    }
}
