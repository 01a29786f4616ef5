//! `asp-runtime`: parses the command line and exits with the runtime's exit code.

use std::process::ExitCode;

/// Most values live for one request and are freed by a different thread than the one that allocated them; the C
/// library's allocator takes a lock for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    asp_runtime::run(std::env::args_os())
}
