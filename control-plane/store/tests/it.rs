//! Stores through the crate's public interface: SQLite, and a real PostgreSQL, Redis and object store. One program, because
//! each program links all dependencies again.

// Test code may fail loudly; Clippy sees only the `#[test]`s themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "it/archive.rs"]
mod archive;
#[path = "it/calls.rs"]
mod calls;
#[path = "it/postgres.rs"]
mod postgres;
#[path = "it/private.rs"]
mod private;
#[path = "it/redis.rs"]
mod redis;
#[path = "it/redis_limits.rs"]
mod redis_limits;
#[path = "it/s3.rs"]
mod s3;
#[path = "it/several_control_planes.rs"]
mod several_control_planes;
#[path = "it/several_gateways.rs"]
mod several_gateways;
#[path = "it/upgrade.rs"]
mod upgrade;
