//! Code that all processes of the platform share: logging, secrets and their redaction, which addresses are public,
//! the circuit breaker, operator lists, quotas, event streams, shell quoting, the wall clock, time stamps, pauses between
//! attempts, the reference of settings, the metrics of a process, and the terms for a runtime's health.
//!
//! Owns rules that the gateway, the control role and the runtime must apply in the same way. Refuses code that only one
//! of them needs. Keeps true: no I/O but the log and the process's own figures in /proc, no executor, no protocol.

pub mod address;
pub mod breaker;
pub mod clock;
pub mod event_stream;
pub mod operator_list;
pub mod pauses;
#[cfg(feature = "metrics")]
pub mod process_metrics;
pub mod quota;
pub mod redact;
#[cfg(feature = "reference")]
pub mod reference;
pub mod runtime_health;
pub mod secret;
pub mod shell;
pub mod telemetry;
pub mod time;
pub mod worker_usage;
