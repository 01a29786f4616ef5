//! The first process inside the namespaces (pid 1 there): finishes the sandbox, starts the worker, reaps.
//!
//! It has the worker's user and no privileges by the time the worker starts; when it ends, the kernel kills everything
//! that is left in the namespace. It ends with the outermost process.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use asp_launcher::Sandbox;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::unistd::{ForkResult, Pid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};

use crate::end::{WorkerEnd, serve_signals};
use crate::failure::{SetupFailure, StepContext};
use crate::fork::fork;
use crate::syscalls::User;
use crate::{forward, mounts, namespaces, privileges, syscalls, worker};

/// Both ends of the egress: the listener for the worker, and the proxy's socket.
struct EgressSockets {
    listener: TcpListener,
    proxy: OwnedFd,
}

/// Builds the inner part of the sandbox and runs the worker to its end, which is written to `reporter`.
pub(crate) fn run(
    sandbox: &Sandbox,
    reporter: OwnedFd,
    signals: &SignalFd,
) -> Result<ExitCode, SetupFailure> {
    die_with_watcher(&reporter)?;
    namespaces::hide_groups();
    namespaces::set_host_name(&sandbox.hostname)?;
    let egress = open_egress(sandbox)?;
    mounts::build(sandbox)?;
    let counted = namespaces::enter_counting_namespace(sandbox)?;
    privileges::drop_all(sandbox)?;
    // A change of user clears the death signal.
    die_with_watcher(&reporter)?;
    syscalls::restrict(sandbox, User::Own)?;
    if let Some(egress) = egress {
        match fork()? {
            ForkResult::Child => {
                drop(reporter);
                let served = forward::run(&egress.listener, &egress.proxy);
                return Ok(served.unwrap_or_else(|failure| failure.print()));
            }
            ForkResult::Parent { .. } => {}
        }
    }
    match fork()? {
        ForkResult::Child => worker::exec_worker(sandbox, counted),
        ForkResult::Parent { child } => {
            let end = reap_until(child, signals)?;
            rustix::io::write(&reporter, &end.to_bytes()).during("report")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn die_with_watcher(reporter: &OwnedFd) -> Result<(), SetupFailure> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).during("supervisor")?;
    // It may have died just before; the other end of the pipe is then closed.
    let mut gone = [PollFd::from_borrowed_fd(reporter.as_fd(), PollFlags::empty())];
    poll(&mut gone, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).during("supervisor")?;
    if gone.iter().any(|pipe| pipe.revents().contains(PollFlags::ERR)) {
        return Err(SetupFailure::new("supervisor", "gone"));
    }
    Ok(())
}

/// Opens both ends of the egress. Runs before the old file system is hidden: the proxy is reached by a handle, not by
/// its path.
fn open_egress(sandbox: &Sandbox) -> Result<Option<EgressSockets>, SetupFailure> {
    let Some(egress) = &sandbox.egress else { return Ok(None) };
    namespaces::raise_loopback()?;
    let listener = TcpListener::bind(("127.0.0.1", egress.port)).during("egress")?;
    let proxy = open(&egress.proxy_socket, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).during("egress")?;
    Ok(Some(EgressSockets { listener, proxy }))
}

fn reap_until(worker: Pid, signals: &SignalFd) -> Result<WorkerEnd, SetupFailure> {
    loop {
        let mut waker = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        match poll(&mut waker, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SetupFailure::new("wait", error)),
        }
        if let Some(end) = serve_signals(signals, worker)? {
            return Ok(end);
        }
    }
}
