//! `asp-runtime`: parses the command line and exits with what the runtime says.

use std::process::ExitCode;

fn main() -> ExitCode {
    asp_runtime::run(std::env::args_os())
}
