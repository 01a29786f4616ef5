//! What operators see of calls: the audit and the metrics.
pub mod audit;
pub mod metrics;
