//! The pipeline that every call passes through, and the sessions and subscriptions of clients.
//!
//! Owns: limits, ledger, rules, approval and the order of all stages (I-2). Refuses: knowledge of a protocol, and of any backend;
//! it sees them through the ports of `asp_call::execution`.

pub mod event_id;
pub mod pipeline;
pub mod pushes;
pub mod sessions;
pub mod subscriptions;
