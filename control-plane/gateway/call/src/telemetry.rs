//! Observation of calls by operators: the audit and the metrics.
pub mod audit;
pub mod log_limit;
pub mod metrics;
