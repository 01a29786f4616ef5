//! The description of one worker's sandbox, and the rules that a description must obey.
//!
//! Owns the types that are passed as JSON from the supervisor to `worker-init`. Refuses values that could widen a
//! sandbox: relative paths, `..`, the root directory, the superuser, absent bounds. Both sides call [`Sandbox::check`].

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Component, Path, PathBuf};

use rustix::process::{getegid, geteuid};
use serde::{Deserialize, Serialize};

const MAX_ARGUMENTS: usize = 256;
const MAX_VARIABLES: usize = 128;
const MAX_READ_ONLY: usize = 64;
/// Maximum length of one text: Linux's own bound on an argument is 128 KiB; the whole description has half of that.
const MAX_TEXT_BYTES: usize = 32 * 1024;
/// Maximum length of a path: `PATH_MAX`.
const MAX_PATH_BYTES: usize = 4096;
/// Maximum length of a host name: Linux's `__NEW_UTS_LEN`.
const MAX_HOSTNAME_BYTES: usize = 64;
/// Maximum length of a socket path: `sun_path` has 108 bytes with its final NUL.
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// Maximum number of TCP destinations, each with a listener.
pub const MAX_TCP: usize = 16;
/// Maximum length of a name in DNS.
const MAX_HOST_BYTES: usize = 253;
/// Directories that a description must not give to a worker or hide: the sandbox creates them itself.
const SYSTEM_DIRS: [&str; 10] =
    ["/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/tmp", "/usr"];

/// Strength of the separation between a worker and the machine. A higher level includes the lower ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Resource limits, no privileges, and a user id of its own if the supervisor is root.
    L1,
    /// Landlock and seccomp in addition: no network, no files except its own.
    L2,
    /// Namespaces in addition, and a private file system.
    L3,
}

/// Mechanism that enforces a worker's [`Limits`], whatever its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bounds {
    /// Control group: the kernel counts the usage of all processes together.
    Cgroup,
    /// Resource limits on each process; memory that no limit counts (shared anonymous memory) is refused. The
    /// supervisor samples the usage of all processes together, which is no defence against a worker that is faster than
    /// the samples.
    Sampled,
}

impl Bounds {
    /// Returns the name in the settings and in the supervisor's API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Bounds::Cgroup => "cgroup",
            Bounds::Sampled => "sampled",
        }
    }
}

impl Level {
    /// Returns the number used in manifests and in the supervisor's API: 1, 2 or 3.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Level::L1 => 1,
            Level::L2 => 2,
            Level::L3 => 3,
        }
    }
}

/// Input of `worker-init` for building the sandbox and starting the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sandbox {
    pub level: Level,
    pub bounds: Bounds,
    /// Whether the worker keeps the supervisor's user, with its ids in `uid` and `gid`: for a supervisor that is not
    /// root, on a machine without user namespaces. Below level 3 only.
    pub keeps_user: bool,
    /// Command of the worker; its first element is an absolute path, seen from inside the sandbox.
    pub argv: Vec<String>,
    /// Complete environment of the worker.
    pub env: BTreeMap<String, String>,
    /// Current directory and only place for files, owned by the worker. At level 3 it is an empty file system in memory
    /// of `limits.disk_bytes`, mounted over this existing directory, whose contents stay untouched and hidden. Below
    /// level 3 it is the directory itself.
    pub work_dir: PathBuf,
    /// Existing directory, owned by the worker, for its socket. From level 2 on it can create sockets there and nothing
    /// else. At level 3 it is a file system of its own with room for a few, which the supervisor reaches only by
    /// [`crate::Report::run_dir`]; below level 3 their number is not bounded.
    pub run_dir: PathBuf,
    /// Paths that the worker may read and execute besides the system's own directories: interpreter, shim, plugin. They
    /// are the same inside and outside.
    pub read_only: Vec<PathBuf>,
    /// User and group of the worker; not 0, except for a group that is kept ([`own_group`]).
    pub uid: u32,
    pub gid: u32,
    pub limits: Limits,
    /// Egress to the network, which needs level 3; without it the worker has no network at all.
    pub egress: Option<Egress>,
    pub hostname: String,
}

/// Bounds of one worker. [`Bounds`] says how they are enforced; below level 3 the disk is not bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Resident memory of all its processes together, including its files in `work_dir`.
    pub memory_bytes: u64,
    /// Thousandths of a processor.
    pub cpu_millis: u32,
    /// Processes and threads.
    pub pids: u32,
    /// Open files of one process.
    pub files: u64,
    /// Size of `work_dir`.
    pub disk_bytes: u64,
    /// Size of one file.
    pub file_bytes: u64,
    /// Processor time of one process in seconds; for workers that serve one call.
    pub cpu_seconds: Option<u64>,
}

/// Only connection of a worker to the outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Egress {
    /// Socket of the supervisor's proxy, outside the sandbox; the worker's user must be allowed to connect.
    pub proxy_socket: PathBuf,
    /// Port on 127.0.0.1 inside the sandbox whose connections reach the proxy.
    pub port: u16,
    /// Destinations that are reached without HTTP.
    #[serde(default)]
    pub tcp: Vec<TcpEgress>,
}

/// A destination that a worker reaches under its own name and port, by a listener on the loopback inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TcpEgress {
    /// Socket of the supervisor's proxy for this destination alone, outside the sandbox; the worker's user must be allowed to
    /// connect.
    pub socket: PathBuf,
    /// Name that resolves to `address` inside the sandbox.
    pub host: String,
    pub address: Ipv4Addr,
    pub port: u16,
}

/// Reason for refusing a description.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    #[error("{field} is not a plain absolute path outside of the system's own directories: {path:?}")]
    Path { field: &'static str, path: PathBuf },
    #[error("{field} and {other} overlap: {path:?}")]
    Overlap { field: &'static str, other: &'static str, path: PathBuf },
    #[error("{field} has {count} entries, 1 to {most} are allowed")]
    Count { field: &'static str, count: usize, most: usize },
    #[error("{field} contains text that is empty, too long, or has a NUL byte")]
    Text { field: &'static str },
    #[error("{field} is {value}, out of its range")]
    Range { field: &'static str, value: u64 },
    #[error("egress needs level 3")]
    EgressLevel,
    #[error("level 3 needs a user namespace")]
    KeptUser,
}

impl Sandbox {
    /// Refuses an invalid description.
    pub fn check(&self) -> Result<(), SandboxError> {
        self.check_command()?;
        self.check_paths()?;
        self.check_limits()?;
        self.check_identity()?;
        if self.keeps_user && self.level == Level::L3 {
            return Err(SandboxError::KeptUser);
        }
        let Some(egress) = &self.egress else { return Ok(()) };
        if self.level < Level::L3 {
            return Err(SandboxError::EgressLevel);
        }
        check_socket("proxySocket", &egress.proxy_socket)?;
        check_range("port", u64::from(egress.port), 1024, u64::from(u16::MAX))?;
        check_count("tcp", egress.tcp.len().max(1), MAX_TCP)?;
        egress.tcp.iter().try_for_each(TcpEgress::check)
    }

    fn check_command(&self) -> Result<(), SandboxError> {
        check_count("argv", self.argv.len(), MAX_ARGUMENTS)?;
        let program = self.argv.first().map(PathBuf::from).unwrap_or_default();
        check_path("argv", &program)?;
        if self.argv.iter().any(|text| !is_text(text)) {
            return Err(SandboxError::Text { field: "argv" });
        }
        check_count("env", self.env.len().max(1), MAX_VARIABLES)?;
        let named =
            |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if self.env.iter().any(|(name, value)| !named(name) || !is_text(value)) {
            return Err(SandboxError::Text { field: "env" });
        }
        Ok(())
    }

    fn check_paths(&self) -> Result<(), SandboxError> {
        check_writable("workDir", &self.work_dir)?;
        check_writable("runDir", &self.run_dir)?;
        if nested(&self.work_dir, &self.run_dir) {
            let path = self.run_dir.clone();
            return Err(SandboxError::Overlap { field: "runDir", other: "workDir", path });
        }
        check_count("readOnly", self.read_only.len().max(1), MAX_READ_ONLY)?;
        for path in &self.read_only {
            check_path("readOnly", path)?;
            // A read-only path above or below a writable one would hide it or make it writable.
            for (other, dir) in [("workDir", &self.work_dir), ("runDir", &self.run_dir)] {
                if nested(path, dir) {
                    return Err(SandboxError::Overlap { field: "readOnly", other, path: path.clone() });
                }
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), SandboxError> {
        let limits = &self.limits;
        // The lower bounds are the minimum for an interpreter to start, the upper ones those of the kernel.
        check_range("memoryBytes", limits.memory_bytes, 1 << 20, 1 << 50)?;
        check_range("cpuMillis", u64::from(limits.cpu_millis), 10, 1_000_000)?;
        check_range("pids", u64::from(limits.pids), 1, 1 << 22)?;
        check_range("files", limits.files, 8, 1 << 20)?;
        check_range("diskBytes", limits.disk_bytes, 4096, 1 << 50)?;
        check_range("fileBytes", limits.file_bytes, 0, 1 << 50)?;
        check_range("cpuSeconds", limits.cpu_seconds.unwrap_or(1), 1, 1 << 32)
    }

    fn check_identity(&self) -> Result<(), SandboxError> {
        // The last value is the kernel's "no id".
        check_range("uid", u64::from(self.uid), 1, u64::from(u32::MAX) - 1)?;
        let kept = self.keeps_user && !geteuid().is_root();
        check_range("gid", u64::from(self.gid), u64::from(!kept), u64::from(u32::MAX) - 1)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
        let length = self.hostname.len();
        if length == 0 || length > MAX_HOSTNAME_BYTES || !self.hostname.bytes().all(plain) {
            return Err(SandboxError::Text { field: "hostname" });
        }
        Ok(())
    }
}

/// Returns the worker's group id under a supervisor that is not root. An ordinary account may have the superuser's
/// group: in a namespace it gets another id, and without a namespace it stays.
#[must_use]
pub fn own_group(keeps_user: bool) -> u32 {
    match getegid().as_raw() {
        0 if !keeps_user => geteuid().as_raw(),
        group => group,
    }
}

fn check_writable(field: &'static str, path: &Path) -> Result<(), SandboxError> {
    check_path(field, path)?;
    let within = |dir: &str| path == Path::new(dir) || (dir != "/tmp" && path.starts_with(dir));
    if SYSTEM_DIRS.into_iter().any(within) {
        return Err(SandboxError::Path { field, path: path.to_path_buf() });
    }
    Ok(())
}

/// Requires an absolute path without `.` and `..`, other than the root, without trailing or doubled slashes.
fn check_path(field: &'static str, path: &Path) -> Result<(), SandboxError> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let mut parts = path.components();
    let rooted = parts.next() == Some(Component::RootDir);
    let named = path.components().count() > 1 && parts.all(|part| matches!(part, Component::Normal(_)));
    // `components` ignores doubled slashes and inner dots; reassembling the path reveals them.
    let same = path.components().collect::<PathBuf>().as_os_str().as_encoded_bytes() == bytes;
    if !rooted || !named || !same || bytes.contains(&0) || bytes.len() > MAX_PATH_BYTES {
        return Err(SandboxError::Path { field, path: path.to_path_buf() });
    }
    Ok(())
}

impl TcpEgress {
    fn check(&self) -> Result<(), SandboxError> {
        check_socket("tcp", &self.socket)?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        // It becomes a line of a file.
        if !(1..=MAX_HOST_BYTES).contains(&self.host.len())
            || !self.host.bytes().all(plain)
            || !self.address.is_loopback()
        {
            return Err(SandboxError::Text { field: "tcp" });
        }
        check_range("tcp", u64::from(self.port), 1, u64::from(u16::MAX))
    }
}

fn check_socket(field: &'static str, path: &Path) -> Result<(), SandboxError> {
    check_path(field, path)?;
    if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES { Err(SandboxError::Text { field }) } else { Ok(()) }
}

fn check_count(field: &'static str, count: usize, most: usize) -> Result<(), SandboxError> {
    if count == 0 || count > most { Err(SandboxError::Count { field, count, most }) } else { Ok(()) }
}

fn check_range(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), SandboxError> {
    if value < least || value > most { Err(SandboxError::Range { field, value }) } else { Ok(()) }
}

fn is_text(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES && !text.contains('\0')
}

fn nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
