//! The end-to-end tests: one binary, one module for each behaviour. Run with `make test`, or
//! `cargo test --release -p asp-e2e-tests -- <part of a name>` once `scripts/setup test` and the build are done.

// Test code may fail loudly; Clippy sees no `#[test]` here because this binary has its own main.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod a2a_agents;
mod a2a_clients;
mod a2a_push;
mod a2a_requirements;
mod a2a_rest;
mod a2a_sweep;
mod admin_api;
mod advertised;
mod any_order;
mod any_replica;
mod approvals;
mod apps;
mod attacks;
mod blocks;
mod boot;
mod call;
mod certificate;
mod changes;
mod client_certificates;
mod clients;
mod complete_audit;
mod conformance;
mod crowd;
mod dev;
mod dev_failures;
mod dev_login;
mod documents;
mod doors;
mod embedded;
mod faithful;
mod first_routes;
mod freeze;
mod gateway_loss;
mod hosted_calls;
mod hostile_plugins;
mod insert;
mod istio;
mod kafka;
mod linked_losses;
mod local_replies;
mod login;
mod lost_calls;
mod machines;
mod main_job;
mod maven_builds;
mod mistakes;
mod moved_sessions;
mod object_store;
mod on_behalf;
mod packages;
mod partition;
mod peers;
mod plugin_delegates;
mod plugin_dependencies;
mod plugin_lists;
mod plugin_loss;
mod plugin_schemas;
mod plugin_storage;
mod plugin_watches;
mod plugin_wire;
mod plugins;
mod policy;
mod pools;
mod postgres;
mod public_name;
mod ready_table;
mod redis;
mod reference;
mod regions;
mod replicas;
mod rest;
mod resume;
mod revisions;
mod revocations;
mod runtimes;
mod same_codes;
mod sample_agent;
mod scripts;
mod several_controls;
mod several_runtimes;
mod silent;
mod slow_store;
mod stalled;
mod stdio;
mod stdio_packages;
mod stores;
mod suites;
mod tasks;
mod token_keys;
mod tokens;
mod trial;
mod upstreams;
mod upstreams_live;
mod usage;
mod vectors;
mod wire;
mod writes;

use std::process::ExitCode;

use asp_e2e::{message, wire as recorder};
use libtest_mimic::{Arguments, Trial};

use crate::trial::Shared;

/// Every module with tests, in this order: what waits for minutes begins first.
const MODULES: &[fn(&Shared) -> Vec<Trial>] = &[
    partition::trials,
    stalled::trials,
    login::trials,
    silent::trials,
    local_replies::trials,
    insert::trials,
    istio::trials,
    stores::trials,
    admin_api::trials,
    advertised::trials,
    boot::trials,
    revocations::trials,
    changes::trials,
    clients::trials,
    a2a_clients::trials,
    a2a_agents::trials,
    a2a_push::trials,
    conformance::trials,
    a2a_requirements::trials,
    a2a_rest::trials,
    crowd::trials,
    tasks::trials,
    suites::trials,
    rest::trials,
    reference::trials,
    scripts::trials,
    revisions::trials,
    any_order::trials,
    any_replica::trials,
    lost_calls::trials,
    complete_audit::trials,
    pools::trials,
    regions::trials,
    stdio::trials,
    call::trials,
    stdio_packages::trials,
    upstreams::trials,
    upstreams_live::trials,
    usage::trials,
    faithful::trials,
    apps::trials,
    approvals::trials,
    wire::trials,
    plugins::trials,
    dev::trials,
    dev_failures::trials,
    mistakes::trials,
    dev_login::trials,
    documents::trials,
    embedded::trials,
    plugin_delegates::trials,
    sample_agent::trials,
    packages::trials,
    plugin_dependencies::trials,
    maven_builds::trials,
    plugin_schemas::trials,
    plugin_wire::trials,
    a2a_sweep::trials,
    slow_store::trials,
    first_routes::trials,
    hostile_plugins::trials,
    plugin_lists::trials,
    plugin_watches::trials,
    plugin_storage::trials,
    plugin_loss::trials,
    gateway_loss::trials,
    token_keys::trials,
    tokens::trials,
    machines::trials,
    hosted_calls::trials,
    object_store::trials,
    kafka::trials,
    on_behalf::trials,
    linked_losses::trials,
    policy::trials,
    blocks::trials,
    attacks::trials,
    postgres::trials,
    moved_sessions::trials,
    redis::trials,
    freeze::trials,
    writes::trials,
    replicas::trials,
    several_controls::trials,
    several_runtimes::trials,
    resume::trials,
    runtimes::trials,
    same_codes::trials,
    peers::trials,
    doors::trials,
    client_certificates::trials,
    public_name::trials,
    main_job::trials,
    ready_table::trials,
    vectors::trials,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A test waits a third of its time for its processes.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(cores + 1);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let record = recorder::start_recording().expect("a recorder");
    let shared = Shared::new(runtime.handle().clone());
    let trials = MODULES.iter().flat_map(|trials| trials(&shared)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let stopped = runtime.block_on(shared.stop());
    if let Err(error) = &stopped {
        eprintln!("the shared stack: {error:#}");
    }
    // What nobody has used is judged where everybody had a turn.
    let verdict = record.verdict(is_whole(&arguments));
    if !arguments.list {
        eprint!("{}", verdict.report);
    }
    if stopped.is_err() || (!arguments.list && !verdict.holds) {
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Whether every test runs.
fn is_whole(arguments: &Arguments) -> bool {
    arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.ignored
}
