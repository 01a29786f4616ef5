//! Reasons why a worker ended: the causes of a `WORKER_CRASHED` event.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use asp_launcher::{EXIT_SETUP, Stats};

/// POSIX abort().
const SIGABRT: i32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The process exited with this code.
    #[error("{}", describe_exit(.0))]
    Exit(i32),
    /// Another process or the kernel killed it with this signal.
    #[error("the worker was ended by signal {0}")]
    Signal(i32),
    /// The worker reached its memory limit.
    #[error("the worker reached its memory bound")]
    Oom,
    /// The worker did not answer pings, or did not start in time.
    #[error("the worker did not answer")]
    Wedged,
    /// The worker violated the protocol, as the text says.
    #[error("the worker broke the protocol: {0}")]
    Protocol(&'static str),
    #[error("a call ignored its cancellation")]
    Deadline,
    /// The worker exceeded a limit other than memory.
    #[error("the worker went over its bound on {0}")]
    Limit(&'static str),
    /// The worker's resource use cannot be seen, so none of its limits holds. `limit` in the contract.
    #[error("the worker's processes are not visible in /proc (hidepid), so no limit holds")]
    Unseen,
    /// Measuring the worker's resource use fails, so none of its limits holds. `limit` in the contract.
    #[error("the worker's resource use cannot be measured, so no limit holds")]
    Unmeasured,
    /// A call that had ended left something running in the worker. `leftovers` in the contract. No call is lost by
    /// this.
    #[error("a call left {0} behind in the worker")]
    ResidualWork(&'static str),
    /// The runtime stopped the worker and its calls: a drain, or the end of the runtime.
    #[error("the plugin was drained")]
    Drained,
    /// The worker never started: the machine lacked a resource, or could not build its sandbox. No call had begun.
    #[error("the machine could not start the worker")]
    Host,
}

impl Cause {
    /// The name of the cause in the contract.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Exit(_) => "exit",
            Cause::Signal(_) => "signal",
            Cause::Oom => "oom",
            Cause::Wedged => "wedged",
            Cause::Protocol(_) => "protocol",
            Cause::Deadline => "deadline",
            Cause::Limit(_) | Cause::Unseen | Cause::Unmeasured => "limit",
            Cause::ResidualWork(_) => "leftovers",
            Cause::Drained => "drained",
            Cause::Host => "host",
        }
    }

    /// Whether the worker failed; otherwise the runtime stopped it, or the machine could not start it.
    pub const fn is_crash(self) -> bool {
        !matches!(self, Cause::ResidualWork(_) | Cause::Drained | Cause::Host)
    }

    /// Derives the cause from a process's exit status and its resource accounting at that moment. `own_bytes`: the most
    /// anonymous memory that one of its processes had, which excludes the files that it has mapped.
    pub fn of_status(status: ExitStatus, stats: &Stats, full_heap: FullHeap, own_bytes: u64) -> Cause {
        if stats.oom_kills > 0 || full_heap.is_why(status, own_bytes) {
            return Cause::Oom;
        }
        match (status.code(), status.signal()) {
            (Some(code), _) => Cause::Exit(code),
            (None, signal) => Cause::Signal(signal.unwrap_or(0)),
        }
    }
}

/// The way in which an interpreter ends when its heap limit is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullHeap {
    /// The interpreter has no heap limit, or does not end when it is reached.
    #[default]
    Unknown,
    /// Exits with this code.
    Exit(i32),
    /// Aborts (SIGABRT) after one of its processes had at least this many bytes of anonymous memory. A plugin can forge
    /// what the interpreter prints, but not what the kernel measures. The program's own text does not count: it is not
    /// heap, and may be larger than a small heap.
    Abort { above: u64 },
}

impl FullHeap {
    fn is_why(self, status: ExitStatus, own_bytes: u64) -> bool {
        match self {
            FullHeap::Unknown => false,
            FullHeap::Exit(code) => status.code() == Some(code),
            FullHeap::Abort { above } => status.signal() == Some(SIGABRT) && own_bytes >= above,
        }
    }
}

fn describe_exit(code: &i32) -> String {
    match *code {
        EXIT_SETUP => "the sandbox could not be built".to_owned(),
        78 => "the worker could not load its plugin".to_owned(),
        code => format!("the worker exited with code {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes an exit code as waitpid(2) does.
    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn ended_by(signal: i32) -> ExitStatus {
        ExitStatus::from_raw(signal)
    }

    #[test]
    fn a_full_heap_is_told_from_other_ends() {
        let quiet = Stats { memory_peak_bytes: 1000, ..Stats::default() };
        let java = FullHeap::Exit(3);
        let node = FullHeap::Abort { above: 100 };
        for (status, own_bytes, full_heap, cause) in [
            (exited(3), 0, java, Cause::Oom),
            (exited(3), 0, node, Cause::Exit(3)),
            (exited(4), 0, java, Cause::Exit(4)),
            (ended_by(6), 100, node, Cause::Oom),
            (ended_by(6), 99, node, Cause::Signal(6)),
            (ended_by(6), 0, node, Cause::Signal(6)),
            (ended_by(11), 100, node, Cause::Signal(11)),
            (ended_by(6), 100, FullHeap::Unknown, Cause::Signal(6)),
        ] {
            assert_eq!(
                Cause::of_status(status, &quiet, full_heap, own_bytes),
                cause,
                "{status} {full_heap:?}"
            );
        }
        let killed = Stats { oom_kills: 1, ..Stats::default() };
        assert_eq!(
            Cause::of_status(ended_by(9), &killed, FullHeap::Unknown, 0),
            Cause::Oom,
            "the kernel says so"
        );
    }
}
