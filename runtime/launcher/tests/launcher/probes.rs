//! The probe of a machine's support, from any location and for any user (`examples/probe.rs` runs it).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use asp_launcher::{Bounds, Level, probe};
use tempfile::TempDir;

use crate::harness;

/// An account without access to anything but its home.
const USER: u32 = 12_345;

/// Continues as the program of its arguments, in a user namespace in which no other may be created.
const WITHOUT_NAMESPACES: &str = "import ctypes, os, sys\n\
    user = os.geteuid()\n\
    group = os.getegid()\n\
    assert ctypes.CDLL(None).unshare(0x10000000) == 0\n\
    for file, text in (('setgroups', 'deny'), ('uid_map', f'{user} {user} 1'), ('gid_map', f'{group} {group} 1')):\n    \
        open(f'/proc/self/{file}', 'w').write(text)\n\
    open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n\
    os.execv(sys.argv[1], sys.argv[1:])\n";

#[test]
fn this_machine_gives_every_level() {
    let scratch = harness::scratch();
    let probe = probe(harness::worker_init(), scratch.path());
    assert_eq!(probe.level, Some(Level::L3), "{:?}", probe.missing);
    assert_eq!((probe.bounds, probe.no_cgroup), (Bounds::Cgroup, None));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "the probe leaves nothing behind");
}

/// Copies the programs to `directory` below a new one in `base`, which only `owner` may enter.
fn installed(base: &str, directory: &str, owner: u32) -> TempDir {
    let dir = TempDir::new_in(base).unwrap();
    let home = dir.path().join(directory);
    fs::create_dir_all(home.join("state")).unwrap();
    let worker_init = harness::worker_init();
    let probe = worker_init.parent().unwrap().join("examples/probe");
    // A child of another test would hold the file open for writing, which would prevent its execution.
    let copied = Command::new("cp").args([worker_init, &probe, &home]).status();
    assert!(copied.unwrap().success());
    let chown = Command::new("chown").args(["-R", &format!("{owner}:{owner}")]).arg(dir.path()).status();
    assert!(chown.unwrap().success());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

/// Returns the result of the probe in `home` for `user`, started by the words of `wrapper`.
fn found(home: &Path, user: u32, wrapper: &[&str]) -> String {
    found_in_group(home, user, user, wrapper)
}

fn found_in_group(home: &Path, user: u32, group: u32, wrapper: &[&str]) -> String {
    let ended = Command::new("setpriv")
        .args(["--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups"])
        .args(wrapper)
        .arg(home.join("probe"))
        .args([home.join("worker-init"), home.join("state")])
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    harness::stdout(&ended)
}

#[test]
fn level_3_depends_neither_on_where_the_checkout_lies_nor_on_who_may_enter() {
    assert!(harness::is_root(), "only root can be another user");
    let open = std::env::temp_dir();
    let open = open.to_str().unwrap();
    for (base, directory, user) in [
        (open, "home", USER),
        (open, "sys/root/proc/with a blank", USER),
        ("/root", "checkout", 0),
        ("/home", "checkout", 0),
        ("/", "sys/checkout", 0),
    ] {
        let dir = installed(base, directory, user);
        let found = found(&dir.path().join(directory), user, &[]);
        assert!(found.contains("level: Some(L3)"), "{base} {directory} {user}: {found}");
        let bounds = if user == 0 { "bounds: Cgroup" } else { "bounds: Sampled" };
        assert!(found.contains(bounds), "{base} {directory} {user}: {found}");
        assert_eq!(user == 0, found.contains("no_cgroup: None"), "{found}");
        assert!(found.contains("sees_workers: true"), "{found}");
    }
}

/// Simulates some machines with many users (proc(5)).
#[test]
fn who_cannot_see_his_workers_is_told_so() {
    assert!(harness::is_root(), "only root can mount /proc");
    let dir = installed(std::env::temp_dir().to_str().unwrap(), "home", USER);
    let home = dir.path().join("home");
    let mount = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
    let user = USER.to_string();
    let ended = Command::new("unshare")
        .args(["--mount", "sh", "-c", mount, "sh", "setpriv", "--reuid", &user, "--regid", &user])
        .arg("--clear-groups")
        .args([home.join("probe"), home.join("worker-init"), home.join("state")])
        .output()
        .unwrap();
    assert!(harness::stdout(&ended).contains("sees_workers: false"), "{ended:?}");
}

/// Simulates the accounts of some container images.
#[test]
fn an_ordinary_account_in_the_superusers_group_has_every_level_too() {
    assert!(harness::is_root(), "only root can be another user");
    let dir = installed(std::env::temp_dir().to_str().unwrap(), "home", USER);
    let home = dir.path().join("home");
    assert!(found_in_group(&home, USER, 0, &[]).contains("level: Some(L3)"));
    let wrapper = ["/usr/bin/python3", "-I", "-c", WITHOUT_NAMESPACES];
    let found = found_in_group(&home, USER, 0, &wrapper);
    assert!(found.contains("level: Some(L2)") && found.contains("keeps_user: true"), "{found}");
}

/// Simulates a process started by a container engine.
#[test]
fn root_that_may_not_make_namespaces_still_gives_each_worker_a_user_at_level_2() {
    assert!(harness::is_root(), "only root can be root");
    let dir = installed(std::env::temp_dir().to_str().unwrap(), "home", 0);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let found = found(&dir.path().join("home"), 0, &["setpriv", "--bounding-set", "-sys_admin"]);
    assert!(found.contains("level: Some(L2), own_user: true, keeps_user: false"), "{found}");
    assert!(found.contains("(L3, \"namespaces: EPERM"), "{found}");
}

#[test]
fn without_user_namespaces_level_2_is_left_and_the_setting_is_named() {
    assert!(harness::is_root(), "only root can be another user");
    let dir = installed(std::env::temp_dir().to_str().unwrap(), "home", USER);
    let wrapper = ["/usr/bin/python3", "-I", "-c", WITHOUT_NAMESPACES];
    let found = found(&dir.path().join("home"), USER, &wrapper);
    for part in
        ["level: Some(L2)", "keeps_user: true", "user.max_user_namespaces is 0", "sysctl user.max_user"]
    {
        assert!(found.contains(part), "{part}: {found}");
    }
}
