//! The machine's settings that forbid parts of a sandbox.
//!
//! Sources: user_namespaces(7), namespaces(7), Linux Documentation/admin-guide/sysctl/user.rst; AppArmor's
//! `apparmor_restrict_unprivileged_userns` of Ubuntu 23.10 and later; Debian's `kernel.unprivileged_userns_clone`.

use std::fs;
use std::path::Path;

/// Steps that need a user namespace, or a privilege within one.
const STEPS: [&str; 5] = ["user namespace", "namespaces", "hostname", "mounts", "pivot_root"];
/// Settings under /proc/sys: the name, the value that forbids, and the remedy.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,` for worker-init",
    ),
];

/// Returns the setting that made `step` fail, with its remedy; `None` if none is known.
pub(super) fn of(step: &str) -> Option<String> {
    let root = rustix::process::geteuid().is_root();
    STEPS.contains(&step).then(|| find(Path::new("/proc"), root)).flatten()
}

/// Searches the settings, which apply to users other than root only, and the seccomp filter.
fn find(proc: &Path, root: bool) -> Option<String> {
    let read = |path: &str| fs::read_to_string(proc.join(path)).unwrap_or_default();
    for (setting, forbids, remedy) in SETTINGS {
        if !root && read(&format!("sys/{setting}")).trim() == forbids {
            let name = setting.replace('/', ".");
            return Some(format!(
                "{name} is {forbids} and forbids it; an administrator allows it by {remedy}"
            ));
        }
    }
    let filtered = read("self/status").lines().any(|line| line == "Seccomp:\t2");
    filtered.then(|| {
        "a seccomp filter restricts this process, as container engines install one: use a profile that allows \
         unshare, clone, mount, mount_setattr, umount2, pivot_root and sethostname, and an unmasked /proc"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_named_with_its_way_out() {
        for (setting, value, named) in [
            ("user/max_user_namespaces", "0\n", "user.max_user_namespaces is 0"),
            ("kernel/unprivileged_userns_clone", "0\n", "sysctl kernel.unprivileged_userns_clone=1"),
            ("kernel/apparmor_restrict_unprivileged_userns", "1\n", "AppArmor profile"),
        ] {
            let proc = tempfile::tempdir().unwrap();
            let file = proc.path().join("sys").join(setting);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, value).unwrap();
            assert!(find(proc.path(), false).unwrap().contains(named), "{setting}");
            fs::write(&file, "5\n").unwrap();
            assert_eq!(find(proc.path(), false), None, "{setting} allows it");
        }
    }

    #[test]
    fn a_filter_of_the_container_is_named_and_other_steps_have_other_reasons() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("self")).unwrap();
        fs::write(proc.path().join("self/status"), "NoNewPrivs:\t1\nSeccomp:\t2\n").unwrap();
        assert!(find(proc.path(), true).unwrap().contains("seccomp filter"));
        assert_eq!(of("exec"), None);
    }
}
