//! What a machine gives: every level is tried in a child, and the child judges the sandbox from inside.

use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;
use std::process::{self, Stdio};
use std::{fs, io};

use crate::cgroup::{Cgroup, Cgroups};
use crate::command::command;
use crate::sandbox::{Level, Limits, Sandbox};

/// `nobody` on the systems we know; any user that owns nothing would do.
const PROBE_UID: u32 = 65534;
/// What is kept of a child's complaint, bytes.
const MAX_REASON_BYTES: usize = 500;

/// The levels a machine gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The highest that works; absent: workers cannot run here.
    pub level: Option<Level>,
    /// Each worker has a user of its own. Without root they all have the supervisor's, whatever number they see.
    pub own_user: bool,
    /// Every level that was tried and does not work, highest first, and why.
    pub missing: Vec<(Level, String)>,
}

/// Builds a sandbox of each level, from the highest, until one holds. `scratch` is an existing directory for
/// the attempt's own directories; blocks for some milliseconds a level.
#[must_use]
pub fn probe(worker_init: &Path, scratch: &Path) -> Probe {
    let own_user = rustix::process::geteuid().is_root();
    let mut missing = Vec::new();
    for level in [Level::L3, Level::L2, Level::L1] {
        match attempt(worker_init, scratch, level) {
            Ok(()) => return Probe { level: Some(level), own_user, missing },
            Err(reason) => missing.push((level, reason)),
        }
    }
    Probe { level: None, own_user, missing }
}

fn attempt(worker_init: &Path, scratch: &Path, level: Level) -> Result<(), String> {
    let worker_init = fs::canonicalize(worker_init).map_err(|error| format!("find worker-init: {error}"))?;
    let scratch =
        fs::canonicalize(scratch).map_err(|error| format!("find the scratch directory: {error}"))?;
    let home = scratch.join(format!("probe-{}-{}", process::id(), level.number()));
    let sandbox = describe(&worker_init, &home, level);
    let tried = make_dirs(&sandbox).map_err(|error| format!("make {}: {error}", home.display()));
    let tried = tried.and_then(|()| run(&worker_init, &sandbox));
    // Only empty directories are left, and a next probe of this process uses them again.
    let _ = fs::remove_dir_all(&home);
    tried
}

fn describe(worker_init: &Path, home: &Path, level: Level) -> Sandbox {
    let argv = vec![worker_init.display().to_string(), format!("--check={}", level.number())];
    Sandbox {
        level,
        argv,
        env: BTreeMap::new(),
        work_dir: home.join("work"),
        run_dir: home.join("run"),
        read_only: vec![worker_init.to_path_buf()],
        uid: PROBE_UID,
        gid: PROBE_UID,
        limits: Limits {
            memory_bytes: 64 << 20,
            cpu_millis: 1000,
            pids: 8,
            files: 64,
            disk_bytes: 1 << 20,
            file_bytes: 1 << 20,
            cpu_seconds: None,
        },
        egress: None,
        hostname: "probe".to_owned(),
    }
}

fn make_dirs(sandbox: &Sandbox) -> io::Result<()> {
    for dir in [&sandbox.work_dir, &sandbox.run_dir] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        // Without the right to, the worker runs under our own user on the outside, and the owner is right.
        if rustix::process::geteuid().is_root() {
            chown(dir, Some(sandbox.uid), Some(sandbox.gid))?;
        }
    }
    Ok(())
}

fn run(worker_init: &Path, sandbox: &Sandbox) -> Result<(), String> {
    let groups = cgroup_for(sandbox)?;
    let cgroup = groups.as_ref().map(|(cgroup, _)| cgroup);
    let mut command = command(worker_init, sandbox, cgroup).map_err(|error| error.to_string())?;
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("start worker-init: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said: String =
        String::from_utf8_lossy(&output.stderr).trim().chars().take(MAX_REASON_BYTES).collect();
    Err(if said.is_empty() { output.status.to_string() } else { said })
}

/// Level 3 only: the lower ones promise nothing that needs one. The worker's group goes before its parent.
fn cgroup_for(sandbox: &Sandbox) -> Result<Option<(Cgroup, Cgroups)>, String> {
    if sandbox.level < Level::L3 {
        return Ok(None);
    }
    let cgroups = Cgroups::open().map_err(|error| error.to_string())?;
    let cgroup = cgroups.create("probe", &sandbox.limits).map_err(|error| error.to_string())?;
    Ok(Some((cgroup, cgroups)))
}
