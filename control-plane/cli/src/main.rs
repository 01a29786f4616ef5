//! The `asp` binary: parses the command line and exits with the command's exit code.

use std::process::ExitCode;

/// Avoids lock contention: most values live for one request and are freed on a different thread, for which the C
/// library's allocator takes a lock.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    asp::run(std::env::args_os())
}
