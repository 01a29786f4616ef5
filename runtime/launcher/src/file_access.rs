//! Landlock: the files that the worker may access, whatever is mounted.
//!
//! At level 2 it is the only fence around files; at level 3 the second. It also stops signals and abstract sockets at
//! the sandbox's border, and TCP except to the egress ports, if the kernel supports those rules. Source: Linux
//! Documentation/userspace-api/landlock.rst.

use std::path::PathBuf;

use asp_launcher::Sandbox;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::failure::{SetupFailure, StepContext};
use crate::system;

/// Newest supported rules; an older kernel applies those it knows, and every kernel since 5.13 has the rules for files.
const NEWEST: ABI = ABI::V9;
const STEP: &str = "landlock";

/// Restricts this process and its future children. Fails on a kernel without Landlock.
pub(crate) fn restrict(sandbox: &Sandbox) -> Result<(), SetupFailure> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .during(STEP)?;
    for (path, access) in rights(sandbox) {
        rules = allow(rules, &path, access)?;
    }
    if let Some(egress) = &sandbox.egress {
        for port in std::iter::once(egress.port).chain(egress.tcp.iter().map(|to| to.port)) {
            rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp)).during(STEP)?;
        }
    }
    let status = rules.restrict_self().during(STEP)?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err(SetupFailure::new(STEP, "this kernel does not enforce it"));
    }
    Ok(())
}

/// Whether this kernel stops signals at the sandbox's border.
pub(crate) fn ends_signals() -> bool {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement).scope(Scope::Signal).is_ok()
}

fn rights(sandbox: &Sandbox) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = read | AccessFs::Execute;
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::ResolveUnix | read;
    let mut rights = Vec::new();
    for path in system::PROGRAMS {
        rights.push((PathBuf::from(path), run));
    }
    for path in system::settings() {
        rights.push((path, read));
    }
    for (path, _) in system::written_settings(sandbox) {
        rights.push((PathBuf::from(path), read));
    }
    for name in system::devices(sandbox) {
        rights.push((PathBuf::from("/dev").join(name), AccessFs::ReadFile | AccessFs::WriteFile));
    }
    rights.push((PathBuf::from("/proc"), read));
    for path in &sandbox.read_only {
        rights.push((path.clone(), run));
    }
    rights.push((sandbox.run_dir.clone(), sockets));
    rights.push((sandbox.work_dir.clone(), AccessFs::from_all(NEWEST)));
    rights
}

fn allow(
    rules: RulesetCreated,
    path: &PathBuf,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SetupFailure> {
    // Files that the machine does not have need no rule. If the worker needs one, the mounts or the worker report it.
    let Ok(metadata) = path.metadata() else { return Ok(rules) };
    let access = if metadata.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(PathFd::new(path).during(STEP)?, access)).during(STEP)
}
