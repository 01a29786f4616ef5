//! The launcher with real processes: the `worker-init` of this build creates every sandbox here.
//!
//! Runs as root or without; if a level is not supported, the tests of that level fail and say why.
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
