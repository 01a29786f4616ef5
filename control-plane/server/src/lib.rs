//! The control plane: compiles the policy of admins and the specs of primitives into the snapshots for edges and
//! gateways.
//!
//! Owns the admin API, the evaluation of writes, the catalog of compiled servers and the publisher. Does not evaluate
//! calls, which gateways do, and does not read settings, which the binary does.

pub mod admin;
pub mod admission;
pub mod apply;
pub mod catalog;
pub mod events;
pub mod link_endings;
pub mod package_format;
pub mod patterns;
pub mod placement;
pub mod policy;
pub mod publisher;
pub mod runtimes;
mod server_records;
pub mod suggestion;
#[cfg(test)]
mod testkit;
