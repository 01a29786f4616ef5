//! Resource limits of the worker's processes (setrlimit(2)).
//!
//! The address space is never limited: Java and Node reserve far more than they use. Where there is no control group,
//! what a process may write to of its own is (`RLIMIT_DATA`): reserved addresses do not count there.

use std::fs::{self, DirEntry};

use asp_launcher::{Bounds, Level, Limits, Sandbox};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::failure::{During, Failure};
use crate::namespaces::Counted;

/// The first process has the worker's user and counts. Whoever asks for an egress forwarder allows it one more.
const OWN_PROCESSES: u64 = 1;
/// Processes that a user may start beside a worker that has his number, before the worker may start no more.
const BESIDE: u64 = 1024;
/// What interpreters have and never touch, but for stacks: of Node 70 MiB were seen, of Java 30, of Python with
/// ten threads 65.
const UNUSED_DATA: u64 = 128 << 20;
/// Of a thread, where nothing else is said (pthread_attr_init(3)).
const STACK: u64 = 8 << 20;
const STACKS: u64 = 512 << 20;

/// Bounds this process and all it becomes.
pub(crate) fn apply(sandbox: &Sandbox, counted: Counted) -> Result<(), Failure> {
    let limits = &sandbox.limits;
    no_core_dumps()?;
    lower(Resource::RLIMIT_NOFILE, limits.files)?;
    lower(Resource::RLIMIT_FSIZE, limits.file_bytes)?;
    // A user's processes on the whole machine may be those of another supervisor's workers of that number: a control
    // group counts right. Those of who keeps his user are a person's: they leave the worker its share, and a bomb an end.
    if sandbox.keeps_user {
        lower(Resource::RLIMIT_NPROC, tasks_of(sandbox.uid) + u64::from(limits.pids) + BESIDE)?;
    } else if sandbox.level < Level::L3 || counted == Counted::Apart || sandbox.bounds == Bounds::Sampled {
        lower(Resource::RLIMIT_NPROC, u64::from(limits.pids) + OWN_PROCESSES)?;
    }
    if sandbox.bounds == Bounds::Sampled {
        lower(Resource::RLIMIT_DATA, data_bytes(limits))?;
        // The first thread's stack grows, and is no data.
        lower(Resource::RLIMIT_STACK, STACK)?;
    }
    match limits.cpu_seconds {
        Some(seconds) => lower(Resource::RLIMIT_CPU, seconds),
        None => Ok(()),
    }
}

/// Processes and threads of a user on the whole machine.
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

/// What one process may have of memory of its own, used or not: stacks of threads, heaps and code that is compiled
/// count in full from their making.
fn data_bytes(limits: &Limits) -> u64 {
    let stacks = (u64::from(limits.pids) * STACK).min(STACKS);
    limits.memory_bytes.saturating_add(UNUSED_DATA + stacks)
}

/// A limit of 0 bytes keeps no dump from a `core_pattern` that is a pipe, to a program that runs as root outside; the
/// kernel takes 1 for "none, not even there", and writes no file so small (core(5), do_coredump in fs/coredump.c).
pub(crate) fn no_core_dumps() -> Result<(), Failure> {
    lower(Resource::RLIMIT_CORE, 1)
}

/// A limit that is lower already stays: raising one needs a privilege.
fn lower(resource: Resource, wanted: u64) -> Result<(), Failure> {
    let (_, hard) = getrlimit(resource).during("rlimits")?;
    let value = wanted.min(hard);
    setrlimit(resource, value, value).during("rlimits")
}
