//! `worker-init`: builds the sandbox around itself and becomes the worker.
//!
//! Single-threaded from start to end, so that fork is safe and no thread is left outside a restriction. Only the
//! supervisor starts it, with a description on a file descriptor (`asp_launcher::command`).

mod check;
mod end;
mod failure;
mod file_access;
mod fork;
mod forward;
mod init;
mod limits;
mod mounts;
mod namespaces;
mod privileges;
mod syscalls;
mod system;
mod watch;
mod worker;

use std::env;
use std::path::Path;
use std::process::ExitCode;

/// `EX_USAGE` of sysexits.h.
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    let argument = env::args().nth(1).unwrap_or_default();
    let number = |prefix: &str| argument.strip_prefix(prefix)?.parse::<u32>().ok();
    if let Some(descriptor) = number("--description=") {
        let report = env::args().nth(2).unwrap_or_default();
        let report = report.strip_prefix("--report=").and_then(|number| number.parse().ok());
        return watch::run(descriptor, report).unwrap_or_else(|failure| failure.report());
    }
    if let Some(level) = number("--check=") {
        let hidden = env::args().nth(2).unwrap_or_default();
        let hidden = Path::new(hidden.strip_prefix("--hidden=").unwrap_or_default());
        return check::run(level, hidden, env::args().any(|argument| argument == "--keeps-user"));
    }
    eprintln!("worker-init is started by asp-runtime, with --description=<file descriptor>");
    ExitCode::from(EXIT_USAGE)
}
