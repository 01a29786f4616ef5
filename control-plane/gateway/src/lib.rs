//! The gateway: evaluates a request like the edge, resolves it in the live snapshot, runs it through the one pipeline
//! and answers in the caller's own protocol.
//!
//! Owns: sessions, calls, protocols and executors of one replica. Refuses: configuration of its own; everything it
//! knows comes from a snapshot (I-5), and until the first one arrives it is not ready.

pub mod call;
mod clock;
mod digest;
pub mod durable;
pub mod event_id;
pub mod execution;
pub mod executors;
pub mod gateway;
pub mod http;
pub mod issuers;
pub mod media_type;
pub mod minting;
mod outage_log;
pub mod pipeline;
pub mod protocols;
mod quota_table;
pub mod request_state;
pub mod seal;
pub mod sessions;
pub mod subscriptions;
pub mod telemetry;
