//! The primitive registry: compiles specs to a catalog, or reports all of their faults.
//!
//! Owns the file formats (`server.yaml`, the primitive spec and the schemas made from code), their validation, the
//! compilation to MCP definitions, A2A cards and runtime manifests, and the assembly of snapshots. Refuses I/O beyond
//! [`read_dir`], clocks, async and SQL, so that `asp lint` and the admin API run the same code. Keeps true (I-5): the
//! output is immutable, complete and reproducible byte for byte.

mod assemble;
pub mod assertable;
mod check;
mod compile;
mod compiled;
mod conflict;
pub mod dialect;
mod diff;
mod document;
mod elicitation;
mod fault;
mod findings;
mod link;
mod manifest;
mod meta_name;
pub mod pin;
mod published;
mod rules;
mod schema_file;
mod server_file;
mod source;
mod spec;
mod structure;
mod suggestion;
pub mod uri_template;
pub mod version;

pub use assemble::{
    DEFAULT_COARSE_MULTIPLE, EdgeChange, EdgeInputs, all_servers, at_revision, closed_routes,
    differs_only_in_revision, earliest, edge, is_same_at_edges, latest, routes, routes_bytes, sorted_set,
};
#[cfg(any(test, feature = "testkit"))]
pub use assemble::{Inputs, assemble};
pub use check::{Catalog, CheckReport, check, check_before_build};
pub use compile::{compile_mcp, origin_of};
pub use compiled::CompiledServer;
pub use conflict::conflicts;
pub use diff::{Change, compare};
pub use fault::{Fault, FaultCode};
pub use manifest::{
    DEFAULT_INPUT_TIMEOUT_SECONDS, DEFAULT_MAX_RUNTIME_SECONDS, plugin_manifest, plugin_package,
    runtime_manifest, stdio_manifest, stdio_package,
};
pub use meta_name::is_reserved_meta;
pub use published::{server_schema, spec_schema};
pub use rules::{MAX_PRIMITIVES, is_refused_header, is_resource_name, visible_text};
pub use schema_file::{schema_file, schema_file_name};
pub use source::{MAX_FILES, ReadError, Source, read_dir};
pub use suggestion::nearest;
