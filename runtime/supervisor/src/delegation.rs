//! A control group of its own for a runtime of an ordinary account, from systemd.
//!
//! A user's manager may hand down a part of its control groups. Where there is one, the runtime goes on as the same
//! process in a scope that was given such a part. Keeps true: it is tried once, and a manager that does not give it
//! costs nothing but the trial.
//! Sources: systemd-run(1), systemd.resource-control(5) (`Delegate=`), <https://systemd.io/CGROUP_DELEGATION/>.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use asp_launcher::Cgroups;

/// Set in a scope, so that it is not entered again.
const IN_SCOPE: &str = "ASP_RUNTIME_IN_SCOPE";
const PROGRAM: &str = "systemd-run";
const ARGUMENTS: [&str; 6] = ["--user", "--scope", "-q", "-p", "Delegate=yes", "--"];
/// A manager answers in some 50 ms.
const TRIAL_WITHIN: Duration = Duration::from_secs(5);
const TRIAL_POLL: Duration = Duration::from_millis(5);

/// Becomes this runtime in a scope, where that may help; it returns where it does not: with why systemd gave none,
/// where it was asked.
pub fn enter_scope() -> Option<String> {
    if env::var_os(IN_SCOPE).is_some() || Cgroups::open().is_ok() {
        return None;
    }
    let systemd_run = find(&env::var_os("PATH")?, &env::var_os("XDG_RUNTIME_DIR")?)?;
    match try_scope(&systemd_run) {
        Ok(()) => {}
        Err(error) => return Some(format!("{} {}: {error}", systemd_run.display(), ARGUMENTS.join(" "))),
    }
    let own = env::current_exe().ok()?;
    let error = Command::new(&systemd_run)
        .args(ARGUMENTS)
        .arg(own)
        .args(env::args_os().skip(1))
        .env(IN_SCOPE, "1")
        .exec();
    Some(format!("{}: {error}", systemd_run.display()))
}

/// `systemd-run`, where it is there and a user's manager too.
fn find(path: &std::ffi::OsStr, runtime_dir: &std::ffi::OsStr) -> Option<PathBuf> {
    let managed = Path::new(runtime_dir).join("systemd").is_dir();
    let found = env::split_paths(path).map(|dir| dir.join(PROGRAM)).find(|program| program.is_file());
    found.filter(|_| managed)
}

/// What replaces a process and then fails leaves nobody to go on.
fn try_scope(systemd_run: &Path) -> io::Result<()> {
    let mut trial = Command::new(systemd_run);
    trial.args(ARGUMENTS).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut trial = trial.spawn()?;
    let began = Instant::now();
    while began.elapsed() < TRIAL_WITHIN {
        if let Some(status) = trial.try_wait()? {
            return if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) };
        }
        std::thread::sleep(TRIAL_POLL);
    }
    trial.kill()?;
    trial.wait()?;
    Err(io::Error::other(format!("no answer within {} s", TRIAL_WITHIN.as_secs())))
}
