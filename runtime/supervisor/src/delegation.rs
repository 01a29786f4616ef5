//! Gets a control group from systemd for a runtime that runs as an ordinary user.
//!
//! A user's systemd manager can delegate a part of its control groups. If there is one, the runtime re-executes itself
//! in a scope with such a part. Keeps true: this is tried once, and a manager that refuses costs nothing but the
//! attempt.
//! Sources: systemd-run(1), systemd.resource-control(5) (`Delegate=`), <https://systemd.io/CGROUP_DELEGATION/>.

use std::env;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use asp_launcher::Cgroups;
use rustix::fs::{Access, access};
use rustix::process::geteuid;

/// Set inside the scope, so that it is entered only once.
const IN_SCOPE: &str = "ASP_RUNTIME_IN_SCOPE";
const PROGRAM: &str = "systemd-run";
const ARGUMENTS: [&str; 6] = ["--user", "--scope", "-q", "-p", "Delegate=yes", "--"];
/// Time limit for the trial; a manager answers in some 50 ms.
const TRIAL_WITHIN: Duration = Duration::from_secs(5);
const TRIAL_POLL: Duration = Duration::from_millis(5);
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Re-executes this runtime in a systemd scope if that may help, and does not return then. Otherwise returns, with the
/// reason if systemd was asked and gave no scope.
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

/// Returns the path of `systemd-run`, if it is installed and the user has a manager. Only this account and root may
/// decide which program the runtime becomes, so an entry of PATH that depends on the current directory is ignored, and
/// so is a program that others can write to.
fn find(path: &std::ffi::OsStr, runtime_dir: &std::ffi::OsStr) -> Option<PathBuf> {
    let managed = Path::new(runtime_dir).join("systemd").is_dir();
    let absolute = env::split_paths(path).filter(|dir| dir.is_absolute());
    // The real path: whoever can change a symbolic link chooses its target.
    let mut programs = absolute.filter_map(|dir| dir.join(PROGRAM).canonicalize().ok());
    let found = programs.find(|program| {
        program.is_file() && is_trusted_program(program) && access(program, Access::EXEC_OK).is_ok()
    });
    found.filter(|_| managed)
}

/// Whether only this account and root decide what `program` is: they own it and its directory, nobody else may write to
/// either, and nobody else may replace a directory above.
fn is_trusted_program(program: &Path) -> bool {
    program.ancestors().enumerate().all(|(above, path)| {
        let is_ours = |metadata: Metadata| {
            let is_owned = [0, geteuid().as_raw()].contains(&metadata.uid());
            // In a sticky directory, only the owner of an entry may replace it, inode(7).
            let is_kept = above > 1 && metadata.mode() & STICKY != 0;
            is_owned && (is_kept || metadata.mode() & WRITABLE_BY_OTHERS == 0)
        };
        path.symlink_metadata().is_ok_and(is_ours)
    })
}

/// Checks that a scope can be entered. If this process were replaced first and then failed, no runtime would be left.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Creates a directory of `dir_mode` with a program of `mode`.
    fn place(root: &Path, name: &str, dir_mode: u32, mode: u32) -> PathBuf {
        let dir = root.join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(PROGRAM), "").unwrap();
        fs::set_permissions(dir.join(PROGRAM), fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(dir_mode)).unwrap();
        dir
    }

    #[test]
    fn a_program_is_taken_from_an_absolute_place_that_nobody_else_writes_to() {
        let root = tempfile::tempdir().unwrap();
        let root = &root.path().canonicalize().unwrap();
        fs::create_dir(root.join("systemd")).unwrap();
        let good = place(root, "good", 0o755, 0o755);
        let found = |dirs: &[&Path]| find(&env::join_paths(dirs).unwrap(), root.as_os_str());
        assert_eq!(found(&[&good]), Some(good.join(PROGRAM)));
        for bad in [
            place(root, "no-program", 0o755, 0o644),
            place(root, "writable", 0o755, 0o757),
            place(root, "of-a-group", 0o755, 0o775),
            place(root, "in-a-shared-directory", 0o777, 0o755),
        ] {
            assert_eq!(found(&[&bad]), None, "{}", bad.display());
            assert_eq!(found(&[&bad, &good]), Some(good.join(PROGRAM)), "the next is taken");
        }
        let shared = place(root, "shared", 0o755, 0o755);
        let inner = place(&shared, "inner", 0o755, 0o755);
        let may_write = |mode| fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        may_write(0o777);
        assert_eq!(found(&[&inner]), None, "somebody else may put a directory of theirs into its place");
        may_write(0o1777);
        assert_eq!(found(&[&inner]), Some(inner.join(PROGRAM)), "its name is its owner's");
        may_write(0o755);
        std::os::unix::fs::symlink(&inner, root.join("link")).unwrap();
        assert_eq!(found(&[&root.join("link")]), Some(inner.join(PROGRAM)), "it runs from where it lies");
        if geteuid().is_root() {
            std::os::unix::fs::chown(&shared, Some(12_345), None).unwrap();
            assert_eq!(found(&[&inner]), None, "somebody else owns what it lies in");
        }
        // The current directory of a test is that of its package.
        place(root, "relative", 0o755, 0o755);
        let steps = env::current_dir().unwrap().components().count() - 1;
        let to_root = Path::new(&"../".repeat(steps)).join(root.strip_prefix("/").unwrap());
        assert!(to_root.join("relative").join(PROGRAM).is_file());
        assert_eq!(found(&[&to_root.join("relative")]), None);
        assert_eq!(find(good.as_os_str(), good.as_os_str()), None, "no manager");
    }
}
