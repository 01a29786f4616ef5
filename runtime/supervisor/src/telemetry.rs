//! What is counted and told of plugins and workers.
//!
//! The samples themselves are taken in `pool/sampling.rs`, which sees every pool.

pub mod latency;
pub mod metrics;
pub mod totals;
pub mod vitals;
