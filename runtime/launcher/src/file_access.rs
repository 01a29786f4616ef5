//! Landlock: which files the worker may touch, whatever the mounts say.
//!
//! At level 2 it is the only fence around files; at level 3 the second. It also ends signals and abstract sockets
//! at the sandbox's border, and TCP anywhere but to the egress port, where the kernel has those rules.
//! Source: Linux Documentation/userspace-api/landlock.rst.

use std::path::PathBuf;

use asp_launcher::Sandbox;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::failure::{During, Failure};
use crate::system;

/// The newest rules we know; an older kernel gets the part it has, and every kernel since 5.13 has the files'.
const NEWEST: ABI = ABI::V9;
const STEP: &str = "landlock";

/// Restricts this process and all it becomes. A kernel without Landlock is a failure.
pub(crate) fn restrict(sandbox: &Sandbox) -> Result<(), Failure> {
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
        rules = rules.add_rule(NetPort::new(egress.port, AccessNet::ConnectTcp)).during(STEP)?;
    }
    let status = rules.restrict_self().during(STEP)?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err(Failure::new(STEP, "this kernel does not enforce it"));
    }
    Ok(())
}

/// Whether this kernel ends signals at the sandbox's border.
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
) -> Result<RulesetCreated, Failure> {
    // What a machine does not have needs no rule; what the worker must have was found by the mounts or is
    // missed by the worker.
    let Ok(metadata) = path.metadata() else { return Ok(rules) };
    let access = if metadata.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(PathFd::new(path).during(STEP)?, access)).during(STEP)
}
