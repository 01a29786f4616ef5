//! A control group of its own for a runtime of an ordinary account, from systemd.
//!
//! A user's manager may hand down a part of its control groups. Where there is one, the runtime goes on as the same
//! process in a scope that was given such a part. Keeps true: it is tried once, and a manager that does not give it
//! costs nothing but the trial.
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

/// Set in a scope, so that it is not entered again.
const IN_SCOPE: &str = "ASP_RUNTIME_IN_SCOPE";
const PROGRAM: &str = "systemd-run";
const ARGUMENTS: [&str; 6] = ["--user", "--scope", "-q", "-p", "Delegate=yes", "--"];
/// A manager answers in some 50 ms.
const TRIAL_WITHIN: Duration = Duration::from_secs(5);
const TRIAL_POLL: Duration = Duration::from_millis(5);
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

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

/// `systemd-run`, where it is there and a user's manager too. What this process becomes is nobody's to choose but its
/// own account's and root's: an entry that depends on the current directory is none, and so is one that others write to.
fn find(path: &std::ffi::OsStr, runtime_dir: &std::ffi::OsStr) -> Option<PathBuf> {
    let managed = Path::new(runtime_dir).join("systemd").is_dir();
    let absolute = env::split_paths(path).filter(|dir| dir.is_absolute());
    // Where it really lies: of a link, whoever may change it chooses what it leads to.
    let mut programs = absolute.filter_map(|dir| dir.join(PROGRAM).canonicalize().ok());
    let found = programs.find(|program| {
        program.is_file() && nobody_else_chooses(program) && access(program, Access::EXEC_OK).is_ok()
    });
    found.filter(|_| managed)
}

/// Whether only this account and root decide what `program` is: it and its directory are theirs and nobody else may
/// write to them, and nobody else may put another directory into the place of one above.
fn nobody_else_chooses(program: &Path) -> bool {
    program.ancestors().enumerate().all(|(above, path)| {
        let is_ours = |metadata: Metadata| {
            let is_owned = [0, geteuid().as_raw()].contains(&metadata.uid());
            // In a sticky directory only the owner of a name replaces what it names, inode(7).
            let is_kept = above > 1 && metadata.mode() & STICKY != 0;
            is_owned && (is_kept || metadata.mode() & WRITABLE_BY_OTHERS == 0)
        };
        path.symlink_metadata().is_ok_and(is_ours)
    })
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory of `mode` with a program of `mode`.
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
        // A test has the directory of its package.
        place(root, "relative", 0o755, 0o755);
        let steps = env::current_dir().unwrap().components().count() - 1;
        let to_root = Path::new(&"../".repeat(steps)).join(root.strip_prefix("/").unwrap());
        assert!(to_root.join("relative").join(PROGRAM).is_file());
        assert_eq!(found(&[&to_root.join("relative")]), None);
        assert_eq!(find(good.as_os_str(), good.as_os_str()), None, "no manager");
    }
}
