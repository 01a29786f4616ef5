//! Tests of the whole runtime: the real binary, the real launcher, real worker processes (`examples/ppp_worker.rs`
//! stands in for an interpreter).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests end by panicking; the helpers of tests are not marked as tests"
)]

mod it {
    mod account;
    mod admission;
    mod attempts;
    mod below_level_3;
    mod bounds;
    mod brief;
    mod calls;
    mod checkpoints;
    mod death;
    mod egress;
    mod eviction;
    mod faults;
    mod handles;
    mod harm;
    mod harness;
    mod host_trouble;
    mod kinds;
    mod knobs;
    mod languages;
    mod limits;
    mod lines;
    mod listing;
    mod many_processes;
    mod packages;
    mod probes;
    mod residual_work;
    mod rootless;
    mod same_codes;
    mod secrets;
    mod shared;
    mod stalls;
    mod stats;
    mod stdio_lists;
    mod stubborn;
    mod subscriptions;
    mod tenants;
    mod watching;
}
