//! What every process of the platform does in one way: how it logs, how it holds a secret, and which addresses it
//! takes for public, and when it gives what fails a rest.
//!
//! Owns rules that the control plane and the runtime must not judge differently. Refuses whatever only one of
//! them needs. Keeps true: no I/O but the log, no executor, no protocol.

pub mod address;
pub mod breaker;
pub mod secret;
pub mod telemetry;
