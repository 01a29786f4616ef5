//! The launcher with real processes: every sandbox here is built by the `worker-init` of this build.
//!
//! Runs as root or without; where a level cannot be had, the tests of that level fail and say why.

mod cgroups;
mod description;
mod egress;
mod harness;
mod isolation;
mod languages;
mod lifecycle;
mod probes;
