//! Observation of calls by operators: the audit and the metrics.
pub mod audit;
pub(crate) mod log_limit;
pub mod metrics;
