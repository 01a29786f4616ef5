//! Tests of workers' limits without a control group: limits of each process, and samples ten times a second.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use asp_proto::supervisor::tunnel_event::Type;
use serde_json::{Value, json};

use super::account;
use super::death::descendants;
use super::harness::{Stack, crash, eventually, install, output, start_with};

/// Code that uses memory that no resource limit counts, and does harm of each kind.
const PLUGIN: &str = r#"
import ctypes, json, mmap, os, resource, subprocess, sys, time

MIB = 1 << 20

def memfd():
    os.close(os.memfd_create("x"))

def shared_map():
    mmap.mmap(-1, MIB).close()

def zero_map():
    with open("/dev/zero", "r+b") as zero:
        mmap.mmap(zero.fileno(), MIB).close()

def growing_map():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    if libc.mmap(None, ctypes.c_size_t(MIB), 3, 0x122, -1, 0) == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")

def segment():
    number = ctypes.CDLL(None, use_errno=True).shmget(0, MIB, 0o1600)
    if number < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    ctypes.CDLL(None).shmctl(number, 0, None)

def data():
    # Reserved, not used: 2 GiB of the machine's addresses.
    mmap.mmap(-1, 2048 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()

def pipe():
    libc = ctypes.CDLL(None, use_errno=True)
    ends = os.pipe()
    text = ctypes.create_string_buffer(4096)
    part = (ctypes.c_size_t * 2)(ctypes.addressof(text), 4096)
    moved = libc.vmsplice(ends[1], ctypes.byref(part), ctypes.c_ulong(1), 0)
    number = ctypes.get_errno()
    for end in ends:
        os.close(end)
    if moved < 0:
        raise OSError(number, "vmsplice")

def stack():
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (64 * MIB, 64 * MIB))
    except ValueError as error:
        raise OSError(str(error))

KINDS = (memfd, shared_map, zero_map, growing_map, segment, data, pipe, stack)
ATTEMPTS = {f.__name__: f for f in KINDS}

def attempt(name):
    try:
        ATTEMPTS[name]()
    except OSError as error:
        return f"denied: {error}"
    return "allowed"

def attempts():
    return {name: attempt(name) for name in ATTEMPTS}

def hoard(mib):
    held = []
    for _ in range(mib // 4):
        held.append(bytearray(b"x" * 4 * MIB))
        time.sleep(0.01)
    time.sleep(60)

def spin():
    while True:
        pass

HOARD = "import time\nheld = []\nfor _ in range(%d):\n held.append(bytearray(b'x' * (4 << 20)))\n time.sleep(.01)\ntime.sleep(60)"

def harm(what):
    if what == "one":
        # A little beyond its bound of 256, so that it is over soon.
        hoard(280)
    if what == "several":
        code = HOARD % 20
        children = [subprocess.Popen([sys.executable, "-I", "-c", code]) for _ in range(5)]
        time.sleep(60)
    if what == "files":
        with open("fill", "wb") as file:
            for _ in range(60):
                file.write(b"x" * 4 * MIB)
                file.flush()
                time.sleep(0.01)
        hoard(120)
    if what == "spin":
        spin()
    if what == "unwaited":
        # Nobody waits for any child, so that the kernel adds nothing to their parent's time.
        ctypes.CDLL(None).signal(17, ctypes.c_void_p(1))
        while True:
            if os.fork() == 0:
                until = time.monotonic() + 1
                while time.monotonic() < until:
                    pass
                os._exit(0)
            try:
                os.wait()
            except ChildProcessError:
                pass
    if what == "shared":
        held = b"x" * 120 * MIB
        for _ in range(3):
            if os.fork() == 0:
                time.sleep(1)
                os._exit(0)
        for _ in range(3):
            os.wait()
    if what == "forks":
        while True:
            try:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
            except OSError:
                time.sleep(0.01)

if __name__ == "__main__":
    print(json.dumps(attempts()))
else:
    from asp_plugin import plugin

    @plugin.tool
    def main(args, ctx):
        if "harm" in args:
            ctx.progress(1)
            harm(args["harm"])
        return {"attempts": attempts(), "processes": len(os.listdir("/proc"))}
"#;

const MEMORY: u64 = 256 << 20;
const PIDS: u64 = 48;

/// Starts a runtime of an ordinary account whose plugins all have the code above.
async fn start(plugins: &[(&str, Value)]) -> Stack {
    start_refused(plugins, &[], &[]).await
}

/// Like [`start`], with some system calls refused to all of its processes.
async fn start_refused(plugins: &[(&str, Value)], refused: &[u32], flags: &[&str]) -> Stack {
    let home = account::home();
    account::python(home.path());
    for (id, differs) in plugins {
        let mut manifest = json!({
            "entrypoint": "bounds.py", "pool": {"max": 1},
            "limits": {"memoryBytes": MEMORY, "pids": PIDS, "diskBytes": 250 << 20},
        });
        super::harness::merge(&mut manifest, differs);
        let plugins = home.path().join("plugins");
        install(&plugins, id, "1.0.0", &manifest);
        std::fs::write(plugins.join(id).join("1.0.0/package/bounds.py"), PLUGIN).unwrap();
    }
    account::start(home, refused, flags).await
}

#[tokio::test]
async fn a_plugin_of_an_ordinary_account_has_level_3_and_no_memory_that_nobody_counts() {
    let stack = start(&[("plugin", json!({"isolation": {"minLevel": 3}}))]).await;
    let health = stack.health().await;
    assert_eq!((&health["isolation_level"], &health["bounds"]), (&json!(3), &json!("sampled")));
    assert!(health["bounds_reason"].as_str().unwrap().contains("/sys/fs/cgroup"), "{health}");
    let told = stack.log_line("workers have no control group").await;
    assert!(told.contains("/sys/fs/cgroup") && stack.logged("\"WARN\"").len() <= 2, "{told}");

    let said = stack.call("plugin", "one", &json!({})).await;
    let inside = output(&said).unwrap_or_else(|| panic!("{said:?}"))["attempts"].clone();
    let outside = control();
    for (name, found) in inside.as_object().unwrap() {
        assert_eq!(outside[name], "allowed", "{name}: the control is refused: {outside:#}");
        assert!(found.as_str().unwrap().starts_with("denied: "), "{name}: {inside:#}");
    }
    assert_eq!(inside.as_object().unwrap().len(), 8);
    let stats = &stack.health().await["plugins"]["plugin@1.0.0"];
    assert!(stats["rss_bytes"].as_f64().unwrap() > f64::from(4 << 20), "what it uses is told: {stats}");
}

/// Runs the same attempts as the same account outside the sandbox.
fn control() -> Value {
    let dir = tempfile::tempdir().unwrap();
    let code = dir.path().join("bounds.py");
    std::fs::write(&code, PLUGIN).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let user = account::USER.to_string();
    let ended = Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "/usr/bin/python3", "-B"])
        .arg(code)
        .output()
        .unwrap();
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
}

#[tokio::test]
async fn a_worker_that_hoards_memory_is_ended_and_its_calls_are_told_why() {
    let kinds = ["one", "several", "files"];
    let plugins = kinds.map(|kind| (kind, json!({})));
    let stack = start(&[&plugins[..], &[("good", json!({}))]].concat()).await;
    assert!(output(&stack.call("good", "before", &json!({})).await).is_some());
    let calls = kinds.iter().map(|kind| {
        let arguments = json!({ "harm": kind });
        let stack = &stack;
        async move { (kind, stack.call(kind, kind, &arguments).await) }
    });
    for (kind, said) in futures::future::join_all(calls).await {
        assert_eq!(crash(&said), Some(("oom".to_owned(), true)), "{kind}: {said:?}");
    }
    nothing_is_left(&stack).await;
    assert_eq!(stack.figure("good@1.0.0", "crashes").await, 0);
}

#[tokio::test]
async fn a_worker_that_uses_more_of_the_processor_than_its_share_is_ended_after_some_seconds() {
    let limits = json!({"limits": {"cpuMillis": 10}});
    let stack = start(&[("spin", limits.clone()), ("unwaited", limits)]).await;
    let calls = ["spin", "unwaited"].map(|kind| {
        let stack = &stack;
        async move { (kind, stack.call(kind, kind, &json!({ "harm": kind })).await) }
    });
    for (kind, said) in futures::future::join_all(calls).await {
        assert_eq!(crash(&said), Some(("limit".to_owned(), true)), "{kind}: {said:?}");
    }
    stack.log_line("bound on processor time").await;
    nothing_is_left(&stack).await;
}

#[tokio::test]
async fn what_processes_share_after_a_fork_counts_once_for_an_ordinary_account() {
    let stack = start(&[("plugin", json!({}))]).await;
    let said = stack.call("plugin", "one", &json!({"harm": "shared"})).await;
    assert!(output(&said).is_some(), "{said:?}");
}

#[tokio::test]
async fn a_fork_bomb_stops_at_its_bound_and_is_gone_with_its_worker() {
    let stack = start(&[("plugin", json!({}))]).await;
    let mut tunnel = stack.tunnel("plugin").await;
    tunnel.until_event(Type::TunnelReady).await;
    tunnel.invoke_until("one", &json!({"harm": "forks"}), Some(Duration::from_secs(3))).await;
    tunnel.until_message().await;
    let most = std::cell::Cell::new(0);
    let ended = tunnel.rest();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            _ = &mut ended => break,
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                most.set(most.get().max(descendants(stack.child.id()).len()));
            }
        }
    }
    // Threads of the worker count too.
    let most = most.get();
    assert!(most > 10 && most <= usize::try_from(PIDS).unwrap() + 2, "{most} processes");
    nothing_is_left(&stack).await;
}

#[tokio::test]
async fn a_worker_that_keeps_its_user_has_its_processes_whatever_else_that_user_runs() {
    let sleeper = || Command::new("sleep").arg("120").uid(account::USER).spawn().unwrap();
    let mut others: Vec<_> = (0..PIDS + 8).map(|_| sleeper()).collect();
    let low = json!({"isolation": {"minLevel": 2}});
    let plugins = [("good", low.clone()), ("bomb", low)];
    let stack = start_refused(&plugins, &[account::UNSHARE], &["--min-level", "2"]).await;
    let good = stack.call("good", "one", &json!({"harm": "shared"})).await;
    let bomb = stack.call("bomb", "two", &json!({"harm": "forks"})).await;
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    assert!(output(&good).is_some(), "{good:?}");
    assert_eq!(crash(&bomb), Some(("limit".to_owned(), true)), "{bomb:?}");
    stack.log_line("bound on processes").await;
    nothing_is_left(&stack).await;
}

/// Waits until only workers without calls are left, which the runtime starts again.
async fn nothing_is_left(stack: &Stack) {
    eventually("what they started is gone", || async { descendants(stack.child.id()).len() <= 12 }).await;
}

#[tokio::test]
async fn without_a_control_group_a_runtime_starts_only_when_it_is_told_that_sampled_bounds_do() {
    let home = account::home();
    std::fs::create_dir(home.path().join("plugins")).unwrap();
    std::os::unix::fs::chown(home.path(), Some(account::USER), Some(account::USER)).unwrap();
    let path = |name: &str| home.path().join(name).into_os_string().into_string().unwrap();
    let user = account::USER.to_string();
    let ended = Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", &path("bin/asp-runtime")])
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .args(["--plugins", &path("plugins"), "--state", &path("state"), "--socket", &path("socket")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    for part in [
        "/sys/fs/cgroup",
        "Permission denied",
        "systemd-run --user --scope",
        "as root",
        "ASP_RUNTIME_BOUNDS=sampled",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!Path::new(&path("socket")).exists());
}

/// Creates a stand-in for systemd-run, which records how it was called and continues with `then`; returns the runtime's
/// environment for it.
fn systemd(dir: &Path, then: &str) -> Vec<(&'static str, std::ffi::OsString)> {
    std::fs::create_dir_all(dir.join("run/systemd")).unwrap();
    std::fs::create_dir(dir.join("path")).unwrap();
    let program = dir.join("path/systemd-run");
    let noted = dir.join("noted");
    // A shell writes it: a process that another test starts inherits a file that is open for writing here, and a program that is
    // open so cannot be executed.
    let script = format!("#!/bin/sh\necho \"$$ $*\" >> {}\n{then}\n", noted.display());
    let mut write = std::process::Command::new("/bin/sh");
    write.args(["-c", r#"printf %s "$2" > "$1" && chmod 755 "$1""#, "sh"]).arg(&program).arg(script);
    assert!(write.status().unwrap().success());
    let path = [dir.join("path").into_os_string(), std::env::var_os("PATH").unwrap()];
    vec![("XDG_RUNTIME_DIR", dir.join("run").into()), ("PATH", path.join(std::ffi::OsStr::new(":")))]
}

#[tokio::test]
async fn where_systemd_has_a_scope_for_it_the_runtime_goes_on_in_one_as_the_same_process() {
    for (then, calls) in [("while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"", 2), ("exit 1", 1)] {
        let home = account::home();
        install(&home.path().join("plugins"), "echo", "1.0.0", &json!({}));
        let environment = systemd(home.path(), then);
        let stack = account::start_within(home, &environment, &[], &[]).await;
        assert!(output(&stack.call("echo", "one", &json!({})).await).is_some(), "it goes on");
        assert_eq!(stack.health().await["bounds"], "sampled", "the stand-in gives no group");
        let noted = std::fs::read_to_string(stack.plugins().with_file_name("noted")).unwrap();
        let noted: Vec<&str> = noted.lines().collect();
        assert_eq!(noted.len(), calls, "{noted:?}");
        let scope = "--user --scope -q -p Delegate=yes --";
        assert!(noted[0].ends_with(&format!("{scope} true")), "a trial: {noted:?}");
        match noted.get(1) {
            Some(entered) => {
                assert!(entered.starts_with(&format!("{} {scope} /", stack.child.id())), "{noted:?}");
                assert!(entered.contains("/bin/asp-runtime --plugins "), "{noted:?}");
            }
            None => assert!(stack.log_line("systemd gave no control group").await.contains("exit status: 1")),
        }
    }
}

#[tokio::test]
async fn where_there_are_control_groups_they_are_used_whatever_is_allowed() {
    let stack = start_with(&[("echo", json!({}))], &["--bounds", "sampled"]).await;
    let health = stack.health().await;
    assert_eq!((&health["bounds"], &health["bounds_reason"]), (&json!("cgroup"), &json!("")));
    assert!(output(&stack.call("echo", "one", &json!({})).await).is_some());
}
