//! The parts of a pipeline, for tests that drive and inspect one of them alone.
//!
//! Keeps true: no module of the gateway uses them (scripts/check-dependencies); protocols use the verbs of the
//! pipeline.

use std::sync::Arc;

use asp_call::call::registry::CallRegistry;
use asp_call::durable::active::ActiveTable;
use asp_call::durable::skipped::SkippedCalls;
use asp_call::execution::Backends;
use asp_call::telemetry::audit::Audit;
use asp_call::telemetry::metrics::Metrics;

use super::Pipeline;
use super::admission::CallTasks;
use super::running::RunningCalls;

/// The parts of one pipeline.
pub struct Internals<'a> {
    pub backends: &'a Arc<dyn Backends>,
    pub metrics: &'a Metrics,
    pub audit: &'a Audit,
    pub calls: &'a CallTasks,
    pub registry: &'a Arc<CallRegistry>,
    pub running: &'a Arc<RunningCalls>,
    pub active: &'a Arc<ActiveTable>,
    pub skipped: &'a SkippedCalls,
}

impl Pipeline {
    pub fn internals(&self) -> Internals<'_> {
        Internals {
            backends: &self.backends,
            metrics: &self.metrics,
            audit: &self.audit,
            calls: &self.calls,
            registry: &self.registry,
            running: &self.running,
            active: &self.active,
            skipped: &self.skipped,
        }
    }
}
