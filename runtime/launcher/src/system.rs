//! The part of the machine's own files that a worker can see: programs, libraries, and the few settings they need.
//!
//! Owns the list, for the mounts of level 3 and the Landlock rules of levels 2 and 3. Nothing here reveals users,
//! services or secrets of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use asp_launcher::{Bounds, Sandbox};

/// Directories to read and execute from. Symbolic links on merged systems (`/lib -> usr/lib`).
pub(crate) const PROGRAMS: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];

/// Device files without which interpreters do not start, or lack random numbers.
pub(crate) const DEVICES: [&str; 4] = ["null", "full", "random", "urandom"];

/// Device that is withheld with sampled bounds: a shared mapping of it is memory that no resource limit counts
/// (mmap_zero in drivers/char/mem.c).
pub(crate) const ZERO: &str = "zero";

/// Returns the devices that a sandbox shows.
pub(crate) fn devices(sandbox: &Sandbox) -> impl Iterator<Item = &'static str> {
    let zero = (sandbox.bounds == Bounds::Cgroup).then_some(ZERO);
    DEVICES.into_iter().chain(zero)
}

/// Settings: the dynamic linker's cache, certificates, OpenSSL (which Node needs to start), the links of Debian's
/// alternatives, the time zone. Those of Debian first, then those of Red Hat.
const SETTINGS: [&str; 10] = [
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/crypto-policies",
];

/// Prefix of Java's settings: Debian keeps its `conf` and `lib/security` in `/etc/java-<version>-openjdk`, and Java
/// fails without them.
const JAVA_SETTINGS: &str = "java-";

/// Whether a sandbox may show `path` as a setting; inside a sandbox, `/etc` cannot be listed.
pub(crate) fn is_shown_setting(path: &Path) -> bool {
    let of_java = |below: &Path| below.as_os_str().as_encoded_bytes().starts_with(JAVA_SETTINGS.as_bytes());
    SETTINGS.iter().any(|setting| path.starts_with(setting)) || path.strip_prefix("/etc").is_ok_and(of_java)
}

/// Returns the settings that exist on this machine.
pub(crate) fn settings() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = SETTINGS.iter().map(PathBuf::from).collect();
    for entry in fs::read_dir("/etc").into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(JAVA_SETTINGS.as_bytes()) {
            found.push(entry.path());
        }
    }
    found.retain(|path| path.symlink_metadata().is_ok());
    found
}

/// Returns the files of `/etc` that are written for the worker: it is the only user, and knows no host but itself and its TCP
/// destinations.
pub(crate) fn written_settings(sandbox: &Sandbox) -> [(&'static str, String); 5] {
    let Sandbox { uid, gid, hostname, work_dir, .. } = sandbox;
    let home = work_dir.display();
    [
        (
            "/etc/passwd",
            format!("root:x:0:0:root:/:/bin/false\nworker:x:{uid}:{gid}:worker:{home}:/bin/false\n"),
        ),
        ("/etc/group", format!("root:x:0:\nworker:x:{gid}:\n")),
        ("/etc/hosts", hosts(sandbox)),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
        ("/etc/hostname", format!("{hostname}\n")),
    ]
}

fn hosts(sandbox: &Sandbox) -> String {
    let mut text = format!("127.0.0.1 localhost {}\n::1 localhost\n", sandbox.hostname);
    for to in sandbox.egress.iter().flat_map(|egress| &egress.tcp) {
        let line = format!("{} {}\n", to.address, to.host);
        // A host may have several ports.
        if to.host != "localhost" && !text.contains(&line) {
            text.push_str(&line);
        }
    }
    text
}

/// Whether a worker has a directory of its own below `dir`.
pub(crate) fn uses(sandbox: &Sandbox, dir: &Path) -> bool {
    let own = [&sandbox.work_dir, &sandbox.run_dir];
    own.into_iter().chain(&sandbox.read_only).any(|path| path.starts_with(dir))
}
