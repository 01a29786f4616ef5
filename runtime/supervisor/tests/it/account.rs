//! An ordinary account: a home of mode 0700 with copies of the binaries it runs, no control group, and no other rights.
//! Also a machine, or a container, that refuses it some system calls.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::harness::{Stack, install, interpreter, launch, target};

/// A user that owns nothing but its home.
pub(super) const USER: u32 = 12_345;

#[cfg(target_arch = "x86_64")]
pub(super) const UNSHARE: u32 = 272;
#[cfg(target_arch = "x86_64")]
pub(super) const PIVOT_ROOT: u32 = 155;
#[cfg(target_arch = "aarch64")]
pub(super) const UNSHARE: u32 = 97;
#[cfg(target_arch = "aarch64")]
pub(super) const PIVOT_ROOT: u32 = 41;

/// Runs the program after `--` with a filter that refuses the given system calls.
const REFUSE: &str = r#"
import ctypes, os, struct, sys
at = sys.argv.index("--")
program = [(0x20, 0, 0, 0)]
for call in sys.argv[1:at]:
    program += [(0x15, 0, 1, int(call)), (0x06, 0, 0, 0x00050001)]
program += [(0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
given = Program(len(program), ctypes.cast(code, ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(given)) == 0, ctypes.get_errno()
os.execv(sys.argv[at + 1], sys.argv[at + 1:])
"#;

/// Sets the version of Landlock that programs started with refused calls see: another process answers the query
/// (seccomp_unotify(2)).
pub(super) const LANDLOCK_VERSION: &str = "ASP_TEST_LANDLOCK_VERSION";
const ANSWER: &str = r#"
import ctypes, fcntl, os, struct, socket, sys
if version := os.environ.pop("ASP_TEST_LANDLOCK_VERSION", ""):
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        if os.fork():
            os._exit(0)
        os.setsid()
        ours.close()
        _, handles, _, _ = socket.recv_fds(theirs, 1, 1)
        theirs.close()
        os.closerange(0, 3)
        while True:
            asked = bytearray(80)
            try:
                fcntl.ioctl(handles[0], 0xC0502100, asked)
                fcntl.ioctl(handles[0], 0xC0182101, struct.pack("Qqii", struct.unpack_from("Q", asked)[0], int(version), 0, 0))
            except OSError:
                os._exit(0)
    os.wait()
    theirs.close()
    # landlock_create_ruleset with flags of 1.
    program = [(0x20, 0, 0, 0), (0x15, 0, 3, 444), (0x20, 0, 0, 32), (0x15, 0, 1, 1), (0x06, 0, 0, 0x7fc00000), (0x06, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
    libc = ctypes.CDLL(None, use_errno=True)
    given = Program(len(program), ctypes.cast(code, ctypes.c_void_p))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    handle = libc.syscall({"x86_64": 317, "aarch64": 277}[os.uname().machine], 1, 8, ctypes.byref(given))
    assert handle >= 0, ctypes.get_errno()
    socket.send_fds(ours, [b"!"], [handle])
    os.close(handle)
    ours.close()
"#;

/// Creates a home with the binaries.
pub(super) fn home() -> TempDir {
    assert!(rustix::process::geteuid().is_root(), "only root can start it as somebody else");
    // On a disk, because /tmp may be in memory.
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let built = target();
    for (from, to) in
        [("asp-runtime", "bin"), ("worker-init", "bin"), ("examples/ppp_worker", "stand-in/bin")]
    {
        let from = built.join(from);
        let to = home.path().join(to);
        std::fs::create_dir_all(&to).unwrap();
        // Copied by another process: if this one wrote the file, a child of another test could hold it open for writing
        // and keep it from being executed.
        run(Command::new("cp").args([&from, &to]));
    }
    home
}

/// Creates a Python environment: the machine's Python, with the shim and its dependencies.
pub(super) fn python(home: &Path) -> PathBuf {
    let shim = std::env::var("ASP_PLUGIN_PYTHON").expect("source .tools/env, which scripts/setup made");
    let venv = home.join("python");
    std::fs::create_dir_all(venv.join("bin")).unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", venv.join("bin/python")).unwrap();
    std::fs::write(venv.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
    let packages = Path::new(&shim).ancestors().nth(2).unwrap().join("lib");
    run(Command::new("cp").arg("-r").args([packages, venv.join("lib")]));
    venv.join("bin/python")
}

/// Starts a runtime of the account with sampled limits; `plugins` installs its plugins, `flags` come last. The
/// `refused` system calls fail for all of its processes.
pub(super) async fn start(home: TempDir, refused: &[u32], flags: &[&str]) -> Stack {
    start_within(home, &[], refused, flags).await
}

/// Like [`start`], with additional environment variables.
pub(super) async fn start_within(
    home: TempDir,
    environment: &[(&str, OsString)],
    refused: &[u32],
    flags: &[&str],
) -> Stack {
    let path = home.path().to_path_buf();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    run(Command::new("chown").args(["-R", &format!("{USER}:{USER}")]).arg(&path));
    let mut command = with_little_shared_memory(&refusing(&path.join("bin/asp-runtime"), refused));
    command.current_dir(&path).env("ASP_TEST_SECRET", super::probes::SECRET);
    command.env_remove("XDG_RUNTIME_DIR");
    command.envs(environment.iter().map(|(name, value)| (*name, value)));
    let python = path.join("python/bin/python");
    if python.exists() {
        command.env("ASP_PLUGIN_PYTHON", python);
    } else {
        for name in ["NODE", "NODE_SHIM", "JAVA", "JAVA_SHIM"] {
            command.env_remove(format!("ASP_PLUGIN_{name}"));
        }
        command.env("ASP_PLUGIN_PYTHON", path.join("stand-in/bin/ppp_worker"));
    }
    launch(home, command, &[&["--bounds", "sampled"], flags].concat()).await
}

/// Wraps `program` to run as the account with as little shared memory as containers have by default.
fn with_little_shared_memory(program: &Command) -> Command {
    within_mount("size=64m", "/dev/shm", program)
}

/// Wraps `program` to run as the account with a world-writable file system in memory at `place`.
pub(super) fn within_mount(options: &str, place: &str, program: &Command) -> Command {
    let user = USER.to_string();
    let mount = "mount -t tmpfs -o \"mode=1777,$1\" tmpfs \"$2\" && shift 2 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount, "sh", options, place]);
    command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.arg(program.get_program()).args(program.get_args());
    command
}

/// Wraps `program` so that some system calls are refused to all of its processes.
pub(super) fn refusing(program: &Path, refused: &[u32]) -> Command {
    if refused.is_empty() {
        return Command::new(program);
    }
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-I", "-c", &format!("{ANSWER}{REFUSE}")]).args(refused.iter().map(u32::to_string));
    command.arg("--").arg(program);
    command
}

/// Starts a runtime with stand-ins for plugins: (id, differences from the default manifest).
pub(super) async fn start_stand_ins(
    plugins: &[(&str, serde_json::Value)],
    refused: &[u32],
    flags: &[&str],
) -> Stack {
    let home = home();
    for (id, differs) in plugins {
        install(&home.path().join("plugins"), id, "1.0.0", differs);
    }
    start(home, refused, flags).await
}

/// Returns the command that runs the stand-in as the account, outside of any sandbox and inside `wrapper`.
pub(super) fn outside(wrapper: &[&str]) -> Command {
    let program = interpreter();
    let mut words = wrapper.iter().map(PathBuf::from).chain([program]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).uid(USER).gid(USER);
    command
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
