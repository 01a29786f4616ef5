//! The control role: what admins and primitives say becomes the snapshots that edges and gateways follow.
//!
//! Owns the admin API, the evaluation of writes, the catalog of compiled servers, the publisher and the xDS server.
//! Refuses: evaluating calls, which is the gateway's, and settings, which the binary reads.

pub mod admin;
pub mod admin_role;
pub mod admission;
pub mod apply;
pub mod catalog;
pub mod clock;
pub mod issuers;
pub mod package_format;
pub mod patterns;
pub mod placement;
pub mod policy;
pub mod publisher;
pub mod runtimes;
mod server_records;
#[cfg(test)]
mod testkit;
pub mod trusted_issuer;
pub mod xds;
