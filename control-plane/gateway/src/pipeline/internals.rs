//! The parts of a pipeline, for tests that drive and inspect one of them alone.
//!
//! Keeps true: no module of the gateway uses them (scripts/check-dependencies); protocols use the verbs of the
//! pipeline.

use std::sync::Arc;

use super::Pipeline;
use super::calls::CallTasks;
use super::running::RunningCalls;
use crate::call::registry::CallRegistry;
use crate::durable::active::ActiveTable;
use crate::durable::skipped::SkippedCalls;
use crate::execution::Executor;
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;

/// The parts of one pipeline.
pub struct Internals<'a> {
    pub executor: &'a Arc<dyn Executor>,
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
            executor: &self.executor,
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
