//! The `asp` binary as a library: the command line, the settings, the wiring of both roles, and development tools.
//!
//! Owns the wiring only: `asp-gateway` evaluates requests, `asp-control` is the control role, `asp-registry` the compiler.

pub mod args;
pub mod break_glass;
mod bridge;
pub mod commands;
pub mod dev_issuer;
mod dev_login;
pub mod local_key;
pub mod serve;
pub mod settings;
pub mod stack;
pub mod token_keys;

use std::ffi::OsString;
use std::process::ExitCode;

use asp_command::failure::EXIT_BAD_CONFIGURATION;
use clap::FromArgMatches;
use clap::error::ErrorKind;

/// Runs the command line and returns the exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed = args::help::command().try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| args::Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Err: the terminal is gone, so nothing can be printed.
            let _ = error.print();
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(EXIT_BAD_CONFIGURATION) };
        }
    };
    dev_issuer::install_crypto();
    commands::run(cli.command)
}
