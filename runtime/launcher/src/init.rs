//! The first process inside the namespaces (pid 1 there): finishes the sandbox, starts the worker, reaps.
//!
//! It has the worker's user and no privileges by the time the worker starts; when it ends, the kernel kills everything
//! that is left in the namespace. It ends with the outermost process.

use std::net::{Ipv4Addr, TcpListener};
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
use crate::forward::Route;
use crate::syscalls::User;
use crate::{forward, mounts, namespaces, privileges, syscalls, worker};

/// Builds the inner part of the sandbox and runs the worker to its end, which is written to `reporter`.
pub(crate) fn run(
    sandbox: &Sandbox,
    reporter: OwnedFd,
    signals: &SignalFd,
) -> Result<ExitCode, SetupFailure> {
    die_with_watcher(&reporter)?;
    namespaces::hide_groups();
    namespaces::set_host_name(&sandbox.hostname)?;
    let routes = open_egress(sandbox)?;
    mounts::build(sandbox)?;
    let counted = namespaces::enter_counting_namespace(sandbox)?;
    privileges::drop_all(sandbox)?;
    // A change of user clears the death signal.
    die_with_watcher(&reporter)?;
    syscalls::restrict(sandbox, User::Own)?;
    if !routes.is_empty() {
        match fork()? {
            ForkResult::Child => {
                drop(reporter);
                let served = forward::run(&routes);
                return Ok(served.unwrap_or_else(|failure| failure.print()));
            }
            ForkResult::Parent { .. } => drop(routes),
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

/// Opens both ends of each route of the egress. Runs before the old file system is hidden: the proxy is reached by handles, not
/// by paths. This process may bind ports below 1024 still, as those of SMTP and LDAP.
fn open_egress(sandbox: &Sandbox) -> Result<Vec<Route>, SetupFailure> {
    let Some(egress) = &sandbox.egress else { return Ok(Vec::new()) };
    namespaces::raise_loopback()?;
    let http = (Ipv4Addr::LOCALHOST, egress.port, &egress.proxy_socket);
    let tcp = egress.tcp.iter().map(|to| (to.address, to.port, &to.socket));
    let mut routes = Vec::new();
    for (address, port, socket) in std::iter::once(http).chain(tcp) {
        let listener = TcpListener::bind((address, port)).during("egress")?;
        let proxy = open(socket, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).during("egress")?;
        routes.push(Route { listener, proxy });
    }
    Ok(routes)
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
