//! The snapshot as the gateway uses it: decoded and indexed once, then read without locks (I-5).
//!
//! Owns: the lookup from server and exposed name to a compiled primitive. Refuses: a snapshot in which any
//! part does not compile, with the place; a gateway leaves out that part alone. Keeps true: list order is the order of
//! `server.yaml`, and a name that a face cannot find here does not exist; what did not change is shared with the
//! snapshot before ([`Snapshot::changed`]).

pub mod artifact;
pub mod limits;
mod machine_parts;
pub mod machines;
pub mod mcp_revision;
pub mod param_headers;
pub mod parts;
pub mod policy;
pub mod protocol;
pub mod schema;
pub mod search;
pub mod server;
pub mod snapshot;

pub use asp_registry::version;
pub use server::{Dependency, ListedPrimitive, VirtualServer};
pub use snapshot::{Changes, PartFault, PartFaults, Snapshot};
