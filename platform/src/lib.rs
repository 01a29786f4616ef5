//! What every process of the platform does in one way: how it logs, how it holds a secret, which addresses it
//! takes for public, when it gives what fails a rest, how it reads a stream of events, how it writes a point in time, and in which words it says how a
//! runtime does.
//!
//! Owns rules that the gateway, the control role and the runtime must not judge differently. Refuses whatever only one
//! of them needs. Keeps true: no I/O but the log, no executor, no protocol.

pub mod address;
pub mod breaker;
pub mod event_stream;
pub mod operator_list;
pub mod runtime_health;
pub mod secret;
pub mod shell;
pub mod telemetry;
pub mod time;
