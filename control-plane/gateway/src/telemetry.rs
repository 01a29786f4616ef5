//! What operators see: the audit of calls, the metrics, and what is said once of an outage.
pub mod audit;
pub mod metrics;
pub(crate) mod said_once;
