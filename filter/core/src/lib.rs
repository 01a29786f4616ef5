//! Evaluation of one request, shared by the edge filter (wasm in Envoy) and the gateway.
//!
//! Owns: the snapshot index, the path, Origin and Host rules, the token rules (RFC 8725), the envelope scan, exposure,
//! coarse limits, limits of unauthenticated requests, affinity, routes and every refusal that the edge gives. Refuses: I/O, clocks, randomness and hosts of
//! its own; all of them come in through [`Env`]. Invariant I-1: the edge accelerates, the gateway decides. Both run
//! this code, so a request that never passed the filter is refused exactly as one that did.
//!
//! Signatures are checked by the `jsonwebtoken` provider that the binary installed
//! (`jsonwebtoken::crypto::CryptoProvider::install_default`); without one the first token panics.

mod a2a;
mod affinity;
mod agent;
mod caller;
mod coarse;
mod cors;
pub mod envelope;
mod error;
mod evaluation;
mod exposure;
mod grpc;
mod headers;
mod machine;
mod modern;
pub mod names;
mod origin;
mod path;
mod pattern;
pub mod reason;
mod region;
pub mod reply;
mod rest;
mod revocation;
mod route;
mod server;
pub mod snapshot;
#[cfg(feature = "testkit")]
pub mod testkit;
mod token;
mod trace;
mod unauthenticated;
mod verdict;

pub use caller::Caller;
pub use coarse::Budget;
pub use envelope::{Envelope, EnvelopeKind};
pub use error::SnapshotError;
pub use evaluation::Edge;
pub use headers::PEER_HEADER;
pub use machine::{KEY_PREFIX, MACHINE_ISSUER, covers_issuer};
pub use origin::is_same_host;
pub use path::PathKind;
pub use reason::{Era, Reason};
pub use reply::{ErrorForm, Reply, refuse, refuse_problem};
pub use revocation::{RecentList, RevocationNotice};
pub use snapshot::{Changes, Snapshot};
pub use token::{Cause, LEEWAY_SECONDS, MAX_LISTED, check_use};
pub use trace::Trace;
pub use unauthenticated::{CredentialAttempt, Network, UnauthenticatedKind};
pub use verdict::{EdgeRole, Env, Forward, Header, PendingBody, RequestFacts, Step, Verdict};
