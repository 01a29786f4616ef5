//! The commands: each is a module with one `run`, and the exit code is decided here.

pub mod apply;
pub mod audit;
pub mod client;
pub mod compile;
pub mod explain;
pub mod import;
pub mod lint;
pub mod plugin;
pub mod policy;
pub mod print;
pub mod status;
pub mod token;

use std::process::ExitCode;

use crate::EXIT_BAD_CONFIGURATION;
use crate::args::Command;
use crate::settings::source::Fault;

/// `asp diff` and `asp apply` found a contract that breaks without a new major version.
const EXIT_BREAKING: u8 = 3;

/// Why a command ends with an exit code other than 0.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Wrong flags or settings: every one of them.
    #[error("bad configuration")]
    Configuration(Vec<Fault>),
    /// The command ran and the answer is no; it has said why.
    #[error("failed")]
    Refused,
    /// What was compared breaks callers without a new major version; it has said where.
    #[error("breaks callers")]
    Breaking,
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// One wrong flag or setting.
    pub fn bad(name: &str, message: impl Into<String>) -> Failure {
        Failure::Configuration(vec![Fault { name: name.to_owned(), message: message.into() }])
    }
}

/// Runs a command to its end.
pub fn run(command: Command) -> ExitCode {
    let outcome = match command {
        Command::Serve(args) => crate::serve::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Diff(args) => apply::diff(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Policy(args) => policy::policy(&args),
        Command::Limits(args) => policy::limits(&args),
        Command::Revoke(args) => policy::revoke(&args),
        Command::Import(args) => import::run(&args),
        Command::Plugin(command) => plugin::run(&command),
        Command::Status(args) => status::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Configuration(faults)) => {
            for fault in faults {
                print::error(&fault.to_string());
            }
            ExitCode::from(EXIT_BAD_CONFIGURATION)
        }
        Err(Failure::Refused) => ExitCode::FAILURE,
        Err(Failure::Breaking) => ExitCode::from(EXIT_BREAKING),
        Err(Failure::Other(error)) => {
            print::error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
