//! Reads and writes of the files of each version, on files that stand for the kernel's. The crate's integration tests
//! use real groups, of the version that the machine has.

use tempfile::TempDir;

use super::*;

const LIMITS: Limits = Limits {
    memory_bytes: 1 << 30,
    cpu_millis: 1500,
    pids: 64,
    files: 256,
    disk_bytes: 1 << 20,
    file_bytes: 1 << 20,
    cpu_seconds: None,
};

fn group(place: fn(PathBuf) -> VersionedDir) -> (TempDir, Cgroup) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_path_buf();
    let dirs = Dirs {
        memory: place(path.clone()),
        pids: place(path.clone()),
        cpu: place(path.clone()),
        cpu_time: None,
        unified: None,
    };
    // The test owns its directory.
    (dir, Cgroup { dirs, removed: true })
}

fn put(dir: &TempDir, files: &[(&str, &str)]) {
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
}

fn read(dir: &TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).unwrap_or_else(|_| "absent".to_owned())
}

#[test]
fn version_2_has_its_bounds() {
    let (dir, cgroup) = group(VersionedDir::V2);
    put(&dir, &[("memory.swap.max", "max")]);
    cgroup.limit(&LIMITS).unwrap();
    assert_eq!(read(&dir, "memory.max"), "1073741824");
    assert_eq!(read(&dir, "memory.swap.max"), "0");
    assert_eq!(read(&dir, "memory.oom.group"), "1");
    assert_eq!(read(&dir, "pids.max"), "65");
    assert_eq!(read(&dir, "cpu.max"), "150000 100000");
}

#[test]
fn version_1_has_its_bounds() {
    let (dir, cgroup) = group(VersionedDir::V1);
    cgroup.limit(&LIMITS).unwrap();
    assert_eq!(read(&dir, "memory.limit_in_bytes"), "1073741824");
    assert_eq!(read(&dir, "memory.memsw.limit_in_bytes"), "absent");
    assert_eq!(read(&dir, "pids.max"), "65");
    assert_eq!(read(&dir, "cpu.cfs_period_us"), "100000");
    assert_eq!(read(&dir, "cpu.cfs_quota_us"), "150000");
}

#[test]
fn the_books_of_version_2_are_read() {
    let (dir, cgroup) = group(VersionedDir::V2);
    put(
        &dir,
        &[
            ("cpu.stat", "usage_usec 1234567\nuser_usec 1\n"),
            ("memory.stat", "anon_thp 5\nanon 4096\nfile 2\n"),
            ("memory.current", "8192\n"),
            ("memory.peak", "16384\n"),
            ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n"),
            ("pids.current", "7\n"),
        ],
    );
    let expected = Stats {
        cpu_ms: 1234,
        rss_bytes: 4096,
        memory_bytes: 8192,
        memory_peak_bytes: 16384,
        pids: 7,
        oom_kills: 2,
    };
    assert_eq!(cgroup.stats(), expected);
}

#[test]
fn files_that_are_absent_or_garbage_count_as_nothing() {
    for place in [VersionedDir::V1, VersionedDir::V2] {
        let (dir, cgroup) = group(place);
        assert_eq!(cgroup.stats(), Stats::default());
        put(&dir, &[("pids.current", "max"), ("memory.current", "-1"), ("memory.events", "oom_kill\n")]);
        assert_eq!(cgroup.stats(), Stats::default());
    }
}

#[test]
fn version_2_is_entered_by_its_directory_and_version_1_by_its_files() {
    let (dir, mut cgroup) = group(VersionedDir::V1);
    cgroup.dirs.unified = Some(PathBuf::from("/unified"));
    let expected = GroupFiles { unified: Some("/unified".into()), tasks: vec![dir.path().join("tasks")] };
    assert_eq!(cgroup.files(), expected);
    let (dir, mut cgroup) = group(VersionedDir::V2);
    cgroup.dirs.unified = Some(dir.path().to_path_buf());
    assert_eq!(cgroup.files(), GroupFiles { unified: Some(dir.path().into()), tasks: Vec::new() });
}

#[test]
fn only_names_of_supervisors_are_swept() {
    assert_eq!(supervisor_of("asp-12-0"), Some(12));
    for name in ["asp-main", "asp-12", "asp-12-x", "asp--1", "12-0", "asp-12-0-1", "asp-x-1", "xasp-1-1"] {
        assert_eq!(supervisor_of(name), None, "{name}");
    }
}
