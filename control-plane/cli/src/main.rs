//! The `asp` binary: parses the command line and exits with what the command says.

use std::process::ExitCode;

/// Most values live for one request and are freed on another thread than theirs, which the C library's allocator locks
/// for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    asp::run(std::env::args_os())
}
