//! xDS: the server that pushes snapshots and endpoints and tracks what each subscriber has acknowledged, and the client
//! of gateways.
//!
//! Envoys use the state-of-the-world protocol ([`service`]) with three services: ADS for those that want one stream,
//! ECDS for the edge filter and its revocations, EDS for the gateway clusters. Gateways use the incremental protocol
//! ([`delta`]) over ADS. Keeps true (invariant I-5): at most one outstanding push per subscriber and type; a rejected
//! version is recorded with its reason and not sent again; the last good one stays.

pub mod client;
pub mod context;
pub mod contract;
pub mod degraded_items;
pub mod delta;
pub mod endpoints;
pub mod failing_upstreams;
pub mod freshness;
mod health;
pub mod keys;
pub mod parts;
pub mod peer;
mod presence;
pub mod published;
pub mod refused_parts;
mod revocations;
pub mod service;
pub mod subscribers;
pub mod subscription;
#[cfg(any(test, feature = "testkit"))]
pub mod whole;
