//! `asp-runtime`: parses the command line and exits with what the runtime says.

use std::process::ExitCode;

/// Most values live for one request and are freed on another thread than theirs, which the C library's allocator locks
/// for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    asp_runtime::run(std::env::args_os())
}
