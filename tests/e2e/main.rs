//! The end-to-end tests: one binary, one module for each behaviour. Run with `make test`, or
//! `cargo test --release -p asp-e2e -- <part of a name>` once `scripts/setup test` and the build are done.

// Test code may fail loudly; Clippy sees no `#[test]` here because this binary has its own main.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod advertised;
mod boot;
mod certificate;
mod changes;
mod clients;
mod conformance;
mod dev;
mod freeze;
mod gateway_loss;
mod hosted_calls;
mod hostile_plugins;
mod istio;
mod local_replies;
mod main_job;
mod message;
mod packages;
mod partition;
mod peers;
mod plugin_delegates;
mod plugin_loss;
mod plugin_schemas;
mod plugin_wire;
mod plugins;
mod policy;
mod public_name;
mod ready_table;
mod replicas;
mod runtimes;
mod silent;
mod slow_store;
mod stdio;
mod stores;
mod suites;
mod tasks;
mod tokens;
mod trial;
mod vectors;
mod wire;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use crate::trial::Shared;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let shared = Shared::new(runtime.handle().clone());
    let mut trials = Vec::new();
    trials.extend(partition::trials(&shared));
    trials.extend(local_replies::trials(&shared));
    trials.extend(istio::trials(&shared));
    trials.extend(stores::trials(&shared));
    trials.extend(advertised::trials(&shared));
    trials.extend(boot::trials(&shared));
    trials.extend(changes::trials(&shared));
    trials.extend(clients::trials(&shared));
    trials.extend(conformance::trials(&shared));
    trials.extend(tasks::trials(&shared));
    trials.extend(suites::trials(&shared));
    trials.extend(stdio::trials(&shared));
    trials.extend(wire::trials(&shared));
    trials.extend(plugins::trials(&shared));
    trials.extend(dev::trials(&shared));
    trials.extend(plugin_delegates::trials(&shared));
    trials.extend(packages::trials(&shared));
    trials.extend(plugin_schemas::trials(&shared));
    trials.extend(plugin_wire::trials(&shared));
    trials.extend(slow_store::trials(&shared));
    trials.extend(hostile_plugins::trials(&shared));
    trials.extend(plugin_loss::trials(&shared));
    trials.extend(gateway_loss::trials(&shared));
    trials.extend(tokens::trials(&shared));
    trials.extend(hosted_calls::trials(&shared));
    trials.extend(policy::trials(&shared));
    trials.extend(freeze::trials(&shared));
    trials.extend(replicas::trials(&shared));
    trials.extend(runtimes::trials(&shared));
    trials.extend(silent::trials(&shared));
    trials.extend(peers::trials(&shared));
    trials.extend(public_name::trials(&shared));
    trials.extend(main_job::trials(&shared));
    trials.extend(ready_table::trials(&shared));
    trials.extend(vectors::trials(&shared));
    let conclusion = libtest_mimic::run(&arguments, trials);
    match runtime.block_on(shared.stop()) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            eprintln!("the shared stack: {error:#}");
            ExitCode::FAILURE
        }
    }
}
