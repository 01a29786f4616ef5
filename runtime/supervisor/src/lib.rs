//! `asp-runtime` as a library: the Runtime Supervisor.
//!
//! Owns the workers of one machine or pod: their processes, pools and queues, and the tunnels that carry the
//! platform-plugin protocol (PPP) between gateways and workers. Refuses whatever an installed manifest does not allow.
//! Keeps true (invariant I-7): a worker is assumed hostile, and can end at most its own process.

pub mod api;
pub mod cause;
pub mod delegation;
pub mod egress;
pub mod plugin;
pub mod pool;
pub mod ppp;
pub mod refusal;
pub mod runtime;
pub mod secrets;
pub mod settings;
pub mod telemetry;
pub mod tunnel;
pub mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

use asp_platform::telemetry::{ENV_LOG, start_queued};
use clap::Parser;
use clap::error::ErrorKind;
use tokio::runtime::Builder;

/// sysexits.h EX_USAGE: the command line or a setting is wrong.
pub const EXIT_BAD_CONFIGURATION: u8 = 64;

/// Runs the command line and returns the exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = match settings::Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Err: the terminal is gone, so the message cannot be shown.
            let _ = error.print();
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(EXIT_BAD_CONFIGURATION) };
        }
    };
    // Must run before there is a thread or a log line that could be lost.
    let refused = delegation::enter_scope();
    let _logs = start_queued(std::env::var(ENV_LOG).ok().as_deref());
    if let Some(reason) = refused {
        tracing::warn!(
            runtime = true,
            reason,
            "systemd gave no control group; the runtime continues without one"
        );
    }
    let settings = match settings::Settings::read(arguments) {
        Ok(settings) => settings,
        Err(faults) => {
            for fault in faults {
                tracing::error!(
                    fault,
                    "a setting is invalid, so the runtime does not start; correct it and start again"
                );
            }
            return ExitCode::from(EXIT_BAD_CONFIGURATION);
        }
    };
    match serve(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(
                error = format!("{error:#}"),
                "the runtime failed and its workers ended with it; fix the cause and start it again"
            );
            ExitCode::FAILURE
        }
    }
}

fn serve(settings: settings::Settings) -> anyhow::Result<()> {
    let several = |threads, name| {
        let mut executor = Builder::new_multi_thread();
        executor.worker_threads(threads).thread_name(name).enable_all().build()
    };
    let calls = match settings.threads {
        // One thread handles tasks in the order in which they became ready, so many calls go out in one write. A
        // multi-threaded executor runs a woken task at once, which costs one write per call.
        1 => Builder::new_current_thread().enable_all().build(),
        threads => several(threads, "calls"),
    }?;
    let aside = several(1, "aside")?;
    let served = calls.block_on(api::listen::serve(settings, aside.handle().clone()));
    // Pending worker output no longer matters; nothing waits for it.
    aside.shutdown_background();
    served
}
