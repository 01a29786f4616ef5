//! Resource limits of the worker's processes (setrlimit(2)).
//!
//! The address space is never limited: Java and Node reserve far more than they use. Without a control group, a
//! process's private writable memory is limited (`RLIMIT_DATA`): reserved addresses do not count towards it.

use std::fs::{self, DirEntry};

use asp_launcher::{Bounds, Level, Limits, Sandbox};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::failure::{SetupFailure, StepContext};
use crate::namespaces::ProcessScope;

/// The first process, which has the worker's user and counts. Callers that request an egress forwarder allow it one
/// more.
const OWN_PROCESSES: u64 = 1;
/// Number of processes that a user may run besides a worker with the same user id before the worker can start no more.
const BESIDE: u64 = 1024;
/// Data that interpreters reserve and never touch, except for stacks: 70 MiB were seen in Node, 30 in Java, 65 in
/// Python with ten threads.
const UNUSED_DATA: u64 = 128 << 20;
/// Default stack size of a thread (pthread_attr_init(3)).
const STACK: u64 = 8 << 20;
const STACKS: u64 = 512 << 20;

/// Limits this process and its future children.
pub(crate) fn apply(sandbox: &Sandbox, counted: ProcessScope) -> Result<(), SetupFailure> {
    let limits = &sandbox.limits;
    no_core_dumps()?;
    lower(Resource::RLIMIT_NOFILE, limits.files)?;
    lower(Resource::RLIMIT_FSIZE, limits.file_bytes)?;
    // A user's processes on the whole machine may include those of another supervisor's workers with the same user id;
    // a control group counts correctly. If the worker keeps the supervisor's user, that user's own processes count too:
    // this limit leaves the worker its share and still stops a fork bomb.
    if sandbox.keeps_user {
        lower(Resource::RLIMIT_NPROC, tasks_of(sandbox.uid) + u64::from(limits.pids) + BESIDE)?;
    } else if sandbox.level < Level::L3 || counted == ProcessScope::Apart || sandbox.bounds == Bounds::Sampled
    {
        lower(Resource::RLIMIT_NPROC, u64::from(limits.pids) + OWN_PROCESSES)?;
    }
    if sandbox.bounds == Bounds::Sampled {
        lower(Resource::RLIMIT_DATA, data_bytes(limits))?;
        // The first thread's stack grows, and does not count as data.
        lower(Resource::RLIMIT_STACK, STACK)?;
    }
    match limits.cpu_seconds {
        Some(seconds) => lower(Resource::RLIMIT_CPU, seconds),
        None => Ok(()),
    }
}

/// Returns the number of processes and threads of a user on the whole machine.
fn tasks_of(user: u32) -> u64 {
    let status = |entry: DirEntry| fs::read(entry.path().join("status")).ok();
    let tasks = |status: Vec<u8>| {
        let text = String::from_utf8_lossy(&status);
        let number = |name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        };
        (number("Uid:")? == u64::from(user)).then(|| number("Threads:")).flatten()
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(status).filter_map(tasks).sum()
}

/// Returns the limit on one process's private memory, used or not: thread stacks, heaps and compiled code count in full
/// once they are allocated.
fn data_bytes(limits: &Limits) -> u64 {
    let stacks = (u64::from(limits.pids) * STACK).min(STACKS);
    limits.memory_bytes.saturating_add(UNUSED_DATA + stacks)
}

/// Disables core dumps. A limit of 0 bytes does not stop a dump to a `core_pattern` that is a pipe, to a program that
/// runs as root outside; the kernel takes 1 for "none, not even there", and writes no file so small (core(5),
/// do_coredump in fs/coredump.c).
pub(crate) fn no_core_dumps() -> Result<(), SetupFailure> {
    lower(Resource::RLIMIT_CORE, 1)
}

/// Lowers a limit. One that is already lower stays: raising it needs a privilege.
fn lower(resource: Resource, wanted: u64) -> Result<(), SetupFailure> {
    let (_, hard) = getrlimit(resource).during("rlimits")?;
    let value = wanted.min(hard);
    setrlimit(resource, value, value).during("rlimits")
}
