//! Checks and compilation of specs through the crate's public interface. One program, because each program links all
//! dependencies again.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "it/bad_inputs.rs"]
mod bad_inputs;
#[path = "it/compile.rs"]
mod compile;
#[path = "it/delegates.rs"]
mod delegates;
#[path = "it/diff.rs"]
mod diff;
#[path = "it/invalid.rs"]
mod invalid;
#[path = "it/mcp_schema.rs"]
mod mcp_schema;
#[path = "it/message_readers.rs"]
mod message_readers;
#[path = "it/meta.rs"]
mod meta;
#[path = "it/pages.rs"]
mod pages;
#[path = "it/plugin_resources.rs"]
mod plugin_resources;
#[path = "it/read.rs"]
mod read;
#[path = "it/readme.rs"]
mod readme;
#[path = "it/reports.rs"]
mod reports;
#[path = "it/robust.rs"]
mod robust;
#[path = "it/sample.rs"]
mod sample;
#[path = "it/schema.rs"]
mod schema;
#[path = "it/schema_files.rs"]
mod schema_files;
#[path = "it/service_auth.rs"]
mod service_auth;
#[path = "it/versions.rs"]
mod versions;
