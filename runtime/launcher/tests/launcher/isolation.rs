//! Attempts of a hostile worker (`isolation.py`): each probe is refused inside the sandbox, and the same probe, run by
//! the same program outside, is not (I-7).

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use asp_launcher::{Cgroup, Egress, Level};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Cell, is_root, python, scratch, stderr, stdout, within};

/// Probes that no worker may pass, at level 3.
const PROBES: [&str; 47] = [
    "tcp",
    "tcp6",
    "udp",
    "dns",
    "metadata_address",
    "raw_socket",
    "netlink",
    "packet_socket",
    "abstract_socket",
    "path_socket",
    "neighbours_socket",
    "neighbours_memory",
    "neighbours_files",
    "neighbours_environment",
    "supervisors_environment",
    "neighbours_process",
    "signal_neighbour",
    "signal_supervisor",
    "ptrace",
    "process_memory",
    "outside_file",
    "users_of_the_machine",
    "write_system",
    "write_root",
    "write_settings",
    "write_code",
    "write_run_dir",
    "write_devices",
    "make_dir_in_run_dir",
    "sys_of_the_machine",
    "settings_of_the_kernel",
    "root_of_first_process",
    "environment_of_first_process",
    "memory_of_first_process",
    "unshare_user",
    "unshare_network",
    "clone_namespace",
    "enter_namespace",
    "mount",
    "chroot",
    "make_device",
    "become_root",
    "set_user_id_program",
    "bpf",
    "io_uring",
    "keyring",
    "host_name",
];

/// The subset that level 2 does not refuse. A process of another user is visible, but can be neither read nor
/// signalled; the kernel's settings are visible too.
const NOT_AT_LEVEL_2: [&str; 2] = ["neighbours_process", "settings_of_the_kernel"];

/// Bombs that end with an error; the memory bomb ends the worker.
const BOMBS: [&str; 4] = ["fork_bomb", "descriptor_bomb", "disk_fill", "file_count"];

#[test]
fn level_3_refuses_what_is_allowed_outside() {
    let outside = Outside::start();
    let mut cell = outside.cell(Level::L3, &PROBES);
    assert_denied(&PROBES, &run(&mut cell));
    assert!(is_root(), "nothing was allowed inside, but only root can show that it would be outside");
    outside.assert_control(&PROBES);
}

#[test]
fn level_3_with_a_way_out_refuses_the_same() {
    let outside = Outside::start();
    let mut cell = outside.cell(Level::L3, &PROBES);
    cell.sandbox.egress =
        Some(Egress { proxy_socket: outside.path_socket.clone(), port: 3128, tcp: Vec::new() });
    assert_denied(&PROBES, &run(&mut cell));
}

#[test]
fn level_2_refuses_what_needs_no_namespaces() {
    let outside = Outside::start();
    let probes: Vec<&str> = PROBES.into_iter().filter(|probe| !NOT_AT_LEVEL_2.contains(probe)).collect();
    let mut cell = outside.cell(Level::L2, &probes);
    assert_denied(&probes, &run(&mut cell));
}

/// The newest reviewed call exists, as in the kernel, and the next does not.
#[test]
fn calls_newer_than_the_list_do_not_exist() {
    let scratch = scratch();
    let script = scratch.path().join("calls.py");
    let call = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n\
                for number in (39, 462, 463, 466, 469, 600, 0x40000000 + 39):\n    \
                    ctypes.set_errno(0); libc.syscall(number, -1, 0, 0, 0, 0, 0); print(ctypes.get_errno() == 38)\n";
    fs::write(&script, call).unwrap();
    let outside = Command::new(&python().program).arg(&script).output().unwrap();
    let inside = Cell::python(Level::L2, &script, &[]).output();
    let outside = stdout(&outside);
    let inside = stdout(&inside);
    let outside: Vec<_> = outside.lines().collect();
    let inside: Vec<_> = inside.lines().collect();
    assert_eq!(inside[..2], outside[..2]);
    assert_eq!(inside[2..], ["True"; 5], "outside: {outside:?}");
}

#[test]
fn bombs_stop_at_their_bounds() {
    let outside = Outside::start();
    outside.assert_control(&BOMBS);
    let mut cell = outside.cell(Level::L3, &BOMBS);
    assert_denied(&BOMBS, &run(&mut cell));
}

#[test]
fn a_memory_bomb_kills_its_worker_and_is_booked() {
    let outside = Outside::start();
    outside.assert_control(&["memory_bomb"]);
    let mut cell = outside.cell(Level::L3, &["memory_bomb"]);
    let output = cell.output();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(9), "{}", stderr(&output));
    let stats = cell.cgroup.as_ref().unwrap().stats();
    assert!(stats.oom_kills > 0, "{stats:?}");
    assert!(stats.memory_peak_bytes <= cell.sandbox.limits.memory_bytes, "{stats:?}");
}

#[test]
fn the_file_bomb_in_memory_counts_as_memory() {
    let outside = Outside::start();
    let mut cell = outside.cell(Level::L3, &["disk_fill"]);
    cell.sandbox.limits.memory_bytes = 64 << 20;
    cell.sandbox.limits.disk_bytes = 1 << 30;
    let mut facts = outside.facts(&cell);
    facts["disk"] = json!(1 << 30);
    cell.sandbox.argv[4] = facts.to_string();
    let output = cell.output();
    assert!(!output.status.success(), "{}", stdout(&output));
    assert!(cell.cgroup.as_ref().unwrap().oom_kills() > 0);
}

#[test]
fn a_runaway_fork_bomb_is_gone_when_its_group_is_killed() {
    kills_a_fork_bomb(|cgroup| cgroup.kill().unwrap());
}

#[test]
fn a_fork_bomb_killed_by_and_by_makes_no_more_and_is_gone() {
    kills_a_fork_bomb(|cgroup| {
        let frozen = cgroup.freeze_if_many().unwrap();
        let before = cgroup.stats();
        frozen.kill().unwrap();
        assert!(cgroup.stats().pids <= before.pids, "{before:?} {:?}", cgroup.stats());
    });
}

#[test]
fn the_few_processes_of_a_worker_are_no_crowd() {
    let mut cell = Cell::new(Level::L3, &["/bin/sh", "-c", "echo on && exec sleep 60"], &[]);
    let mut worker = cell.spawn();
    worker.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
    let cgroup = cell.cgroup.as_ref().unwrap();
    assert!(cgroup.stats().pids > 0);
    assert!(cgroup.freeze_if_many().is_none());
    cgroup.kill().unwrap();
    worker.wait().unwrap();
}

fn kills_a_fork_bomb(kill: fn(&Cgroup)) {
    let scratch = scratch();
    let script = scratch.path().join("bomb.py");
    let bomb = "import os\nprint('on', flush=True)\nwhile True:\n try: os.fork()\n except OSError: pass\n";
    fs::write(&script, bomb).unwrap();
    let mut cell = Cell::python(Level::L3, &script, &[]);
    let mut worker = cell.spawn();
    worker.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
    let cgroup = cell.cgroup.as_ref().unwrap();
    assert!(within(Duration::from_secs(20), || cgroup.stats().pids >= 60), "{:?}", cgroup.stats());
    assert!(cgroup.stats().pids <= 64 + 1, "{:?}", cgroup.stats());
    kill(cgroup);
    worker.wait().unwrap();
    assert!(within(Duration::from_secs(30), || cgroup.stats().pids == 0), "{:?}", cgroup.stats());
}

/// Ensures that an excess fork is refused before the kernel has copied anything for it.
#[test]
fn a_user_namespace_of_its_own_counts_a_workers_processes() {
    let scratch = scratch();
    let script = scratch.path().join("limit.py");
    let look = "import resource\nprint(*open('/proc/self/uid_map').read().split(), *resource.getrlimit(resource.RLIMIT_NPROC))\n";
    fs::write(&script, look).unwrap();
    let mut cell = Cell::python(Level::L3, &script, &[]);
    cell.sandbox.limits.pids = 32;
    let uid = cell.sandbox.uid;
    let output = cell.output();
    // Its own user id is the only one there; the first process counts too.
    assert_eq!(stdout(&output), format!("{uid} {uid} 1 33 33\n"), "{}", stderr(&output));
}

/// Two supervisors on a machine may assign the same user id to a worker each.
#[test]
fn a_worker_full_of_processes_leaves_those_of_its_user_elsewhere_alone() {
    let scratch = scratch();
    let script = scratch.path().join("full.py");
    let bomb = "import os, signal\ntry:\n    while os.fork(): pass\nexcept OSError: print('full', flush=True)\nsignal.pause()\n";
    fs::write(&script, bomb).unwrap();
    let mut full = Cell::python(Level::L3, &script, &[]);
    let mut worker = full.spawn();
    worker.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    let mut other = Cell::new(Level::L3, &["/bin/sh", "-c", "/bin/true && echo started"], &[]);
    (other.sandbox.uid, other.sandbox.gid) = (full.sandbox.uid, full.sandbox.gid);
    other.sandbox.limits.pids = 8;
    let output = other.output();
    full.cgroup.as_ref().unwrap().kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(stdout(&output), "started\n", "{}", stderr(&output));
}

fn run(cell: &mut Cell) -> BTreeMap<String, String> {
    results(&cell.output())
}

fn results(output: &std::process::Output) -> BTreeMap<String, String> {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{}: {}", output.status, stderr(output)))
}

fn assert_denied(probes: &[&str], results: &BTreeMap<String, String>) {
    let allowed: Vec<_> = probes.iter().filter(|probe| !results[**probe].starts_with("denied")).collect();
    assert!(allowed.is_empty(), "allowed: {allowed:?} of {results:#?}");
}

/// Targets outside that must not be reached: listeners, files, and another worker.
struct Outside {
    neighbour: Child,
    neighbour_pid: u32,
    neighbour_cell: Cell,
    path_socket: PathBuf,
    abstract_name: String,
    ports: [u16; 4],
    script: PathBuf,
    dir: TempDir,
}

impl Outside {
    fn start() -> Outside {
        let dir = scratch();
        let path = |name: &str| dir.path().join(name);
        let script = path("isolation.py");
        let path_socket = path("outside.sock");
        let holder = path("neighbour.py");
        fs::write(&script, include_str!("isolation.py")).unwrap();
        fs::write(path("secret"), "secret").unwrap();
        fs::create_dir(path("code")).unwrap();
        fs::copy("/usr/bin/id", path("code").join("id")).unwrap();
        fs::set_permissions(path("code").join("id"), fs::Permissions::from_mode(0o4755)).unwrap();

        let listener = UnixListener::bind(&path_socket).unwrap();
        fs::set_permissions(&path_socket, fs::Permissions::from_mode(0o777)).unwrap();
        let abstract_name = format!("asp-launcher-{}", dir.path().display());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let abstract_listener = UnixListener::bind_addr(&address).unwrap();
        for listener in [listener, abstract_listener] {
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

        fs::write(&holder, NEIGHBOUR).unwrap();
        let mut neighbour_cell = Cell::python(Level::L3, &holder, &[]);
        neighbour_cell.sandbox.env.insert("ASP_MARK".to_owned(), abstract_name.clone());
        let socket = neighbour_cell.sandbox.run_dir.join("s").display().to_string();
        neighbour_cell.sandbox.argv.push(socket);
        let mut neighbour = neighbour_cell.spawn();
        neighbour.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let neighbour_pid = descendant(neighbour.id());
        Outside { neighbour, neighbour_pid, neighbour_cell, path_socket, abstract_name, ports, script, dir }
    }

    fn cell(&self, level: Level, probes: &[&str]) -> Cell {
        let mut cell = Cell::python(level, &self.script, &[]);
        cell.sandbox.read_only.push(self.dir.path().join("code"));
        cell.sandbox.limits.memory_bytes = 128 << 20;
        cell.sandbox.argv.push(self.facts(&cell).to_string());
        cell.sandbox.argv.extend(probes.iter().map(|probe| (*probe).to_owned()));
        cell
    }

    fn facts(&self, cell: &Cell) -> Value {
        let [tcp, tcp6, metadata, udp] = self.ports;
        let code = self.dir.path().join("code");
        let limits = &cell.sandbox.limits;
        let neighbours_socket = self.neighbour_cell.sandbox.run_dir.join("s");
        json!({
            "tcp": tcp, "tcp6": tcp6, "udp": udp, "metadata_host": "127.169.254.169", "metadata": metadata,
            "abstract": self.abstract_name, "path_socket": self.path_socket,
            "neighbour": self.neighbour_pid, "neighbour_mark": format!("ASP_MARK={}", self.abstract_name),
            "neighbour_file": self.neighbour_cell.sandbox.work_dir.join("file"),
            "neighbour_socket": format!("/proc/{}/root{}", self.neighbour_pid, neighbours_socket.display()),
            "supervisor": std::process::id(), "first": 1, "outside_file": self.dir.path().join("secret"),
            "code_dir": code, "set_user_id_program": code.join("id"),
            "run_dir": cell.sandbox.run_dir, "writable": cell.sandbox.work_dir,
            "pids": limits.pids, "files": limits.files, "disk": limits.disk_bytes, "memory": limits.memory_bytes,
        })
    }

    /// Control: without a sandbox every probe succeeds.
    fn assert_control(&self, probes: &[&str]) {
        let cell = Cell::python(Level::L3, &self.script, &[]);
        let mut facts = self.facts(&cell);
        // The machine's own first process may be out of root's reach too; this one stands for it.
        facts["first"] = json!(self.neighbour.id());
        let output = Command::new(&python().program)
            .args(["-I", "-B", self.script.to_str().unwrap(), &facts.to_string()])
            .args(probes)
            .output()
            .unwrap();
        let results = results(&output);
        let denied: Vec<_> = probes.iter().filter(|probe| results[**probe] != "allowed").collect();
        assert!(denied.is_empty(), "denied outside: {denied:?} of {results:#?}");
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.neighbour.kill().unwrap();
        self.neighbour.wait().unwrap();
    }
}

/// Keeps a secret in its environment and in a file, and listens.
const NEIGHBOUR: &str = "import os, socket, sys, signal\n\
                         open('file', 'w').write('secret')\n\
                         s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n\
                         print('ready', flush=True)\n\
                         signal.pause()\n";

/// Reads up to a line and sends it back.
fn echo(mut stream: impl Read + Write) {
    let mut buffer = [0; 64];
    if let Ok(length) = stream.read(&mut buffer) {
        let _ = stream.write_all(&buffer[..length]);
    }
}

/// Returns the last process in the chain of only children that begins at `pid`: the worker itself, seen from outside.
fn descendant(pid: u32) -> u32 {
    let children = fs::read_to_string(Path::new("/proc").join(format!("{pid}/task/{pid}/children"))).unwrap();
    match children.split_whitespace().next() {
        Some(child) => descendant(child.parse().unwrap()),
        None => pid,
    }
}
