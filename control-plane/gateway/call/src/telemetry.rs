//! Observation of calls by operators: the audit, the metrics and the log.
pub mod audit;
pub mod failures;
pub mod log_limit;
pub mod metrics;
pub mod traces;
pub mod usage;
