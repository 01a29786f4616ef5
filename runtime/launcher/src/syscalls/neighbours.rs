//! seccomp below level 3: what a worker may do to processes that are not its own.
//!
//! There a worker that has the supervisor's user has that user's rights over all his processes: the supervisor, other
//! workers, whatever else he runs. Keeps true: it signals none of them and changes none of their limits, priorities and
//! processors, and reaches none by a socket or a ring. Refuses more than that where a call's arguments do not tell: a
//! process may be the worker's own child or another's, so without Landlock's rule for signals (Linux 6.12) a worker may
//! signal itself alone, and set priorities and limits of itself alone everywhere.
//! Source: kill(2), fcntl(2), prlimit(2), sched(7), io_uring(7), unix(7).

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{BackendError, BpfProgram, SeccompCmpOp, SeccompRule};

use super::{IO_URING, Rules, TYPE_MASK, compile, condition, every, rule};

const PRIO_PROCESS: u64 = 0;
const IOPRIO_WHO_PROCESS: u64 = 1;
const SOCK_RAW: u64 = 3;
/// asm-generic/sockios.h; libc does not have them. Their argument is behind a pointer.
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
/// fcntl.h; libc does not have it. Its argument is behind a pointer.
const F_SETOWN_EX: u64 = 15;

/// Sockets and rings: all that reaches another process by a name. Without a file system of its own the supervisor's
/// socket has a path, and those of the machine's services (`/dev/log`, systemd's) too; without a user of its own the
/// worker has the right to them. A ring connects past every filter. A worker's own server only accepts.
pub(super) fn unreachable() -> Result<Vec<BpfProgram>, BackendError> {
    let mut refused = every(&[libc::SYS_connect]);
    let datagrams = || {
        let local = || condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_UNIX.unsigned_abs()));
        // The kernel takes a raw one for a datagram socket (unix_create in net/unix/af_unix.c).
        let kinds = [u64::from(libc::SOCK_DGRAM.unsigned_abs()), SOCK_RAW];
        let kind = |kind| rule([local()?, condition(1, SeccompCmpOp::MaskedEq(TYPE_MASK), kind)?]);
        kinds.into_iter().map(kind).collect::<Result<Vec<_>, BackendError>>()
    };
    // One of a pair sends to any name too.
    refused.extend([(libc::SYS_socket, datagrams()?), (libc::SYS_socketpair, datagrams()?)]);
    Ok(vec![compile(refused, libc::EACCES)?, compile(every(&IO_URING), libc::ENOSYS)?])
}

/// For a worker with the supervisor's user: limits, priorities and processors of the process `own` alone, and of its
/// first thread. Landlock has no rule for them.
pub(super) fn unchanged(own: u32) -> Result<BpfProgram, BackendError> {
    let own = u64::from(own);
    let not_own = |argument| rule([differs(argument, 0)?, differs(argument, own)?]);
    let mut refused = Rules::new();
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ] {
        refused.insert(call, vec![not_own(0)?]);
    }
    // Of a group and of a user: those of others are among them.
    for (call, one) in [(libc::SYS_setpriority, PRIO_PROCESS), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)] {
        refused.insert(call, vec![not_own(1)?, rule([differs(0, one)?])?]);
    }
    compile(refused, libc::EPERM)
}

/// For a worker with the supervisor's user where Landlock does not end signals at the sandbox's border: no signal but
/// to the process `own`, which an abort, a thread's own and a garbage collector's are. The group's would reach the
/// outermost process.
pub(super) fn unsignalled(own: u32) -> Result<Vec<BpfProgram>, BackendError> {
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
    // A file's owner is sent whatever signal the file was given for news (F_SETSIG), SIGKILL too.
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
    // Whose handle it is does not show; programs fall back to the calls above.
    let handles = every(&[libc::SYS_pidfd_send_signal]);
    Ok(vec![compile(refused, libc::EPERM)?, compile(handles, libc::ENOSYS)?])
}

fn differs(argument: u8, value: u64) -> Result<seccompiler::SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::Ne, value)
}
