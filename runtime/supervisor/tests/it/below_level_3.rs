//! Tests that a worker below level 3 cannot affect other processes of the account as whose user it runs, with any
//! version of Landlock in the kernel, and that its own children obey it where the kernel can distinguish them (I-7).

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use serde_json::{Value, json};

use super::account::{self, UNSHARE, USER};
use super::harness::{Stack, install, merge, output};

const PLUGIN: &str = include_str!("below_level_3.py");

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const LANDLOCK_CREATE_RULESET: u32 = 444;

/// Attempts to reach other processes of the same user.
const HARM: [&str; 16] = [
    "kill",
    "tkill",
    "tgkill",
    "queue",
    "thread_queue",
    "handle",
    "limits",
    "nice",
    "nice_user",
    "affinity",
    "scheduler",
    "io_priority",
    "datagram",
    "datagram_of_pair",
    "raw_datagram",
    "ring",
];
/// The signal that is sent to a file's owner: some attempts are refused when it is configured, others only when it is
/// sent.
const OWNED: [&str; 3] = ["owner", "owner_with_kind", "owner_by_ioctl"];

/// Targets outside the sandbox: a process and a datagram socket.
struct Outside {
    victim: Child,
    socket: std::path::PathBuf,
    _listener: UnixDatagram,
    _dir: tempfile::TempDir,
}

impl Outside {
    fn start() -> Outside {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let socket = dir.path().join("log");
        let listener = UnixDatagram::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).unwrap();
        let victim = Command::new("sleep").arg("300").uid(USER).gid(USER).spawn().unwrap();
        Outside { victim, socket, _listener: listener, _dir: dir }
    }

    fn facts(&self, stack: &Stack) -> Value {
        json!({"victim": self.victim.id(), "datagrams": self.socket, "stream": stack.socket})
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// Starts a runtime of the account at `level`, the highest one without the `refused` calls.
async fn start(level: u32, refused: &[u32], environment: &[(&str, std::ffi::OsString)]) -> Stack {
    let home = account::home();
    account::python(home.path());
    let mut manifest = json!({"entrypoint": "below.py", "isolation": {"minLevel": 1}});
    merge(&mut manifest, &json!({"pool": {"max": 1}}));
    let plugins = home.path().join("plugins");
    install(&plugins, "plugin", "1.0.0", &manifest);
    std::fs::write(plugins.join("plugin/1.0.0/package/below.py"), PLUGIN).unwrap();
    let stack = account::start_within(home, environment, refused, &["--min-level", "1"]).await;
    let health = stack.health().await;
    assert_eq!(health["isolation_level"], json!(level), "{}", health["missing"]);
    assert_eq!(health["own_user"], json!(false));
    stack
}

/// Returns the results of the attempts inside, after showing that they succeed outside.
async fn attempts(stack: &Stack, names: &[&str]) -> Value {
    let outside = Outside::start();
    let mut wanted = outside.facts(stack);
    wanted["names"] = json!(names);
    let control = control(&wanted);
    for name in names {
        assert_eq!(control[name], "allowed", "{name}: the control is refused: {control:#}");
    }
    let said = stack.call("plugin", "one", &wanted).await;
    output(&said).unwrap_or_else(|| panic!("{said:?}"))
}

/// Runs the same attempts as the same account outside the sandbox.
fn control(wanted: &Value) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let code = dir.path().join("below.py");
    std::fs::write(&code, PLUGIN).unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut python = Command::new("/usr/bin/python3");
    let ended = python.arg("-B").arg(code).arg(wanted.to_string()).uid(USER).gid(USER).output().unwrap();
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
}

fn assert_denied(found: &Value, names: &[&str]) {
    let allowed: Vec<_> =
        names.iter().filter(|name| !found[**name].as_str().unwrap().starts_with("denied: ")).collect();
    assert!(allowed.is_empty(), "allowed: {allowed:?} of {found:#}");
}

fn assert_allowed(found: &Value, names: &[&str]) {
    for name in names {
        assert_eq!(found[name], "allowed", "{name}: {found:#}");
    }
}

#[tokio::test]
async fn at_level_1_a_worker_reaches_no_other_process_of_its_user_and_itself_it_does() {
    let stack = start(1, &[UNSHARE, LANDLOCK_CREATE_RULESET], &[]).await;
    let all = [&HARM[..], &OWNED].concat();
    assert_denied(&attempts(&stack, &all).await, &all);
    assert_allowed(&attempts(&stack, &["own", "own_thread", "abort"]).await, &["own", "own_thread", "abort"]);
    assert_eq!(stack.figure("plugin@1.0.0", "crashes").await, 0);
}

/// Linux before 6.12: Landlock without a rule for signals.
#[tokio::test]
async fn at_level_2_of_an_older_kernel_a_worker_signals_itself_alone() {
    let stack = start(2, &[UNSHARE], &[(account::LANDLOCK_VERSION, "5".into())]).await;
    let all = [&HARM[..], &OWNED].concat();
    assert_denied(&attempts(&stack, &all).await, &all);
    let own = attempts(&stack, &["own", "own_thread", "child"]).await;
    assert_allowed(&own, &["own", "own_thread"]);
    assert_denied(&own, &["child"]);
}

#[tokio::test]
async fn at_level_2_of_a_kernel_that_ends_signals_at_the_border_a_workers_children_obey_it_and_no_others() {
    let stack = start(2, &[UNSHARE], &[]).await;
    assert_denied(&attempts(&stack, &HARM).await, &HARM);
    let own = ["own", "own_thread", "child", "abort"];
    assert_allowed(&attempts(&stack, &own).await, &own);
}

/// Returns the output of a runtime of the account that must not start, with 128 MiB of memory mounted at `place` and
/// its state in `state`; relative paths are below its home.
fn refused(place: &str, state: &str, calls: &[u32], min_level: &str) -> String {
    let home = account::home();
    for dir in ["plugins", "memory"] {
        std::fs::create_dir(home.path().join(dir)).unwrap();
    }
    std::os::unix::fs::chown(home.path(), Some(USER), Some(USER)).unwrap();
    let path = |name: &str| home.path().join(name).into_os_string().into_string().unwrap();
    let runtime = account::refusing(Path::new(&path("bin/asp-runtime")), calls);
    // Guards against hanging: a runtime that starts keeps running.
    let mut bounded = Command::new("timeout");
    bounded.arg("60").arg(runtime.get_program()).args(runtime.get_args());
    bounded.args(["--plugins", &path("plugins"), "--state", &path(state), "--socket", &path("socket")]);
    bounded.args(["--bounds", "sampled", "--min-level", min_level]);
    let mut command = account::within_mount("size=128m", &path(place), &bounded);
    let ended = command.env_clear().env("PATH", std::env::var("PATH").unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    said
}

/// Files that a worker writes there are memory, and once unlinked they cannot be found.
#[tokio::test]
async fn where_nothing_counts_the_files_of_workers_a_state_directory_in_memory_is_refused_with_the_ways_out()
{
    let said = refused("memory", "memory/state", &[UNSHARE], "2");
    for part in ["memory/state is in memory", "tmpfs", "--state", "TMPDIR", "control group", "level 3"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Nothing confines a worker there.
#[tokio::test]
async fn at_level_1_memory_that_all_may_write_to_is_refused_with_the_ways_out() {
    let said = refused("/dev/shm", "state", &[UNSHARE, LANDLOCK_CREATE_RULESET], "1");
    for part in ["/dev/shm is in memory", "tmpfs", "remount,size=64M", "control group", "level 2 or 3"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
