//! A step of building the sandbox that did not work.

use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use std::sync::OnceLock;

use asp_launcher::{EXIT_SETUP, Fault, Reporter};
use serde::Serialize;

/// Where the supervisor hears of it; set once, before anything is built.
static REPORTER: OnceLock<Reporter> = OnceLock::new();

/// Names the step and says what the system said.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    #[serde(rename = "workerInit")]
    outcome: &'static str,
    #[serde(flatten)]
    fault: Fault,
}

/// Turns an error into the [`Failure`] of a step.
pub(crate) trait During<T> {
    fn during(self, step: &'static str) -> Result<T, Failure>;
}

impl Failure {
    /// One that the machine is to blame for: whatever else is described can be built where there is room for it.
    pub(crate) fn new(step: &'static str, error: impl Display) -> Failure {
        let fault = Fault { step: step.to_owned(), error: error.to_string(), host: true };
        Failure { outcome: "failed", fault }
    }

    /// One of what was described.
    pub(crate) fn of_description(step: &'static str, error: impl Display) -> Failure {
        let mut failure = Failure::new(step, error);
        failure.fault.host = false;
        failure
    }

    /// One line on standard error for people, and a message for the supervisor.
    pub(crate) fn report(&self) -> ExitCode {
        if let Some(reporter) = REPORTER.get() {
            reporter.tell(&self.fault);
        }
        self.print()
    }

    /// The line alone: the worker runs, so this says nothing of its start.
    pub(crate) fn print(&self) -> ExitCode {
        eprintln!("{}", serde_json::to_string(self).unwrap_or_default());
        ExitCode::from(u8::try_from(EXIT_SETUP).unwrap_or(u8::MAX))
    }
}

/// Lets the supervisor reach the directories where the worker listens and works.
pub(crate) fn hand_over(run_dir: BorrowedFd<'_>, work_dir: BorrowedFd<'_>) {
    if let Some(reporter) = REPORTER.get() {
        reporter.hand_over(run_dir, work_dir);
    }
}

/// Tells the supervisor the most resident memory that one process of the worker had, bytes.
pub(crate) fn tell_peak(resident_bytes: u64) {
    if let Some(reporter) = REPORTER.get() {
        reporter.tell_peak(resident_bytes);
    }
}

/// Reports from now on go to `reporter`.
pub(crate) fn report_to(reporter: Reporter) {
    // Err: it is set, which it is once.
    let _ = REPORTER.set(reporter);
}

impl<T, E: Display> During<T> for Result<T, E> {
    fn during(self, step: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, error))
    }
}
