//! Start, termination and end of a worker, and complete cleanup.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use asp_launcher::{Cgroups, EXIT_SETUP, Level};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Cell, SCRATCH_VARIABLE, scratch, stderr, stdout, within};

/// Time limit for actions that the kernel does at once; `make chaos` measures how soon.
const GUARD: Duration = Duration::from_secs(30);
const LEVELS: [Level; 3] = [Level::L1, Level::L2, Level::L3];
/// Variable for the process that plays the supervisor: the level of its worker.
const SUPERVISOR_VARIABLE: &str = "ASP_TEST_SUPERVISOR_OF";

fn shell(level: Level, script: &str) -> Cell {
    Cell::new(level, &["/bin/sh", "-c", script], &[])
}

#[test]
fn the_workers_exit_code_is_the_launchers() {
    for level in LEVELS {
        let output = shell(level, "exit 143").output();
        assert_eq!(output.status.code(), Some(143), "{level:?}: {}", stderr(&output));
    }
}

#[test]
fn the_signal_that_ended_the_worker_ends_the_launcher() {
    for level in LEVELS {
        for signal in [Signal::SIGKILL, Signal::SIGSEGV, Signal::SIGTERM] {
            let output = shell(level, &format!("kill -{} $$", signal as i32)).output();
            assert_eq!(output.status.signal(), Some(signal as i32), "{level:?}: {}", stderr(&output));
            assert!(!output.status.core_dumped());
        }
    }
}

#[test]
fn sigterm_reaches_the_worker() {
    for level in LEVELS {
        let mut cell =
            shell(level, "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
        let mut worker = cell.spawn();
        let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        kill(pid_of(&worker), Signal::SIGTERM).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "asked", "{level:?}");
        assert_eq!(worker.wait().unwrap().code(), Some(3), "{level:?}");
    }
}

#[test]
fn signals_that_the_supervisor_ignores_are_not_ignored_by_the_worker() {
    use nix::sys::signal::{SigHandler, signal};
    for level in LEVELS {
        let mut cell = shell(level, "grep -E '^Sig(Ign|Blk)' /proc/self/status; exit 4");
        let mut command = cell.command();
        let ignore = || {
            for ignored in [Signal::SIGCHLD, Signal::SIGHUP, Signal::SIGINT, Signal::SIGPIPE, Signal::SIGUSR1]
            {
                // SAFETY: ignoring runs no code.
                #[allow(unsafe_code)]
                unsafe { signal(ignored, SigHandler::SigIgn) }?;
            }
            Ok(())
        };
        // SAFETY: only system calls are made.
        #[allow(unsafe_code)]
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, ignore);
        }
        let output = command.output().unwrap();
        for line in stdout(&output).lines() {
            let mask = u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap();
            // Higher numbers are the real-time signals, of which the C library keeps two for itself.
            assert_eq!(mask & 0x7fff_ffff, 0, "{level:?}: {line}");
        }
        assert_eq!(stdout(&output).lines().count(), 2);
        assert_eq!(output.status.code(), Some(4));
    }
}

#[test]
fn the_environment_is_exactly_what_is_described() {
    for level in LEVELS {
        let mut cell = Cell::new(level, &["/usr/bin/env"], &[]);
        cell.sandbox.env = [("ASP_WORKER_ID", "w 1"), ("LANG", "C.UTF-8")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let output = cell.output();
        assert_eq!(stdout(&output), "ASP_WORKER_ID=w 1\nLANG=C.UTF-8\n", "{level:?}: {}", stderr(&output));
    }
}

#[test]
fn the_standard_streams_are_the_callers_and_no_other_descriptor_is_open() {
    for level in LEVELS {
        let mut cell = shell(level, "read token; echo got $token; ls /proc/self/fd | tr '\\n' ' '");
        let mut worker = cell.command().stdin(Stdio::piped()).spawn().unwrap();
        worker.stdin.take().unwrap().write_all(b"secret\n").unwrap();
        let output = worker.wait_with_output().unwrap();
        // The fourth is `ls` itself.
        assert_eq!(stdout(&output), "got secret\n0 1 2 3 ", "{level:?}: {}", stderr(&output));
    }
}

#[test]
fn the_worker_starts_in_its_directory_as_its_user_under_its_host_name() {
    let mut cell =
        shell(Level::L3, "pwd; id -u; id -g; id -G; cat /proc/sys/kernel/hostname; uname -n; id -un");
    let output = cell.output();
    let uid = cell.sandbox.uid;
    let work_dir = cell.sandbox.work_dir.display();
    // `/proc/sys` does not exist; `id -un` finds the generated /etc/passwd.
    let expected = format!("{work_dir}\n{uid}\n{uid}\n{uid}\nworker\nworker\n");
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

#[test]
fn bounds_are_read_back_from_the_process() {
    for level in LEVELS {
        let mut cell = shell(level, "ulimit -n; ulimit -c; ulimit -t; ulimit -f; ulimit -v");
        cell.sandbox.limits.files = 77;
        cell.sandbox.limits.cpu_seconds = Some(11);
        cell.sandbox.limits.file_bytes = 1 << 20;
        let output = cell.output();
        // `ulimit -f` counts blocks of 512 bytes; the address space has no bound.
        assert_eq!(stdout(&output), "77\n0\n11\n2048\nunlimited\n", "{level:?}: {}", stderr(&output));
    }
}

/// A limit of 0 bytes would not keep a dump from a program that `core_pattern` pipes it to; 1 does (core(5)).
#[test]
fn a_worker_that_crashes_leaves_no_dump_not_even_to_a_pipe() {
    for level in LEVELS {
        let output = shell(level, "grep '^Max core' /proc/self/limits | tr -s ' '").output();
        assert_eq!(stdout(&output).trim(), "Max core file size 1 1 bytes", "{level:?}: {}", stderr(&output));
    }
}

#[test]
fn the_work_directory_is_empty_writable_and_gone_afterwards() {
    let mut cell = shell(
        Level::L3,
        "ls -A; echo x > file; mkdir d; cat file; df -k . | tail -1 | tr -s ' ' | cut -d' ' -f2",
    );
    fs::write(cell.sandbox.work_dir.join("outside"), "").unwrap();
    let output = cell.output();
    assert_eq!(stdout(&output), "x\n8192\n", "{}", stderr(&output));
    assert!(!cell.sandbox.work_dir.join("file").exists());
    assert!(cell.sandbox.work_dir.join("outside").exists());
}

#[test]
fn every_namespace_is_the_workers_own() {
    let names = ["mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let script = names.map(|name| format!("readlink /proc/self/ns/{name}")).join(";");
    let output = shell(Level::L3, &script).output();
    let inside: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(inside.len(), names.len(), "{}", stderr(&output));
    for (name, inside) in names.into_iter().zip(inside) {
        let outside = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert_ne!(outside.display().to_string(), inside);
        assert!(inside.starts_with(name));
    }
}

#[test]
fn every_mount_but_the_workers_own_is_read_only_and_none_lends_rights() {
    let mut cell = shell(Level::L3, "cat /proc/self/mountinfo");
    cell.sandbox.read_only.push(Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf());
    let output = cell.output();
    let text = stdout(&output);
    let mounts: Vec<(&Path, Vec<&str>)> = text
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .map(|fields| (Path::new(fields[4]), fields[5].split(',').collect()))
        .collect();
    assert!(mounts.len() >= 10, "{text}{}", stderr(&output));
    for (path, options) in mounts {
        let own = path == cell.sandbox.work_dir || path == cell.sandbox.run_dir || path == Path::new("/proc");
        assert!(own || options.contains(&"ro"), "{}: {options:?}", path.display());
        assert!(options.contains(&"nosuid"), "{}: {options:?}", path.display());
        let device = path.starts_with("/dev");
        let programs = path.starts_with("/usr");
        assert!(device || options.contains(&"nodev"), "{}: {options:?}", path.display());
        assert!(!programs || !options.contains(&"noexec"), "{}: {options:?}", path.display());
    }
}

#[test]
fn temporary_files_and_shared_memory_count_as_work_files() {
    let mut cell = shell(Level::L3, "echo b > /dev/shm/s; echo a > /tmp/t; ls");
    let output = cell.output();
    // If the worker's own directories lie below /tmp, /tmp exists for them.
    let expected = if cell.sandbox.work_dir.starts_with("/tmp") { "s\n" } else { "s\nt\n" };
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

#[test]
fn the_run_directory_takes_a_socket_that_the_supervisor_reaches() {
    let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\n\
                  print('ready', flush=True)\nc, _ = s.accept()\nc.sendall(c.recv(64))\n";
    for level in LEVELS {
        let scratch = scratch();
        let path = scratch.path().join("server.py");
        fs::write(&path, script).unwrap();
        let mut cell = Cell::python(level, &path, &[]);
        let socket = cell.sandbox.run_dir.join("worker.sock");
        cell.sandbox.argv.push(socket.display().to_string());
        let mut launch = cell.launch();
        let mut worker = launch.command.spawn().unwrap();
        let mut ready = [0; 6];
        worker.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let reported =
            launch.report.run_dir().map(|dir| format!("/proc/self/fd/{}/worker.sock", dir.as_raw_fd()));
        assert_eq!(reported.is_some(), level == Level::L3, "{level:?}");
        let path = reported.map_or(socket.clone(), Into::into);
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello", "{level:?}");
        assert!(worker.wait().unwrap().success());
    }
}

#[test]
fn a_worker_that_makes_sockets_without_end_takes_none_of_the_machines_inodes() {
    let script = "import os, socket, sys\nmade = 0\ntry:\n    for number in range(500):\n        \
                  s = socket.socket(socket.AF_UNIX); s.bind(f'{sys.argv[1]}/{number}'); s.close(); made += 1\n\
                  except OSError as error: print(error.strerror)\nprint(made)\n";
    for level in [Level::L2, Level::L3] {
        let scratch = scratch();
        let path = scratch.path().join("bind.py");
        fs::write(&path, script).unwrap();
        let mut cell = Cell::python(level, &path, &[]);
        cell.sandbox.argv.push(cell.sandbox.run_dir.display().to_string());
        let output = cell.output();
        let said = stdout(&output);
        let outside = fs::read_dir(&cell.sandbox.run_dir).unwrap().count();
        match level {
            // Control: without a file system of its own nothing stops it.
            Level::L1 | Level::L2 => {
                assert_eq!((said.as_str(), outside), ("500\n", 500), "{}", stderr(&output))
            }
            Level::L3 => assert_eq!(
                (said.as_str(), outside),
                ("No space left on device\n15\n", 0),
                "{}",
                stderr(&output)
            ),
        }
    }
}

#[test]
fn what_the_worker_leaves_running_dies_with_it() {
    for level in LEVELS {
        let scratch = scratch();
        let mark = scratch.path().join("mark").display().to_string();
        // Forked twice and in a session of its own, it has no parent here.
        let mut cell = shell(level, "(setsid sleep 300 >/dev/null 2>&1 &); echo ready; read line; exit 0");
        cell.sandbox.env.insert("MARK".to_owned(), mark.clone());
        let mut worker = cell.command().stdin(Stdio::piped()).spawn().unwrap();
        worker.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        assert!(within(GUARD, || marked(&mark).len() == 2), "{:?}", marked(&mark));
        worker.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(worker.wait().unwrap().success());
        assert!(within(GUARD, || marked(&mark).is_empty()), "{level:?}: {:?}", marked(&mark));
    }
}

#[test]
fn sighup_kills_the_worker_and_all_it_started() {
    for level in LEVELS {
        let scratch = scratch();
        let mark = scratch.path().join("mark").display().to_string();
        let script = "trap '' HUP TERM INT; (setsid sleep 300 >/dev/null 2>&1 &); echo ready; read line";
        let mut cell = shell(level, script);
        cell.sandbox.env.insert("MARK".to_owned(), mark.clone());
        let mut worker = cell.command().stdin(Stdio::piped()).spawn().unwrap();
        worker.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let _open = worker.stdin.take();
        kill(pid_of(&worker), Signal::SIGHUP).unwrap();
        assert_eq!(worker.wait().unwrap().signal(), Some(9), "{level:?}");
        assert!(within(GUARD, || marked(&mark).is_empty()), "{level:?}: {:?}", marked(&mark));
    }
}

#[test]
fn a_killed_watcher_takes_the_whole_level_3_sandbox_with_it() {
    let scratch = scratch();
    let mark = scratch.path().join("mark").display().to_string();
    let mut cell = shell(Level::L3, "(setsid sleep 300 >/dev/null 2>&1 &); echo ready; read line");
    cell.sandbox.env.insert("MARK".to_owned(), mark.clone());
    let mut worker = cell.command().stdin(Stdio::piped()).spawn().unwrap();
    worker.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    let _open = worker.stdin.take();
    assert!(within(GUARD, || marked(&mark).len() == 2), "{:?}", marked(&mark));
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(within(GUARD, || marked(&mark).is_empty()), "{:?}", marked(&mark));
}

/// The test runs itself once more for each level, as the supervisor that is killed.
#[test]
fn a_killed_supervisor_leaves_no_orphan() {
    if let Ok(number) = std::env::var(SUPERVISOR_VARIABLE) {
        return wait_to_be_killed(&number);
    }
    for level in LEVELS {
        let scratch = scratch();
        let mark = scratch.path().join("mark").display().to_string();
        let test = "lifecycle::a_killed_supervisor_leaves_no_orphan";
        let mut supervisor = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(SUPERVISOR_VARIABLE, level.number().to_string())
            .env("ASP_TEST_MARK", &mark)
            .env(SCRATCH_VARIABLE, scratch.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(supervisor.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("worker is ready")));
        // The worker and its child; a process in exec shows no environment for a moment.
        assert!(within(GUARD, || marked(&mark).len() >= 2), "{level:?}: {:?}", marked(&mark));
        kill(pid_of(&supervisor), Signal::SIGKILL).unwrap();
        supervisor.wait().unwrap();
        assert!(within(GUARD, || marked(&mark).is_empty()), "{level:?}: {:?}", marked(&mark));
    }
    // Removes the groups that the killed ones left.
    drop(Cgroups::open().unwrap());
}

/// Plays the supervisor, in a process of its own.
fn wait_to_be_killed(level: &str) {
    let level = LEVELS.into_iter().find(|known| known.number().to_string() == level).unwrap();
    let mut cell =
        shell(level, "setsid sleep 300 & echo ready; trap '' TERM HUP INT; while :; do sleep 300; done");
    cell.sandbox.env.insert("MARK".to_owned(), std::env::var("ASP_TEST_MARK").unwrap());
    let mut worker = cell.spawn();
    let mut line = String::new();
    BufReader::new(worker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    println!("worker is {line}");
    worker.wait().unwrap();
}

#[test]
fn the_thread_that_started_a_worker_may_end() {
    let mut cell = shell(Level::L3, "read line; exit 5");
    let mut worker = std::thread::scope(|scope| {
        scope.spawn(|| cell.command().stdin(Stdio::piped()).spawn().unwrap()).join().unwrap()
    });
    // If it were bound to the thread, it would be dead before it could read.
    worker.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(worker.wait().unwrap().code(), Some(5));
}

#[test]
fn a_sandbox_that_cannot_be_built_names_the_step() {
    let absent = Path::new("/nonexistent/dir");
    let mut cell = Cell::new(Level::L3, &["/bin/true"], &[absent]);
    assert_setup_failed(&mut cell, "mounts");
    let mut cell = Cell::new(Level::L3, &["/nonexistent/program"], &[]);
    assert_setup_failed(&mut cell, "exec");
    let mut cell = Cell::new(Level::L3, &["/bin/true"], &[]);
    let scratch = scratch();
    let proxy_socket = scratch.path().join("absent");
    cell.sandbox.egress = Some(asp_launcher::Egress { proxy_socket, port: 3128, tcp: Vec::new() });
    assert_setup_failed(&mut cell, "egress");
}

#[test]
fn a_worker_whose_control_group_is_gone_does_not_start() {
    let mut cell = shell(Level::L3, "echo started");
    let mut command = cell.command();
    cell.cgroup = None;
    let output = command.output().unwrap();
    assert_eq!(stdout(&output), "");
    assert_failed_at(&output, "cgroup");
}

#[test]
fn a_start_without_a_description_is_refused() {
    for argument in ["--description=999", "--description=0", "--description=4294967295"] {
        let output = Command::new(crate::harness::worker_init()).arg(argument).output().unwrap();
        assert_failed_at(&output, "description");
    }
    let output = Command::new(crate::harness::worker_init()).arg("/bin/sh").output().unwrap();
    assert_eq!(output.status.code(), Some(64));
}

fn assert_setup_failed(cell: &mut Cell, step: &str) {
    assert_failed_at(&cell.output(), step);
}

fn assert_failed_at(output: &std::process::Output, step: &str) {
    assert_eq!(output.status.code(), Some(EXIT_SETUP), "{}", stderr(output));
    let line: serde_json::Value = serde_json::from_str(stderr(output).trim()).unwrap();
    assert_eq!(line["workerInit"], "failed");
    assert_eq!(line["step"], step, "{line}");
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

/// Returns the processes with `MARK=<mark>` in their environment.
fn marked(mark: &str) -> Vec<String> {
    let mark = format!("MARK={mark}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let environment = |path: &Path| fs::read(path.join("environ")).unwrap_or_default();
    processes
        .map(|entry| entry.path())
        .filter(|path| environment(path).split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
        .map(|path| path.display().to_string())
        .collect()
}
