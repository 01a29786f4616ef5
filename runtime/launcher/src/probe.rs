//! The sandbox levels that a machine supports: every level is tried in a child, which checks the sandbox from inside.
//!
//! Confinement and bounds are separate: a machine without usable control groups still has level 3. Keeps true: each
//! reason names the step that failed, the path, and the machine's setting that forbids it, if any.

mod hindrance;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{self, Child, Stdio};
use std::{fs, io};

use rustix::process::geteuid;

use crate::cgroup::{Activity, Cgroup, Cgroups};
use crate::command::launch;
use crate::report::SetupFault;
use crate::sandbox::{Bounds, Level, Limits, Sandbox, own_group};

/// `nobody` on common systems; any user that owns nothing would do.
const PROBE_UID: u32 = 65534;
/// Maximum number of characters kept of a child's error.
const MAX_REASON_BYTES: usize = 500;
/// File next to the attempt's directories that no description lists.
const HIDDEN: &str = "hidden";

/// Support for confinement and bounds on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Highest level that works; absent if workers cannot run here.
    pub level: Option<Level>,
    /// Whether each worker has a user of its own. Without root they all have the supervisor's, whatever id they see.
    pub own_user: bool,
    /// Whether workers keep the supervisor's user ([`Sandbox::keeps_user`]), because user namespaces are not available.
    pub keeps_user: bool,
    /// Every level that was tried and does not work, highest first, with the reason.
    pub missing: Vec<(Level, String)>,
    pub bounds: Bounds,
    /// Whether the processes of a worker are visible in /proc, which sampled bounds require.
    pub sees_workers: bool,
    /// Reason why control groups are not available; `None` if they are.
    pub no_cgroup: Option<String>,
}

/// One sandbox to try.
struct Attempt<'p> {
    worker_init: &'p Path,
    scratch: &'p Path,
    level: Level,
    keeps_user: bool,
}

/// Builds a sandbox of each level, from the highest, until one holds. `scratch` is an existing directory for the
/// attempt's own directories; blocks for some milliseconds per level.
#[must_use]
pub fn probe(worker_init: &Path, scratch: &Path) -> Probe {
    let own_user = geteuid().is_root();
    let mut missing = Vec::new();
    for level in [Level::L3, Level::L2, Level::L1] {
        // Root needs no user namespace for a worker's user; level 3 consists of namespaces.
        let ways: &[bool] = if own_user || level == Level::L3 { &[false] } else { &[false, true] };
        for keeps_user in ways.iter().copied() {
            let attempt = Attempt { worker_init, scratch, level, keeps_user };
            match attempt.make(None) {
                Ok(sees_workers) => {
                    let level = Some(level);
                    let no_cgroup = in_a_group(&attempt).err();
                    let bounds = if no_cgroup.is_none() { Bounds::Cgroup } else { Bounds::Sampled };
                    return Probe { level, own_user, keeps_user, missing, bounds, sees_workers, no_cgroup };
                }
                Err(reason) => missing.push((level, reason)),
            }
        }
        // Of several reasons the first one says most.
        missing.dedup_by_key(|(level, _)| *level);
    }
    let no_cgroup = Some("no sandbox works that could be in one".to_owned());
    let bounds = Bounds::Sampled;
    Probe { level: None, own_user, keeps_user: false, missing, bounds, sees_workers: false, no_cgroup }
}

/// Tries the same in a control group.
fn in_a_group(attempt: &Attempt<'_>) -> Result<(), String> {
    // The worker's group must be removed before its parent.
    let cgroups = Cgroups::open().map_err(|error| error.to_string())?;
    let cgroup = cgroups.create("probe", &LIMITS).map_err(|error| error.to_string())?;
    attempt.make(Some(&cgroup)).map(drop)
}

const LIMITS: Limits = Limits {
    memory_bytes: 64 << 20,
    cpu_millis: 1000,
    pids: 8,
    files: 64,
    disk_bytes: 1 << 20,
    file_bytes: 1 << 20,
    cpu_seconds: None,
};

impl Attempt<'_> {
    /// Runs the attempt; returns whether its processes were visible from here.
    fn make(&self, cgroup: Option<&Cgroup>) -> Result<bool, String> {
        let find = |what: &str, path: &Path| {
            fs::canonicalize(path).map_err(|error| format!("find {what} {}: {error}", path.display()))
        };
        let worker_init = find("worker-init", self.worker_init)?;
        let home = find("the scratch directory", self.scratch)?.join(format!(
            "probe-{}-{}",
            process::id(),
            self.level.number()
        ));
        let sandbox = self.describe(&worker_init, &home, cgroup);
        let made = make_dirs(&home, &sandbox).map_err(|error| format!("make {}: {error}", home.display()));
        let tried = made.and_then(|()| run(&worker_init, &sandbox, cgroup));
        // Only empty directories and a file are left, and the next probe of this process reuses them.
        let _ = fs::remove_dir_all(&home);
        tried
    }

    fn describe(&self, worker_init: &Path, home: &Path, cgroup: Option<&Cgroup>) -> Sandbox {
        let mut argv = vec![
            worker_init.display().to_string(),
            format!("--check={}", self.level.number()),
            format!("--hidden={}", home.join(HIDDEN).display()),
        ];
        argv.extend(self.keeps_user.then(|| "--keeps-user".to_owned()));
        let root = geteuid().is_root();
        Sandbox {
            level: self.level,
            bounds: if cgroup.is_some() { Bounds::Cgroup } else { Bounds::Sampled },
            keeps_user: self.keeps_user,
            argv,
            env: BTreeMap::new(),
            work_dir: home.join("work"),
            run_dir: home.join("run"),
            read_only: vec![worker_init.to_path_buf()],
            uid: if root { PROBE_UID } else { geteuid().as_raw() },
            gid: if root { PROBE_UID } else { own_group(self.keeps_user) },
            limits: LIMITS,
            egress: None,
            hostname: "probe".to_owned(),
        }
    }
}

/// Creates the directories like the supervisor does for a worker: everybody may pass, and each directory belongs to the
/// worker alone.
fn make_dirs(home: &Path, sandbox: &Sandbox) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).create(home)?;
    // Not subject to the umask.
    fs::set_permissions(home, fs::Permissions::from_mode(0o711))?;
    let hidden = home.join(HIDDEN);
    fs::write(&hidden, "")?;
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o644))?;
    for dir in [&sandbox.work_dir, &sandbox.run_dir] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        // Without the right to change it, the worker runs under our own user, and the owner is correct.
        if geteuid().is_root() {
            chown(dir, Some(sandbox.uid), Some(sandbox.gid))?;
        }
    }
    Ok(())
}

fn run(worker_init: &Path, sandbox: &Sandbox, cgroup: Option<&Cgroup>) -> Result<bool, String> {
    let mut launch = launch(worker_init, sandbox, cgroup).map_err(|error| error.to_string())?;
    let streams = launch.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = streams.spawn().and_then(|mut child| {
        let seen = is_visible(&mut child)?;
        Ok((child.wait_with_output()?, seen))
    });
    let (output, seen) = started.map_err(|error| format!("start {}: {error}", worker_init.display()))?;
    if output.status.success() {
        return Ok(seen);
    }
    if let Some(SetupFault { step, error, .. }) = launch.report.fault() {
        let hindrance = hindrance::of(&step).map(|setting| format!(" ({setting})"));
        return Err(format!("{step}: {error}{}", hindrance.unwrap_or_default()));
    }
    // The check failed, not the construction.
    let said: String =
        String::from_utf8_lossy(&output.stderr).trim().chars().take(MAX_REASON_BYTES).collect();
    let told =
        serde_json::from_str::<SetupFault>(&said).map(|fault| format!("{}: {}", fault.step, fault.error));
    Err(told.unwrap_or_else(|_| if said.is_empty() { output.status.to_string() } else { said }))
}

/// Whether `child` and its descendants are visible, once everything is built: before that, its user may inspect it,
/// which is the criterion of `hidepid` of /proc (proc(5)).
fn is_visible(child: &mut Child) -> io::Result<bool> {
    let mut built = [0];
    let said = child.stdout.as_mut().map(|stdout| stdout.read(&mut built)).transpose()?;
    Ok(said == Some(1) && Activity::below(child.id()).processes > 1)
}
