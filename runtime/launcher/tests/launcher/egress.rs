//! The egress of a worker that has one.

use std::fs;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread;

use asp_launcher::{Egress, Level, TcpEgress};

use crate::harness::{Cell, is_root, scratch, stderr, stdout};

const PORT: u16 = 3128;

/// Sends more than fits any buffer, closes the writing side, and reads all of it back; several at once.
const CLIENT: &str = "import socket, sys, threading, hashlib\n\
    sent = bytes(range(256)) * 8192\n\
    def one(results, i):\n    \
        s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n    \
        def send():\n        \
            s.sendall(sent); s.shutdown(socket.SHUT_WR)\n    \
        t = threading.Thread(target=send); t.start()\n    \
        got = b''.join(iter(lambda: s.recv(65536), b'')); t.join()\n    \
        results[i] = got == sent\n\
    results = [False] * 8\n\
    threads = [threading.Thread(target=one, args=(results, i)) for i in range(8)]\n\
    [t.start() for t in threads]; [t.join() for t in threads]\n\
    print(all(results))\n";

fn client(script: &str, proxy_socket: PathBuf) -> (Cell, tempfile::TempDir) {
    let scratch = scratch();
    let path = scratch.path().join("client.py");
    fs::write(&path, script).unwrap();
    let mut cell = Cell::python(Level::L3, &path, &[&PORT.to_string()]);
    if is_root() {
        chown(&proxy_socket, Some(cell.sandbox.uid), None).unwrap();
    }
    fs::set_permissions(&proxy_socket, fs::Permissions::from_mode(0o600)).unwrap();
    cell.sandbox.egress = Some(Egress { proxy_socket, port: PORT, tcp: Vec::new() });
    (cell, scratch)
}

#[test]
fn connections_to_the_port_reach_the_proxy_and_nothing_is_lost() {
    let outside = scratch();
    let socket = outside.path().join("proxy.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut back = stream.try_clone().unwrap();
                std::io::copy(&mut stream, &mut back).unwrap();
                back.shutdown(std::net::Shutdown::Write).unwrap();
            });
        }
    });
    let (mut cell, _scratch) = client(CLIENT, socket);
    let output = cell.output();
    assert_eq!(stdout(&output), "True\n", "{}", stderr(&output));
}

#[test]
fn a_destination_is_reached_by_its_name_and_port_and_by_no_other() {
    let outside = scratch();
    let proxy = outside.path().join("proxy.sock");
    let database = outside.path().join("t0");
    let _proxy = UnixListener::bind(&proxy).unwrap();
    let listener = UnixListener::bind(&database).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            stream.unwrap().write_all(b"database").unwrap();
        }
    });
    let script = "import socket\n\
                  for host, port in (('db.example', 389), ('db.example', 390), ('127.0.0.1', 389)):\n    \
                      try: print(socket.create_connection((host, port)).recv(64))\n    \
                      except OSError as error: print(type(error).__name__)\n";
    let (mut cell, _scratch) = client(script, proxy);
    if is_root() {
        chown(&database, Some(cell.sandbox.uid), None).unwrap();
    }
    let address = Ipv4Addr::new(127, 0, 1, 1);
    let to = TcpEgress { socket: database, host: "db.example".to_owned(), address, port: 389 };
    cell.sandbox.egress.as_mut().unwrap().tcp.push(to);
    let output = cell.output();
    let expected = "b'database'\nPermissionError\nConnectionRefusedError\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

#[test]
fn an_answer_of_a_proxy_that_reads_no_more_arrives() {
    let outside = scratch();
    let socket = outside.path().join("proxy.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let script = "import socket, sys\n\
                  s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
                  try:\n    \
                      while True: s.send(bytes(65536))\n\
                  except OSError: pass\n\
                  print(s.recv(64))\n";
    let (mut cell, _scratch) = client(script, socket);
    let worker = cell.spawn();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    stream.write_all(b"refused").unwrap();
    drop(stream);
    let output = worker.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "b'refused'\n", "{}", stderr(&output));
}

#[test]
fn without_a_proxy_the_connection_ends() {
    let outside = scratch();
    let socket = outside.path().join("proxy.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let script = "import socket, sys\n\
                  for _ in range(3):\n    \
                      s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n    \
                      try: print(s.recv(1))\n    \
                      except ConnectionResetError: print(b'')\n";
    let (mut cell, _scratch) = client(script, socket);
    let output = cell.output();
    assert_eq!(stdout(&output), "b''\nb''\nb''\n", "{}", stderr(&output));
}

#[test]
fn the_proxy_sees_the_connection_end_when_the_worker_does() {
    let outside = scratch();
    let socket = outside.path().join("proxy.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let script = "import socket, sys, os, signal\n\
                  s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
                  s.sendall(b'x'); s.recv(1); os.kill(os.getpid(), signal.SIGKILL)\n";
    let (mut cell, _scratch) = client(script, socket);
    let mut worker = cell.spawn();
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    stream.write_all(b"y").unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    assert!(!worker.wait().unwrap().success());
}

#[test]
fn only_the_loopback_exists_and_other_ports_and_hosts_do_not_answer() {
    let outside = scratch();
    let socket = outside.path().join("proxy.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let script = "import socket\n\
                  print(\
                  sorted(line.split(':')[0].strip() for line in open('/proc/self/net/dev').readlines()[2:]))\n\
                  for address in (('127.0.0.1', 3129), ('192.0.2.1', 80), ('169.254.169.254', 80)):\n    \
                      try: socket.create_connection(address, 1); print('connected')\n    \
                      except OSError as error: print(type(error).__name__)\n";
    let (mut cell, _scratch) = client(script, socket);
    let output = cell.output();
    // Landlock refuses every port but one, before the network could report that there is no route.
    let expected = "['lo']\nPermissionError\nPermissionError\nPermissionError\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

/// Script that tries a socket of each family, type and protocol and prints those that are allowed.
const SOCKETS: &str = "import socket, sys\n\
    tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM\n\
    kinds = {'tcp': (tcp, 0), 'tcp by number': (tcp, 6), 'udp': (udp, 0), 'udp by number': (udp, 17),\n\
             'mptcp': (tcp, 262), 'sctp': (tcp, 132), 'smc': (tcp, 256), 'l2tp': (udp, 115), 'udplite': (udp, 136),\n\
             'ping': (udp, 1), 'raw': (socket.SOCK_RAW, 6), 'tcp of another type': (15, 6)}\n\
    for name, (kind, protocol) in kinds.items():\n    \
        for family in (socket.AF_INET, socket.AF_INET6):\n        \
            try: socket.socket(family, kind, protocol).close(); print(name)\n        \
            except OSError as error: pass\n";

#[test]
fn sockets_are_those_of_tcp_and_udp_alone() {
    let outside = scratch();
    let proxy = outside.path().join("proxy.sock");
    let _listener = UnixListener::bind(&proxy).unwrap();
    let (mut cell, dir) = client(SOCKETS, proxy);
    let inside = stdout(&cell.output());
    let given =
        ["tcp", "tcp", "tcp by number", "tcp by number", "udp", "udp", "udp by number", "udp by number"];
    assert_eq!(inside.lines().collect::<Vec<_>>(), given);
    let script = dir.path().join("client.py");
    let control = std::process::Command::new(&crate::harness::python().program).arg(script).output().unwrap();
    for refused in ["mptcp", "raw"] {
        assert!(stdout(&control).lines().any(|line| line == refused), "{}", stdout(&control));
    }
}
