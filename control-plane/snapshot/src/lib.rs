//! Gateway snapshots: decoded and indexed once, then read without locks (I-5).
//!
//! Owns: the lookup from a server and an exposed name to a compiled primitive. Refuses: a snapshot in which any part
//! does not compile, and names that part; a gateway leaves out only that part. Keeps true: lists keep the order of
//! `server.yaml`, and a name that is not found here does not exist; unchanged parts are shared with the previous
//! snapshot ([`Snapshot::changed`]).

pub mod artifact;
pub mod limits;
mod machine_parts;
pub mod machines;
pub mod media_types;
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
pub use snapshot::{PartChanges, PartFault, PartFaults, Snapshot};
