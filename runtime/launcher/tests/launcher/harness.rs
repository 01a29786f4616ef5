//! Shared helpers: directories, control groups, a description, and the run of a sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use asp_launcher::{Bounds, Cgroup, Cgroups, Launch, Level, Limits, Sandbox, launch};
use tempfile::TempDir;

/// First user id: beyond any that a machine assigns; each worker of a test run has its own.
const FIRST_UID: u32 = 0x4100_0000;
static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) fn worker_init() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_worker-init"))
}

/// Parent of the directories of a process that will be killed, so that they can be removed for it.
pub(crate) const SCRATCH_VARIABLE: &str = "ASP_TEST_SCRATCH";

/// Creates a directory that other users may pass through, like the supervisor's.
pub(crate) fn scratch() -> TempDir {
    let base = std::env::var(SCRATCH_VARIABLE).unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
    let dir = tempfile::Builder::new().prefix("launcher-").tempdir_in(base).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Sandbox with its directories and its control group. Fields drop in order: the group's processes end before the
/// directories are removed.
pub(crate) struct Cell {
    pub(crate) cgroup: Option<Cgroup>,
    _cgroups: Option<Cgroups>,
    pub(crate) sandbox: Sandbox,
    _scratch: TempDir,
}

impl Cell {
    /// Creates a cell of `level` for a program in `read_only` or the system's directories.
    pub(crate) fn new(level: Level, argv: &[&str], read_only: &[&Path]) -> Cell {
        let scratch = scratch();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let uid = FIRST_UID + std::process::id() % 0x10000 * 0x100 + number % 0x100;
        let work_dir = scratch.path().join("work");
        let run_dir = scratch.path().join("run");
        for dir in [&work_dir, &run_dir] {
            fs::create_dir(dir).unwrap();
            if is_root() {
                chown(dir, Some(uid), Some(uid)).unwrap();
            }
        }
        let limits = Limits {
            memory_bytes: 256 << 20,
            cpu_millis: 2000,
            pids: 64,
            files: 128,
            disk_bytes: 8 << 20,
            file_bytes: 64 << 20,
            cpu_seconds: None,
        };
        let sandbox = Sandbox {
            level,
            bounds: if level == Level::L3 { Bounds::Cgroup } else { Bounds::Sampled },
            keeps_user: false,
            argv: argv.iter().map(|argument| (*argument).to_owned()).collect(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            work_dir,
            run_dir,
            read_only: read_only.iter().map(|path| path.to_path_buf()).collect(),
            uid,
            gid: uid,
            limits,
            egress: None,
            hostname: "worker".to_owned(),
        };
        Cell { cgroup: None, _cgroups: None, sandbox, _scratch: scratch }
    }

    /// Creates a cell in which Python runs a script.
    pub(crate) fn python(level: Level, script: &Path, arguments: &[&str]) -> Cell {
        let python = if level == Level::L3 { python() } else { system_python() };
        let mut argv = vec![python.program.to_str().unwrap(), "-I", "-B", script.to_str().unwrap()];
        argv.extend(arguments);
        let mut read_only: Vec<&Path> = python.prefixes.iter().map(PathBuf::as_path).collect();
        read_only.push(script);
        Cell::new(level, &argv, &read_only)
    }

    /// Returns the command of the worker, with empty standard input and piped output.
    pub(crate) fn command(&mut self) -> Command {
        self.launch().command
    }

    /// Returns the same with the report of the start.
    pub(crate) fn launch(&mut self) -> Launch {
        if self.sandbox.bounds == Bounds::Cgroup && self.cgroup.is_none() {
            let cgroups = Cgroups::open().unwrap();
            self.cgroup = Some(cgroups.create("worker", &self.sandbox.limits).unwrap());
            self._cgroups = Some(cgroups);
        }
        let mut launch = launch(worker_init(), &self.sandbox, self.cgroup.as_ref()).unwrap();
        launch.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        launch
    }

    pub(crate) fn output(&mut self) -> Output {
        self.command().output().unwrap()
    }

    pub(crate) fn spawn(&mut self) -> Child {
        self.command().spawn().unwrap()
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A Python and the directories that it consists of.
pub(crate) struct Python {
    pub(crate) program: PathBuf,
    pub(crate) prefixes: Vec<PathBuf>,
}

/// `ASP_PYTHON_BIN`, or `python3`.
pub(crate) fn python() -> &'static Python {
    static PYTHON: OnceLock<Python> = OnceLock::new();
    PYTHON.get_or_init(|| {
        find_python(&std::env::var("ASP_PYTHON_BIN").unwrap_or_else(|_| "python3".to_owned()))
    })
}

/// Below level 3 the worker's user must be able to reach it through the machine's own directories.
fn system_python() -> &'static Python {
    static PYTHON: OnceLock<Python> = OnceLock::new();
    PYTHON.get_or_init(|| find_python("/usr/bin/python3"))
}

fn find_python(name: &str) -> Python {
    let ask =
        "import os,sys;print(os.path.realpath(sys.executable));print(os.path.realpath(sys.base_prefix))";
    let output = Command::new(name).args(["-I", "-c", ask]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let [program, prefix] = text.lines().collect::<Vec<_>>()[..] else { panic!("{name} does not run") };
    let prefixes = if prefix == "/usr" { Vec::new() } else { vec![PathBuf::from(prefix)] };
    Python { program: program.into(), prefixes }
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Repeats until `holds` or the time limit is over; the limit only ends a failing test.
pub(crate) fn within(bound: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < bound {
        if holds() {
            return true;
        }
        std::thread::yield_now();
    }
    holds()
}
