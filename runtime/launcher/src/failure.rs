//! Failure of a step in building the sandbox.

use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::sync::OnceLock;

use asp_launcher::{EXIT_SETUP, Reporter, SetupFault};
use serde::Serialize;

/// Destination of reports to the supervisor; set once, before anything is built.
static REPORTER: OnceLock<Reporter> = OnceLock::new();

/// Failed step with the system's error.
#[derive(Debug, Serialize)]
pub(crate) struct SetupFailure {
    #[serde(rename = "workerInit")]
    outcome: &'static str,
    #[serde(flatten)]
    fault: SetupFault,
}

/// Conversion of an error into the [`SetupFailure`] of a step.
pub(crate) trait StepContext<T> {
    fn during(self, step: &'static str) -> Result<T, SetupFailure>;
}

impl SetupFailure {
    /// Creates a failure caused by the machine: a sandbox with other settings may still be possible.
    pub(crate) fn new(step: &'static str, error: impl Display) -> SetupFailure {
        let fault = SetupFault { step: step.to_owned(), error: error.to_string(), host: true };
        SetupFailure { outcome: "failed", fault }
    }

    /// Creates a failure caused by the description.
    pub(crate) fn of_description(step: &'static str, error: impl Display) -> SetupFailure {
        let mut failure = SetupFailure::new(step, error);
        failure.fault.host = false;
        failure
    }

    /// Prints one line to standard error for people, and sends a message to the supervisor.
    pub(crate) fn report(&self) -> ExitCode {
        if let Some(reporter) = REPORTER.get() {
            reporter.report_failure(&self.fault);
        }
        self.print()
    }

    /// Prints the line only: the worker is running, so this does not concern its start.
    pub(crate) fn print(&self) -> ExitCode {
        eprintln!("{}", serde_json::to_string(self).unwrap_or_default());
        ExitCode::from(u8::try_from(EXIT_SETUP).unwrap_or(u8::MAX))
    }
}

/// Passes handles of the run and the work directory to the supervisor.
pub(crate) fn hand_over(run_dir: BorrowedFd<'_>, work_dir: BorrowedFd<'_>) {
    if let Some(reporter) = REPORTER.get() {
        reporter.hand_over(run_dir, work_dir);
    }
}

/// Reports the peak resident memory of any one process of the worker, in bytes, to the supervisor.
pub(crate) fn report_peak(resident_bytes: u64) {
    if let Some(reporter) = REPORTER.get() {
        reporter.report_peak(resident_bytes);
    }
}

/// Directs further reports to `reporter`.
pub(crate) fn report_to(reporter: Reporter) {
    // Err: already set; it is only set once.
    let _ = REPORTER.set(reporter);
}

impl<T, E: Display> StepContext<T> for Result<T, E> {
    fn during(self, step: &'static str) -> Result<T, SetupFailure> {
        self.map_err(|error| SetupFailure::new(step, error))
    }
}
