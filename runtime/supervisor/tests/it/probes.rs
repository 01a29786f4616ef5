//! Tests of what no plugin may reach, whatever its language: one list of probes, run by a plugin of each language in
//! its sandbox, and, as the control, by the same code outside of any (I-7). This works for any account: a probe that an
//! account other than root cannot reach outside either is no control.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use super::account;
use super::attempts::{DISK_MIB, FILES, Language, PIDS, ask, start};
use super::death::descendants;
use super::harness::Stack;

/// A secret in the runtime's environment, where its settings are.
pub(super) const SECRET: &str = "the-runtimes-secret";
const NEIGHBOURS_SECRET: &str = "the-neighbours-secret";

/// Targets that only root reaches outside.
const OF_ROOT: [&str; 4] =
    ["write into the system", "write into the settings", "write into the root", "write into the devices"];

/// Variables of every worker's environment (runtime/README.md).
pub(crate) const ENVIRONMENT: [&str; 10] = [
    "ASP_PLUGIN_CODE",
    "ASP_PLUGIN_MANIFEST",
    "ASP_WORKER_ID",
    "ASP_WORKER_SOCKET",
    "ASP_WORK_DIR",
    "HOME",
    "LANG",
    "PATH",
    "TMPDIR",
    "TZ",
];

/// Builds the list. `do` names the attempt; the other fields locate the target that must not be reached.
fn probes(outside: &Outside, neighbour: &Neighbour, stack: &Stack, id: &str) -> Value {
    let pid = neighbour.pid;
    let runtime = stack.child.id();
    let home = neighbour.home.as_str();
    let package = stack.plugins().join(id).join("1.0.0/package");
    let code = stack.plugins().join(id).join("1.0.0/plugin.json");
    let dir = outside.dir.path();
    let [tcp, tcp6, metadata, udp] = outside.ports;
    // A query for the address of example.com (RFC 1035 section 4.1).
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01".as_slice();
    let found = |name: &str| dir.join(name);
    json!([
        {"name": "TCP", "do": "tcp", "host": "127.0.0.1", "port": tcp},
        {"name": "TCP by IPv6", "do": "tcp", "host": "::1", "port": tcp6},
        {"name": "UDP", "do": "udp", "host": "127.0.0.1", "port": udp, "bytes": [1, 2, 3]},
        {"name": "DNS", "do": "udp", "host": "127.0.0.1", "port": udp, "bytes": question},
        // The listener stands in for 169.254.169.254, which a test must not add to this machine.
        {"name": "metadata address", "do": "tcp", "host": "127.169.254.169", "port": metadata},
        {"name": "abstract socket", "do": "abstract", "path": outside.abstract_name},
        {"name": "path socket", "do": "unix", "path": found("socket")},
        {"name": "the runtime's socket", "do": "unix", "path": stack.socket},
        {"name": "the neighbour's socket", "do": "unix", "path": format!("/proc/{pid}/root{home}/s/s")},
        {"name": "the neighbour's memory", "do": "open", "path": format!("/proc/{pid}/mem")},
        {"name": "the neighbour's memory map", "do": "read", "path": format!("/proc/{pid}/maps"), "mark": "python"},
        {"name": "the neighbour's files", "do": "read", "path": format!("/proc/{pid}/root{home}/d/secret"),
         "mark": NEIGHBOURS_SECRET},
        {"name": "the neighbour's environment", "do": "read", "path": format!("/proc/{pid}/environ"),
         "mark": neighbour.id},
        {"name": "any neighbour's environment", "do": "environments", "mark": neighbour.id},
        {"name": "the neighbour's process", "do": "list", "path": format!("/proc/{pid}"), "mark": "status"},
        {"name": "a signal to the neighbour", "do": "signal", "pid": pid},
        {"name": "the neighbour's code", "do": "read", "path": stack.plugins().join("neighbour/1.0.0/plugin.json"),
         "mark": "neighbour"},
        {"name": "the runtime's environment", "do": "read", "path": format!("/proc/{runtime}/environ"),
         "mark": SECRET},
        {"name": "anybody's environment", "do": "environments", "mark": SECRET},
        {"name": "the runtime's memory", "do": "open", "path": format!("/proc/{runtime}/mem")},
        {"name": "the runtime's open files", "do": "list", "path": format!("/proc/{runtime}/fd"), "mark": "0"},
        {"name": "a signal to the runtime", "do": "signal", "pid": runtime},
        {"name": "the runtime's directory", "do": "list", "path": stack.state, "mark": "lock"},
        {"name": "all plugins", "do": "list", "path": stack.plugins(), "mark": "neighbour"},
        {"name": "a file of the machine", "do": "read", "path": found("secret"), "mark": "secret"},
        {"name": "the machine's users", "do": "read", "path": "/etc/passwd", "mark": "/root:"},
        {"name": "write into an open directory", "do": "write", "path": found("open")},
        {"name": "write into its package", "do": "write", "path": package},
        {"name": "write into the system", "do": "write", "path": "/usr/lib"},
        {"name": "write into the settings", "do": "write", "path": "/etc"},
        {"name": "write into the root", "do": "write", "path": "/"},
        {"name": "write into the devices", "do": "write", "path": "/dev"},
        {"name": "more files than it may open", "do": "files", "path": code, "count": FILES + 20},
        {"name": "more disk than it has", "do": "disk", "path": ".", "mib": DISK_MIB + 4},
        // Last: the processes that it started are being ended while the next one runs.
        {"name": "more processes than it may start", "do": "processes", "count": PIDS + 20},
    ])
}

#[tokio::test]
async fn a_python_plugin_reaches_nothing_that_is_not_its_own() {
    reaches_nothing(Language::Python, |command| command, &json!({})).await;
}

#[tokio::test]
async fn a_node_plugin_reaches_nothing_that_is_not_its_own() {
    reaches_nothing(Language::Node, |command| command, &json!({})).await;
}

#[tokio::test]
async fn a_java_plugin_reaches_nothing_that_is_not_its_own() {
    reaches_nothing(Language::Java, |command| command, &json!({})).await;
}

#[tokio::test]
async fn a_python_plugin_of_an_ordinary_account_reaches_nothing_either() {
    reaches_nothing_of_an_account(Language::Python).await;
}

#[tokio::test]
async fn a_node_plugin_of_an_ordinary_account_reaches_nothing_either() {
    reaches_nothing_of_an_account(Language::Node).await;
}

#[tokio::test]
async fn a_java_plugin_of_an_ordinary_account_reaches_nothing_either() {
    reaches_nothing_of_an_account(Language::Java).await;
}

/// Node's permission flags refuse much of the list before the sandbox is involved; without them the sandbox must refuse
/// alone, even with network access.
#[tokio::test]
async fn a_node_without_its_permission_flags_reaches_nothing_either() {
    let shim = tempfile::tempdir().unwrap();
    copy(Path::new(&std::env::var("ASP_PLUGIN_NODE_SHIM").unwrap()), shim.path());
    std::fs::write(shim.path().join("src/flags.mjs"), "console.log('--openssl-config=/dev/null')").unwrap();
    let bare = |mut command: Command| {
        command.env("ASP_PLUGIN_NODE_SHIM", shim.path());
        command
    };
    let found = reaches_nothing(Language::Node, bare, &json!({"allowedDomains": ["api.example.com"]})).await;
    assert!(!found.to_string().contains("ERR_ACCESS_DENIED"), "Node refused, not the sandbox: {found:#}");
}

/// Returns the results of the probes inside.
async fn reaches_nothing(
    language: Language,
    adapt: impl FnOnce(Command) -> Command,
    differs: &Value,
) -> Value {
    let secretive = |command| {
        let mut command = adapt(command);
        command.env("ASP_TEST_SECRET", SECRET);
        command
    };
    let stack = start(|plugins| plugin_and_neighbour(plugins, language, differs), secretive).await;
    refused_inside(language, stack).await
}

/// Runs the same test in a runtime of an ordinary account.
async fn reaches_nothing_of_an_account(language: Language) {
    let home = account::home();
    account::python(home.path());
    plugin_and_neighbour(&home.path().join("plugins"), language, &json!({}));
    let stack = account::start(home, &[], &[]).await;
    let health = stack.health().await;
    assert_eq!((&health["isolation_level"], &health["bounds"]), (&json!(3), &json!("sampled")));
    refused_inside(language, stack).await;
}

fn plugin_and_neighbour(plugins: &Path, language: Language, differs: &Value) {
    Language::Python.install(plugins, "neighbour", &json!({}));
    language.install(plugins, "probe", differs);
}

async fn refused_inside(language: Language, stack: Stack) -> Value {
    let user = rustix::process::geteuid();
    let outside = Outside::start();
    let neighbour = Neighbour::start(&stack).await;
    let wanted = json!({ "attempts": probes(&outside, &neighbour, &stack, "probe") });

    let inside = ask(&stack, "probe", &wanted).await;
    let work = tempfile::tempdir().unwrap();
    let control = language.outside(&wanted, work.path());
    for probe in wanted["attempts"].as_array().unwrap() {
        let name = probe["name"].as_str().unwrap();
        let proves = user.is_root() || !OF_ROOT.contains(&name);
        assert!(!proves || control[name] == "allowed", "{name}: the control is refused: {control:#}");
        assert!(inside[name].as_str().unwrap().starts_with("denied: "), "{name}: {inside:#}");
    }
    let names = ask(&stack, "probe", &json!({"names": true})).await;
    let names = names["names"].as_array().unwrap();
    let given = |name: &str| ENVIRONMENT.contains(&name) || name.to_uppercase().ends_with("_PROXY");
    assert!(names.iter().all(|name| given(name.as_str().unwrap())), "{names:?}");
    assert_eq!(stack.figure("neighbour@1.0.0", "crashes").await, 0);
    assert_eq!(stack.figure("probe@1.0.0", "crashes").await, 0, "one worker ran the whole list");
    inside
}

/// Another plugin's worker, with a secret in its files.
struct Neighbour {
    pid: u32,
    id: String,
    home: String,
    _call: super::harness::Tunnel,
}

impl Neighbour {
    /// Starts the first worker of its stack.
    async fn start(stack: &Stack) -> Neighbour {
        let mut call = stack.tunnel("neighbour").await;
        call.invoke("held", &json!({"harm": "ignore"})).await;
        call.until_message().await;
        let pid = *descendants(stack.child.id()).last().expect("it runs");
        let homes: Vec<_> = std::fs::read_dir(stack.state.join("w")).unwrap().flatten().collect();
        let [home] = homes.as_slice() else { panic!("one worker has one directory: {homes:?}") };
        let id = home.file_name().into_string().unwrap();
        let home = home.path().into_os_string().into_string().unwrap();
        // As the worker's user: its file system knows no other.
        let user = std::fs::metadata(format!("/proc/{pid}")).unwrap().uid();
        let mut write = Command::new("sh");
        write.args(["-c", "printf %s \"$1\" > \"$2\"", "sh", NEIGHBOURS_SECRET]);
        write.arg(format!("/proc/{pid}/root{home}/d/secret"));
        if user != rustix::process::geteuid().as_raw() {
            write.uid(user).gid(user);
        }
        assert!(write.status().unwrap().success());
        Neighbour { pid, id, home, _call: call }
    }
}

/// Targets outside the sandbox, open to everybody.
struct Outside {
    ports: [u16; 4],
    abstract_name: String,
    dir: tempfile::TempDir,
}

impl Outside {
    fn start() -> Outside {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        };
        open(dir.path());
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::fs::create_dir(dir.path().join("open")).unwrap();
        open(&dir.path().join("open"));
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        open(&dir.path().join("socket"));
        let abstract_name = format!("asp-probe-{}", dir.path().display());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for listener in [listener, UnixListener::bind_addr(&address).unwrap()] {
            thread::spawn(move || listener.incoming().for_each(|stream| echo(stream.unwrap())));
        }
        let tcp = |host: &str| {
            let listener = TcpListener::bind((host, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            thread::spawn(move || listener.incoming().for_each(|stream| echo(stream.unwrap())));
            port
        };
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let ports = [tcp("127.0.0.1"), tcp("::1"), tcp("127.169.254.169"), udp.local_addr().unwrap().port()];
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
                udp.send_to(&buffer[..length], peer).unwrap();
            }
        });
        Outside { ports, abstract_name, dir }
    }
}

/// Sends back the first data that it receives.
fn echo(mut stream: impl Read + Write) {
    let mut buffer = [0; 64];
    if let Ok(length) = stream.read(&mut buffer) {
        let _ = stream.write_all(&buffer[..length]);
    }
}

/// Copies a directory recursively.
fn copy(from: &Path, to: &Path) {
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}
