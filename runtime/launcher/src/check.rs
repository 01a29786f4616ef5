//! `worker-init --check=<level> --hidden=<file> [--keeps-user]`: run as a worker, checks whether the sandbox around it
//! is what its level promises.
//!
//! The probe of levels runs it: a sandbox that was built without an error does not necessarily hold. Keeps true:
//! whether something is private is decided by what is found, not by names. The path to a permitted file may pass
//! through directories of any name (`/root`, `/sys`), which then exist but hold nothing else.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sys::signal::kill;
use nix::unistd::{getppid, getuid};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::failure::SetupFailure;
use crate::system;

/// Exits with 0 if every check passes; otherwise prints the first failure to standard error. `hidden` is a
/// world-readable file of the machine next to this sandbox's directories, which no description lists. `keeps_user` is
/// the description's.
pub(crate) fn run(level: u32, hidden: &Path, keeps_user: bool) -> ExitCode {
    let found = privileges(keeps_user).and_then(|()| if level < 3 { check_neighbours() } else { Ok(()) });
    let found = found.and_then(|()| if level >= 2 { check_fences(hidden) } else { Ok(()) });
    match found.and_then(|()| if level >= 3 { namespaces(hidden) } else { Ok(()) }) {
        Ok(()) => wait_until_observed(),
        Err(broken) => SetupFailure::new("check", broken).report(),
    }
}

/// Writes a byte to standard output when everything is built, and stays observable until standard input ends.
fn wait_until_observed() -> ExitCode {
    // Err: nobody waits for it.
    let _ = std::io::stdout().write_all(b"!").and_then(|()| std::io::stdout().flush());
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    ExitCode::SUCCESS
}

fn privileges(keeps_user: bool) -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let empty = |name: &str| field(name).is_some_and(|mask| mask.bytes().all(|digit| digit == b'0'));
    holds(!getuid().is_root(), "it is the superuser")?;
    holds(field("NoNewPrivs:") == Some("1"), "a program could give it privileges (no_new_privs is not set)")?;
    // The bounding set limits capabilities gained from a program; it does not matter if there are none to gain.
    let none = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].into_iter().all(empty);
    holds(none, "it has capabilities")?;
    holds(keeps_user || empty("CapBnd:"), "its bounding set has capabilities")
}

/// Checks signals: below level 3 other processes are visible, among them the outermost process.
fn check_neighbours() -> Result<(), String> {
    holds(kill(getppid(), None).is_err(), "it may signal processes that are not its own")
}

fn check_fences(hidden: &Path) -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    holds(status.lines().any(|line| line == "Seccomp:\t2"), "its system calls are not filtered")?;
    let network = socket(AddressFamily::INET, SocketType::STREAM, None);
    holds(network.is_err(), "it has a network")?;
    let listed = fs::read_dir("/").is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    holds(listed, "it reads / (Landlock does not hold)")?;
    let opened = File::open(hidden).is_err();
    holds(opened, &format!("it reads {}, which is not its own", hidden.display()))
}

fn namespaces(hidden: &Path) -> Result<(), String> {
    holds(getppid().as_raw() == 1, "it is in the machine's process namespace")?;
    let devices = fs::read_to_string("/proc/self/net/dev");
    holds(devices.is_ok_and(|text| text.lines().count() <= 3), "it sees the machine's network interfaces")?;
    let there = fs::symlink_metadata(hidden);
    let absent = there.is_err_and(|error| error.kind() == ErrorKind::NotFound);
    holds(absent, &format!("the machine's {} is there", hidden.display()))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("its mounts cannot be read (/proc/self/mountinfo: {error})"))?;
    match foreign_mount(&mounts, &described(hidden)) {
        None => Ok(()),
        Some(mount) => Err(format!("{} of the machine is there", mount.display())),
    }
}

fn holds(held: bool, broken: &str) -> Result<(), String> {
    if held { Ok(()) } else { Err(broken.to_owned()) }
}

/// Returns the mounts that may exist; the sandbox's own root is an empty file system otherwise.
fn described(hidden: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = system::PROGRAMS.iter().map(PathBuf::from).collect();
    paths.extend(system::DEVICES.into_iter().chain([system::ZERO]).map(|name| Path::new("/dev").join(name)));
    paths.push("/proc".into());
    // This program, and the work and the run directory.
    paths.extend(std::env::current_exe());
    paths.extend(hidden.parent().map(Path::to_path_buf));
    paths
}

/// Returns the first mount that is neither the root in memory nor one of `described` or below it. A line of mountinfo
/// is `id parent major:minor root mountpoint options [tags] - type source superoptions` (proc_pid_mountinfo(5)).
fn foreign_mount(mountinfo: &str, described: &[PathBuf]) -> Option<PathBuf> {
    for line in mountinfo.lines() {
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
        let point = PathBuf::from(unescape(line.split(' ').nth(4).unwrap_or_default()));
        let own_root = point == Path::new("/") && kind == Some("tmpfs");
        if !own_root
            && !system::is_shown_setting(&point)
            && !described.iter().any(|path| point.starts_with(path))
        {
            return Some(point);
        }
    }
    None
}

/// Decodes a path in which the kernel wrote blanks and backslashes as `\` and three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.extend(code.map(char::from));
        path.push_str(part.get(3..).unwrap_or_default());
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "90 80 0:50 / / ro,nosuid,nodev - tmpfs tmpfs rw\n\
                       91 90 8:1 /etc/java-17-openjdk /etc/java-17-openjdk ro - ext4 /dev/sda1 rw\n\
                       91 90 8:1 /usr /usr ro - ext4 /dev/sda1 rw\n\
                       92 90 0:51 / /root/my\\040code/w/d rw - tmpfs tmpfs rw\n";

    #[test]
    fn only_what_is_described_may_be_mounted_wherever_it_lies() {
        let described = [PathBuf::from("/usr"), PathBuf::from("/root/my code/w")];
        assert_eq!(foreign_mount(OWN, &described), None);
        for (line, found) in [
            ("93 90 8:1 / / rw - ext4 /dev/sda1 rw", "/"),
            ("93 90 8:1 /root /root rw - ext4 /dev/sda1 rw", "/root"),
            ("93 90 0:20 / /sys rw - sysfs sysfs rw", "/sys"),
            ("93 90 8:1 /etc/ssh /etc/ssh rw - ext4 /dev/sda1 rw", "/etc/ssh"),
            ("93 90 8:1 /srv /usrlocal rw - ext4 /dev/sda1 rw", "/usrlocal"),
        ] {
            assert_eq!(foreign_mount(&format!("{OWN}{line}\n"), &described), Some(found.into()), "{line}");
        }
    }
}
