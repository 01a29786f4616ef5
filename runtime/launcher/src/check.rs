//! `worker-init --check=<level>`: run as a worker, says whether the sandbox around it is what its level promises.
//!
//! The probe of levels runs it: that a sandbox was built without an error is not yet that it holds.

use std::fs;
use std::io::ErrorKind;
use std::process::ExitCode;

use nix::unistd::{getppid, getuid};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::failure::Failure;

/// Exit code 0 when everything holds; else the first thing that does not, on standard error.
pub(crate) fn run(level: u32) -> ExitCode {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let empty = |name: &str| field(name).is_some_and(|mask| mask.bytes().all(|digit| digit == b'0'));
    let mut promises = vec![
        ("no superuser", !getuid().is_root()),
        ("no_new_privs", field("NoNewPrivs:") == Some("1")),
        ("no capabilities", empty("CapEff:") && empty("CapPrm:") && empty("CapBnd:") && empty("CapAmb:")),
    ];
    if level >= 2 {
        promises.extend([
            ("seccomp", field("Seccomp:") == Some("2")),
            ("no network", socket(AddressFamily::INET, SocketType::STREAM, None).is_err()),
            ("Landlock", fs::read_dir("/").is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)),
        ]);
    }
    if level >= 3 {
        promises.extend([
            ("process namespace", getppid().as_raw() == 1),
            (
                "private file system",
                fs::symlink_metadata("/root").is_err() && fs::symlink_metadata("/sys").is_err(),
            ),
            (
                "private network",
                fs::read_to_string("/proc/self/net/dev").is_ok_and(|text| text.lines().count() <= 3),
            ),
        ]);
    }
    match promises.into_iter().find(|(_, holds)| !holds) {
        None => ExitCode::SUCCESS,
        Some((promise, _)) => Failure::new("check", format_args!("{promise} does not hold")).report(),
    }
}
