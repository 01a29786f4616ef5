//! seccomp below level 3: limits on what a worker may do to other processes.
//!
//! A worker with the supervisor's user has that user's rights over all his processes: the supervisor, other workers,
//! and any others. Keeps true: it cannot signal any of them, change their limits, priorities or processors, or reach
//! one by a socket or a ring. Refuses more than that if a call's arguments do not tell: a process may be the worker's
//! own child or a foreign one, so without Landlock's rule for signals (Linux 6.12) a worker may signal only itself;
//! priorities and limits it may always set only for itself. Source: kill(2), fcntl(2), prlimit(2), sched(7),
//! io_uring(7), unix(7).

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{BackendError, BpfProgram, SeccompCmpOp, SeccompRule};

use super::{FilterRules, IO_URING, TYPE_MASK, compile, condition, every, rule};

const PRIO_PROCESS: u64 = 0;
const IOPRIO_WHO_PROCESS: u64 = 1;
const SOCK_RAW: u64 = 3;
/// Requests from asm-generic/sockios.h, which libc lacks. Their argument is behind a pointer.
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
/// Command from fcntl.h, which libc lacks. Its argument is behind a pointer.
const F_SETOWN_EX: u64 = 15;

/// Refuses sockets and rings, which reach other processes by name. Without a file system of its own, the worker sees
/// the paths of the supervisor's socket and of the machine's services (`/dev/log`, systemd's); without a user of its
/// own, it has the right to use them. A ring connects past every filter. A worker's own server only accepts.
pub(super) fn forbid_reaching() -> Result<Vec<BpfProgram>, BackendError> {
    let mut refused = every(&[libc::SYS_connect]);
    let datagrams = || {
        let local = || condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_UNIX.unsigned_abs()));
        // The kernel treats a raw socket as a datagram socket (unix_create in net/unix/af_unix.c).
        let kinds = [u64::from(libc::SOCK_DGRAM.unsigned_abs()), SOCK_RAW];
        let kind = |kind| rule([local()?, condition(1, SeccompCmpOp::MaskedEq(TYPE_MASK), kind)?]);
        kinds.into_iter().map(kind).collect::<Result<Vec<_>, BackendError>>()
    };
    // A socket of a pair can send to any name too.
    refused.extend([(libc::SYS_socket, datagrams()?), (libc::SYS_socketpair, datagrams()?)]);
    Ok(vec![compile(refused, libc::EACCES)?, compile(every(&IO_URING), libc::ENOSYS)?])
}

/// Restricts a worker with the supervisor's user to limits, priorities and processors of the process `own` and of its
/// first thread. Landlock has no rule for them.
pub(super) fn forbid_changes(own: u32) -> Result<BpfProgram, BackendError> {
    let own = u64::from(own);
    let not_own = |argument| rule([differs(argument, 0)?, differs(argument, own)?]);
    let mut refused = FilterRules::new();
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ] {
        refused.insert(call, vec![not_own(0)?]);
    }
    // Groups and users include processes of others.
    for (call, one) in [(libc::SYS_setpriority, PRIO_PROCESS), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)] {
        refused.insert(call, vec![not_own(1)?, rule([differs(0, one)?])?]);
    }
    compile(refused, libc::EPERM)
}

/// Restricts a worker with the supervisor's user, if Landlock does not stop signals at the sandbox's border, to signals
/// to the process `own`, such as those of an abort, a thread or a garbage collector. Signals to the group would reach
/// the outermost process.
pub(super) fn forbid_signals(own: u32) -> Result<Vec<BpfProgram>, BackendError> {
    let own = u64::from(own);
    let to_others = || Ok(vec![rule([differs(0, own)?])?]);
    let calls = [
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
    ];
    let mut refused = calls
        .into_iter()
        .map(|call| Ok((call, to_others()?)))
        .collect::<Result<BTreeMap<_, Vec<SeccompRule>>, BackendError>>()?;
    // The kernel sends a file's owner the signal configured for it (F_SETSIG), including SIGKILL.
    let command = |argument: u8, command| condition(argument, SeccompCmpOp::Eq, command);
    let owner = u64::from(libc::F_SETOWN.unsigned_abs());
    refused.insert(
        libc::SYS_fcntl,
        vec![
            rule([command(1, owner)?, differs(2, 0)?, differs(2, own)?])?,
            rule([command(1, F_SETOWN_EX)?])?,
        ],
    );
    let ioctls = [FIOSETOWN, SIOCSPGRP].map(|request| rule([command(1, request)?]));
    refused.insert(libc::SYS_ioctl, ioctls.into_iter().collect::<Result<_, _>>()?);
    // A filter cannot see which process a handle refers to; programs fall back to the calls above.
    let handles = every(&[libc::SYS_pidfd_send_signal]);
    Ok(vec![compile(refused, libc::EPERM)?, compile(handles, libc::ENOSYS)?])
}

fn differs(argument: u8, value: u64) -> Result<seccompiler::SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::Ne, value)
}
