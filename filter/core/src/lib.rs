//! The judgement of one request, shared by the edge filter (wasm in Envoy) and the gateway.
//!
//! Owns: the snapshot index, the path, Origin and Host rules, the token rules (RFC 8725), the envelope
//! scan, exposure, coarse limits, affinity, routes and every refusal the edge gives.
//! Refuses: I/O, clocks, randomness and hosts of its own; all of them come in through [`Env`].
//! Invariant I-1: the edge accelerates, the gateway decides. Both run this code, so a request that never
//! passed the filter is refused exactly as one that did.

pub mod edge;
pub mod reason;
pub mod snapshot;

pub use edge::{Admitted, Caller, Edge, Env, Face, Forward, Header, Pending, Reply, Role, Step, Verdict};
pub use reason::Reason;
pub use snapshot::{Snapshot, SnapshotError};
