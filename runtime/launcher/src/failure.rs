//! A step of building the sandbox that did not work.

use std::fmt::Display;
use std::process::ExitCode;

use asp_launcher::EXIT_SETUP;
use serde::Serialize;

/// Names the step and says what the system said.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    #[serde(rename = "workerInit")]
    outcome: &'static str,
    step: &'static str,
    error: String,
}

/// Turns an error into the [`Failure`] of a step.
pub(crate) trait During<T> {
    fn during(self, step: &'static str) -> Result<T, Failure>;
}

impl Failure {
    pub(crate) fn new(step: &'static str, error: impl Display) -> Failure {
        Failure { outcome: "failed", step, error: error.to_string() }
    }

    /// One line on standard error, for the supervisor.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("{}", serde_json::to_string(self).unwrap_or_default());
        ExitCode::from(u8::try_from(EXIT_SETUP).unwrap_or(u8::MAX))
    }
}

impl<T, E: Display> During<T> for Result<T, E> {
    fn during(self, step: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, error))
    }
}
