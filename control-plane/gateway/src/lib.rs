//! The gateway: evaluates a request like the edge, resolves it in the live snapshot, runs it through the one pipeline
//! and answers in the caller's own protocol.
//!
//! Owns: the HTTP entry, and the wiring of pipeline, protocols and backends of one replica. Refuses: configuration of its own;
//! everything it knows comes from a snapshot (I-5), and until the first one arrives it is not ready.

pub mod gateway;
pub mod http;
