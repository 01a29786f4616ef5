//! Control groups: effective bounds, correct accounting, and complete removal.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::time::Duration;

use asp_launcher::{Cgroups, Level, Limits};

use crate::harness::{Cell, scratch, within};

const LIMITS: Limits = Limits {
    memory_bytes: 64 << 20,
    cpu_millis: 500,
    pids: 10,
    files: 64,
    disk_bytes: 1 << 20,
    file_bytes: 1 << 20,
    cpu_seconds: None,
};

#[test]
fn a_group_is_gone_when_its_value_is() {
    let cgroups = Cgroups::open().unwrap();
    let before = groups_of(std::process::id());
    assert!(!before.is_empty());
    let cgroup = cgroups.create("one", &LIMITS).unwrap();
    assert!(groups_named("one", &before).len() >= 3, "memory, pids, cpu");
    drop(cgroup);
    assert_eq!(groups_named("one", &before), Vec::<PathBuf>::new());
    let cgroup = cgroups.create("one", &LIMITS).unwrap();
    cgroup.remove().unwrap();
    assert_eq!(groups_named("one", &before), Vec::<PathBuf>::new());
}

#[test]
fn a_name_is_used_once_and_cannot_lead_elsewhere() {
    let cgroups = Cgroups::open().unwrap();
    let _first = cgroups.create("w1", &LIMITS).unwrap();
    assert!(cgroups.create("w1", &LIMITS).is_err());
    for name in ["", "..", "a/b", "/", "a b", "ä", &"x".repeat(65)] {
        assert!(cgroups.create(name, &LIMITS).is_err(), "{name:?}");
    }
}

#[test]
fn a_busy_loop_gets_its_share_of_a_processor_and_no_more() {
    let scratch = scratch();
    let script = scratch.path().join("busy.py");
    fs::write(&script, "print('on', flush=True)\nwhile True: pass\n").unwrap();
    let mut cell = Cell::python(Level::L3, &script, &[]);
    cell.sandbox.limits.cpu_millis = 100;
    let mut worker = cell.spawn();
    worker.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
    let cgroup = cell.cgroup.as_ref().unwrap();
    let begin = std::time::Instant::now();
    let used = cgroup.stats().cpu_ms;
    assert!(within(Duration::from_secs(30), || cgroup.stats().cpu_ms >= used + 100), "{:?}", cgroup.stats());
    // 100 ms of processor time at a tenth of a processor take a second; half of that is clearly bounded.
    assert!(begin.elapsed() > Duration::from_millis(500), "{:?}", begin.elapsed());
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn the_books_tell_memory_processes_and_time() {
    let scratch = scratch();
    let script = scratch.path().join("hold.py");
    fs::write(&script, "held = bytearray(b'x' * (40 << 20))\nprint('on', flush=True)\ninput()\n").unwrap();
    let mut cell = Cell::python(Level::L3, &script, &[]);
    let mut worker = cell.command().stdin(std::process::Stdio::piped()).spawn().unwrap();
    worker.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
    let stats = cell.cgroup.as_ref().unwrap().stats();
    assert!(stats.rss_bytes > 40 << 20 && stats.rss_bytes < 80 << 20, "{stats:?}");
    assert!(stats.memory_bytes >= stats.rss_bytes, "{stats:?}");
    assert!(stats.memory_peak_bytes >= stats.memory_bytes, "{stats:?}");
    // The first process and Python.
    assert_eq!(stats.pids, 2, "{stats:?}");
    assert!(stats.cpu_ms > 0 && stats.oom_kills == 0, "{stats:?}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn what_a_killed_supervisor_left_is_swept() {
    let own = groups_base();
    // No process has this id: Linux's are below 2^22.
    let left: Vec<PathBuf> = own.iter().map(|dir| dir.join("asp-99999999-0")).collect();
    for dir in &left {
        // Another test may remove its groups before it has a worker.
        let made = within(Duration::from_secs(30), || match fs::create_dir_all(dir.join("worker")) {
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            made => made.map(|()| true).unwrap(),
        });
        assert!(made, "{}", dir.display());
    }
    let kept: Vec<PathBuf> = own.iter().map(|dir| dir.join("asp-other")).collect();
    for dir in &kept {
        fs::create_dir(dir).unwrap();
    }
    let cgroups = Cgroups::open().unwrap();
    let found: Vec<_> = left.iter().filter(|dir| dir.exists()).collect();
    let missing: Vec<_> = kept.iter().filter(|dir| !dir.exists()).collect();
    kept.iter().for_each(|dir| fs::remove_dir(dir).unwrap());
    assert!(found.is_empty(), "{found:?}");
    assert!(missing.is_empty(), "{missing:?}");
    drop(cgroups);
}

/// Returns the directories of this process's groups below which workers' groups are created.
fn groups_base() -> Vec<PathBuf> {
    let cgroups = Cgroups::open().unwrap();
    let base = groups_of(std::process::id()).iter().map(|dir| dir.parent().unwrap().to_path_buf()).collect();
    drop(cgroups);
    base
}

fn groups_of(pid: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    search(&PathBuf::from("/sys/fs/cgroup"), &format!("asp-{pid}-"), 8, &mut found);
    let mut parents: Vec<PathBuf> = Vec::new();
    for dir in found {
        if !parents.iter().any(|seen| seen.parent() == dir.parent()) {
            parents.push(dir);
        }
    }
    parents
}

fn groups_named(name: &str, parents: &[PathBuf]) -> Vec<PathBuf> {
    let bases = parents.iter().filter_map(|dir| dir.parent());
    let own: Vec<PathBuf> =
        bases.flat_map(|base| fs::read_dir(base).unwrap().flatten()).map(|e| e.path()).collect();
    own.into_iter().map(|dir| dir.join(name)).filter(|dir| dir.exists()).collect()
}

fn search(dir: &PathBuf, prefix: &str, depth: u32, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || depth == 0 {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        } else {
            search(&entry.path(), prefix, depth - 1, found);
        }
    }
}
