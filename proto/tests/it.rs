//! The contracts as messages on the wire. One program, because each program links all dependencies again.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "it/frozen.rs"]
mod frozen;
#[path = "it/xds.rs"]
mod xds;
