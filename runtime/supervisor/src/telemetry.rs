//! Counters and measurements of plugins and workers.
//!
//! The samples themselves are taken in `pool/sampling.rs`, which has access to every pool.

pub mod latency;
pub mod metrics;
pub mod totals;
pub mod vitals;
