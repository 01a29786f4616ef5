//! The `asp` binary as a library: control plane, gateway process, admin API, xDS server and commands.
//!
//! Owns the wiring; the judgement of requests is `asp-gateway`'s and the compiler `asp-registry`'s.

pub mod admin;
pub mod admin_role;
pub mod admission;
pub mod apply;
pub mod args;
pub mod catalog;
pub mod clock;
pub mod commands;
pub mod inline;
pub mod issuer;
pub mod issuers;
pub mod listen;
pub mod patterns;
pub mod plugins;
pub mod policy;
pub mod publisher;
pub mod serve;
pub mod settings;
pub mod stack;
pub mod state_dir;
pub mod token_keys;
pub mod xds;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// sysexits.h EX_USAGE: a wrong command line or setting.
pub const EXIT_BAD_CONFIGURATION: u8 = 64;

/// Runs the command line and returns the exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match args::Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Err: the terminal is gone; there is nobody to tell.
            let _ = error.print();
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(EXIT_BAD_CONFIGURATION) };
        }
    };
    issuer::install_crypto();
    commands::run(cli.command)
}
