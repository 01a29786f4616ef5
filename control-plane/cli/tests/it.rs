//! The binary itself, as its users start it. One program, because each program links the libraries of the binary again.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "it/support.rs"]
mod support;

#[path = "it/admin.rs"]
mod admin;
#[path = "it/commands.rs"]
mod commands;
#[path = "it/serving.rs"]
mod serving;
#[path = "it/upgrade.rs"]
mod upgrade;
