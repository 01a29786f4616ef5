//! seccomp: the system calls that the worker may make.
//!
//! All calls are allowed that are not listed, up to the newest call that was reviewed; newer ones do not exist for the
//! worker. Sockets are local, and with egress also TCP and UDP. A refusal is an errno that programs handle; only a
//! foreign instruction set kills. Source: seccomp(2); the list follows the default profiles of systemd and the
//! container engines.

mod neighbours;

use std::collections::BTreeMap;
use std::process;

use asp_launcher::{Bounds, Level, Sandbox};
use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

use crate::failure::{SetupFailure, StepContext};
use crate::file_access;

const STEP: &str = "seccomp";

/// `mseal` of Linux 6.10. All numbers since 424 are the same on every architecture. Those of x86's other instruction
/// sets begin far above.
const NEWEST_CALL: u32 = 462;

/// Calls that reach into other processes or the kernel, or change the machine.
const REFUSED: [libc::c_long; 52] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_migrate_pages,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_nfsservctl,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: [libc::c_long; 5] =
    [libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS__sysctl];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: [libc::c_long; 0] = [];

/// Calls for rings, which make system calls that no filter sees.
const IO_URING: [libc::c_long; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Calls that allocate memory which no resource limit counts, and which is not attributed to a process.
const UNCOUNTED: [libc::c_long; 6] = [
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    // A pipe keeps the pages after the process has released them.
    libc::SYS_vmsplice,
];

const NEW_NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Socket types refused for IP: all but streams (1) and datagrams (2).
const OTHER_IP_TYPES: [u64; 14] = [0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// Protocols allowed for IP sockets: the type's default, TCP and UDP. The others (SCTP, MPTCP, SMC, L2TP, ICMP..)
/// expose much kernel code that no Landlock rule covers, and the proxy does not support them.
const IP_PROTOCOLS: [u64; 3] = [0, 6, 17];
/// Mask of the type without SOCK_NONBLOCK and SOCK_CLOEXEC.
const TYPE_MASK: u64 = 0xf;

type FilterRules = BTreeMap<i64, Vec<SeccompRule>>;

/// User of a worker: below level 3 the worker has this user's rights over other processes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Own,
    Supervisors,
}

/// Restricts this process and its future children. Below level 3 this process becomes the worker itself.
pub(crate) fn restrict(sandbox: &Sandbox, user: User) -> Result<(), SetupFailure> {
    for program in programs(sandbox, user).during(STEP)? {
        apply_filter(&program).during(STEP)?;
    }
    Ok(())
}

fn programs(sandbox: &Sandbox, user: User) -> Result<Vec<BpfProgram>, BackendError> {
    // The other filters compare calls by number, which could be evaded by alternative numbers for the same calls (x32).
    let mut programs = vec![unknown_calls()];
    if sandbox.level >= Level::L2 {
        programs.extend([
            // A filter cannot see the flags of `clone3`; its callers fall back to `clone`, whose flags it can see.
            compile(every(&[libc::SYS_clone3]), libc::ENOSYS)?,
            compile(every(&IO_URING), libc::ENOSYS)?,
            compile(sockets(sandbox.egress.is_some())?, libc::EAFNOSUPPORT)?,
            compile(protocols()?, libc::EPROTONOSUPPORT)?,
            compile(refused()?, libc::EPERM)?,
        ]);
    }
    if sandbox.level < Level::L3 {
        programs.extend(neighbours::forbid_reaching()?);
        // A dedicated user may also be that of a worker of another runtime.
        programs.push(neighbours::forbid_changes(process::id())?);
        // Landlock's fence around signals distinguishes a worker's own children from other processes.
        if user == User::Supervisors && (sandbox.level < Level::L2 || !file_access::ends_signals()) {
            programs.extend(neighbours::forbid_signals(process::id())?);
        }
    }
    if sandbox.bounds == Bounds::Sampled {
        programs.push(compile(every(&UNCOUNTED), libc::ENOSYS)?);
        programs.push(compile(forbid_uncounted_maps()?, libc::EPERM)?);
    }
    Ok(programs)
}

fn compile(rules: FilterRules, errno: libc::c_int) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()
}

fn every(calls: &[libc::c_long]) -> FilterRules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn refused() -> Result<FilterRules, BackendError> {
    let mut rules = every(&REFUSED);
    rules.extend(every(&REFUSED_HERE));
    let bit = |flag: libc::c_int| {
        let flag = u64::from(flag.unsigned_abs());
        rule([condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    };
    rules.insert(libc::SYS_clone, NEW_NAMESPACES.into_iter().map(bit).collect::<Result<_, _>>()?);
    // `bind` creates sockets, and needs a descriptor for each; nobody may create device files.
    let others = [libc::S_IFCHR, libc::S_IFBLK, libc::S_IFSOCK, libc::S_IFREG, 0];
    let kinds = |argument: u8| {
        let kind = move |kind: libc::mode_t| {
            rule([condition(argument, SeccompCmpOp::MaskedEq(libc::S_IFMT.into()), kind.into())?])
        };
        others.into_iter().map(kind).collect::<Result<Vec<_>, BackendError>>()
    };
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_mknod, kinds(1)?);
    rules.insert(libc::SYS_mknodat, kinds(2)?);
    // Input injection into an inherited terminal.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX];
    let typing = typing.into_iter().map(|request| rule([condition(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
    Ok(rules)
}

fn sockets(egress: bool) -> Result<FilterRules, BackendError> {
    let families: &[libc::c_int] =
        if egress { &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] } else { &[libc::AF_UNIX] };
    let not = |family: &libc::c_int| condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()));
    let mut refused = vec![SeccompRule::new(families.iter().map(not).collect::<Result<_, _>>()?)?];
    for family in families.iter().filter(|family| **family != libc::AF_UNIX) {
        for kind in OTHER_IP_TYPES {
            refused.push(rule([
                condition(0, SeccompCmpOp::Eq, u64::from(family.unsigned_abs()))?,
                condition(1, SeccompCmpOp::MaskedEq(TYPE_MASK), kind)?,
            ])?);
        }
    }
    let local = u64::from(libc::AF_UNIX.unsigned_abs());
    let pairs = vec![rule([condition(0, SeccompCmpOp::Ne, local)?])?];
    Ok(BTreeMap::from([(libc::SYS_socket, refused), (libc::SYS_socketpair, pairs)]))
}

/// Refuses other IP protocols, with the errno at which programs fall back to plain TCP.
fn protocols() -> Result<FilterRules, BackendError> {
    let mut refused = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut conditions = vec![condition(0, SeccompCmpOp::Eq, u64::from(family.unsigned_abs()))?];
        for protocol in IP_PROTOCOLS {
            conditions.push(condition(2, SeccompCmpOp::Ne, protocol)?);
        }
        refused.push(SeccompRule::new(conditions)?);
    }
    Ok(BTreeMap::from([(libc::SYS_socket, refused)]))
}

/// Refuses shared anonymous memory and growing stacks: neither counts as a process's data (is_data_mapping in
/// mm/vma.h).
fn forbid_uncounted_maps() -> Result<FilterRules, BackendError> {
    let flags = |flags: libc::c_int| {
        let flags = u64::from(flags.unsigned_abs());
        rule([condition(3, SeccompCmpOp::MaskedEq(flags), flags)?])
    };
    let maps = vec![flags(libc::MAP_SHARED | libc::MAP_ANONYMOUS)?, flags(libc::MAP_GROWSDOWN)?];
    Ok(BTreeMap::from([(libc::SYS_mmap, maps)]))
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

/// Compares the low half of an argument: the kernel reads no more of a domain, a type, a mode or a request.
fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

/// Refuses every call above [`NEWEST_CALL`] as not existing: the crate compares numbers for equality only.
fn unknown_calls() -> BpfProgram {
    // Classic BPF over `struct seccomp_data`, whose first word is the call's number (linux/bpf_common.h).
    let load_number = sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let skip_unless_above = sock_filter { code: 0x25, jt: 0, jf: 1, k: NEWEST_CALL };
    let give = |k| sock_filter { code: 0x06, jt: 0, jf: 0, k };
    let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    vec![load_number, skip_unless_above, give(absent), give(libc::SECCOMP_RET_ALLOW)]
}
