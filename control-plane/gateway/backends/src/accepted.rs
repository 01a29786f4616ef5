//! The accepted state of upstreams: items that a team has accepted, and watches for changes to the lists they are in.
//!
//! Owns: the lists of an upstream, and the comparison with the accepted items. Refuses: imports of the backends that
//! share it; each of them lists its upstreams itself.

pub(crate) mod pinned;
pub(crate) mod watching;

pub use pinned::drift::DriftedItem;
