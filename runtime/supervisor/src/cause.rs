//! Why a worker ended: the causes of a `WORKER_CRASHED` event.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use asp_launcher::EXIT_SETUP;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ended itself, with this code.
    Exit(i32),
    /// Something else ended it, with this signal.
    Signal(i32),
    /// It reached its memory bound.
    Oom,
    /// It did not answer pings, or did not start in time.
    Wedged,
    /// It broke the protocol, as the text says.
    Protocol(&'static str),
    /// A call ignored its cancellation.
    Deadline,
    /// It went over a bound that is not memory.
    Limit(&'static str),
}

impl Cause {
    /// The word of the contract.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Exit(_) => "exit",
            Cause::Signal(_) => "signal",
            Cause::Oom => "oom",
            Cause::Wedged => "wedged",
            Cause::Protocol(_) => "protocol",
            Cause::Deadline => "deadline",
            Cause::Limit(_) => "limit",
        }
    }

    /// What a process's end says by itself. `oom_exit` is the code by which its interpreter says that its heap
    /// is full.
    pub fn of_status(status: ExitStatus, oom_kills: u64, oom_exit: Option<i32>) -> Cause {
        if oom_kills > 0 || oom_exit.is_some() && status.code() == oom_exit {
            return Cause::Oom;
        }
        match (status.code(), status.signal()) {
            (Some(code), _) => Cause::Exit(code),
            (None, signal) => Cause::Signal(signal.unwrap_or(0)),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Exit(code) if *code == EXIT_SETUP => f.write_str("the sandbox could not be built"),
            Cause::Exit(78) => f.write_str("the worker could not load its plugin"),
            Cause::Exit(code) => write!(f, "the worker exited with code {code}"),
            Cause::Signal(signal) => write!(f, "the worker was ended by signal {signal}"),
            Cause::Oom => f.write_str("the worker reached its memory bound"),
            Cause::Wedged => f.write_str("the worker did not answer"),
            Cause::Protocol(fault) => write!(f, "the worker broke the protocol: {fault}"),
            Cause::Deadline => f.write_str("a call ignored its cancellation"),
            Cause::Limit(bound) => write!(f, "the worker went over its bound on {bound}"),
        }
    }
}
