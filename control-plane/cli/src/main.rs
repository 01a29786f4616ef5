//! The `asp` binary: parses the command line and exits with what the command says.

use std::process::ExitCode;

fn main() -> ExitCode {
    asp::run(std::env::args_os())
}
