//! A call: one unit of work with one outcome, whatever protocol asks for it and whatever backend runs it.
//!
//! Owns: the call with its events, questions and outcome; its records in the stores; its audit and metrics; the ports between
//! the pipeline and the backends (`execution`). Refuses: decisions about calls, which the pipeline makes, and any protocol.

pub mod call;
pub mod clock;
pub mod digest;
pub mod durable;
pub mod execution;
pub mod media_type;
pub mod outage_log;
pub mod quota_table;
pub mod seal;
pub mod telemetry;
