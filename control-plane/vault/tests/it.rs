//! The vault with real key services: a server of the API of AWS KMS, and a KMS plugin behind Kubernetes' own server. One
//! program, because each program links all dependencies again.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "it/aws.rs"]
mod aws;
#[path = "it/local.rs"]
mod local;
#[path = "it/plugin.rs"]
mod plugin;
#[path = "it/support.rs"]
mod support;
