//! The launcher with real processes: every sandbox here is built by the `worker-init` of this build.
//!
//! Runs as root or without; where a level cannot be had, the tests of that level fail and say why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cgroups;
mod cold_start;
mod description;
mod egress;
mod harness;
mod isolation;
mod languages;
mod lifecycle;
mod probes;
mod report;
