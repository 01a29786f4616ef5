//! Tests of a machine that cannot start a worker: the plugin is not blamed, the reason names what is missing, and
//! service resumes once it is available.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use asp_proto::supervisor::tunnel_event::Type;
use serde_json::json;

use super::account::{self, PIVOT_ROOT};
use super::harness::{Stack, eventually, install, interpreter, launch, output, runtime};

const PYTHON: &str = "from asp_plugin import plugin\n\
    @plugin.tool\n\
    async def greet(args, ctx):\n    return {'text': 'Hello'}\n";

/// A separate disk for the runtime's workers.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Disk {
        std::fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,nr_inodes=64,mode=0755", "tmpfs"])
            .arg(at)
            .status()
            .unwrap();
        assert!(mounted.success(), "only root can mount a disk to fill");
        Disk(at.to_path_buf())
    }

    /// Waits until no unlinked file is kept: an ended sandbox releases its directories when the kernel removes its
    /// mounts.
    async fn settled(&self) {
        let named = count(&self.0);
        eventually("only what has a name is kept", || async {
            let disk = rustix::fs::statvfs(&self.0).unwrap();
            disk.f_files - disk.f_ffree == named
        })
        .await;
    }

    /// Uses up every byte, and every file but `left`.
    fn fill(&self, left: usize) {
        let dir = self.0.join("fill");
        std::fs::create_dir(&dir).unwrap();
        let mut big = File::create(dir.join("big")).unwrap();
        while big.write(&[0; 4096]).is_ok() {}
        let files = (0..).map(|number| dir.join(number.to_string()));
        let made: Vec<PathBuf> = files.take_while(|path| File::create(path).is_ok()).collect();
        for path in made.iter().take(left) {
            std::fs::remove_file(path).unwrap();
        }
    }

    fn free(&self) {
        std::fs::remove_dir_all(self.0.join("fill")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Number of files that fit the three directories of a worker, but not its socket in any of them.
const DIRECTORIES: usize = 3;

#[tokio::test]
async fn a_disk_that_is_full_before_the_worker_makes_its_socket_is_of_no_consequence_at_level_3() {
    let dir = tempfile::tempdir().unwrap();
    install(&dir.path().join("plugins"), "greet", "1.0.0", &json!({}));
    let disk = Disk::mount(&dir.path().join("state"));
    let python = interpreter();
    let command = runtime();
    let stack = launch(dir, command, &["--python", python.to_str().unwrap()]).await;
    disk.settled().await;
    disk.fill(DIRECTORIES);
    let said = stack.call("greet", "one", &json!({"text": "Hello"})).await;
    assert_eq!(output(&said).unwrap_or_else(|| panic!("{said:?}"))["text"], "Hello");
}

#[tokio::test]
async fn a_disk_that_is_full_before_the_worker_makes_its_socket_is_the_machines_fault_below() {
    let dir = account::home();
    install(&dir.path().join("plugins"), "greet", "1.0.0", &json!({"isolation": {"minLevel": 1}}));
    let disk = Disk::mount(&dir.path().join("state"));
    let stack = account::start(dir, &[PIVOT_ROOT], &["--min-level", "1"]).await;
    disk.settled().await;
    disk.fill(DIRECTORIES);
    let told = refusal(&stack).await;
    assert!(told.contains("host_trouble: ") && told.contains("no space is left"), "{told}");
    assert_eq!(stack.figure("greet@1.0.0", "crashes").await, 0);
    disk.free();
    let said = stack.call("greet", "one", &json!({"text": "Hello"})).await;
    assert_eq!(output(&said).unwrap_or_else(|| panic!("{said:?}"))["text"], "Hello");
}

#[tokio::test]
async fn a_worker_that_fills_the_disk_itself_is_no_trouble_of_the_machine() {
    let dir = account::home();
    let hoarder = json!({
        "entrypoint": "hoarder.py", "isolation": {"minLevel": 1}, "limits": {"diskBytes": 65_536},
    });
    install(&dir.path().join("plugins"), "greet", "1.0.0", &hoarder);
    let disk = Disk::mount(&dir.path().join("state"));
    let stack = account::start(dir, &[PIVOT_ROOT], &["--min-level", "1"]).await;
    disk.settled().await;
    // The remains of a worker are cleared in parallel to the next start, which may find the disk full for a moment.
    let quarantined = || async {
        let told = refusal(&stack).await;
        assert!(told.contains("quarantined: ") || told.contains("no space is left"), "{told}");
        told.contains("quarantined: ")
    };
    eventually("its plugin is blamed", quarantined).await;
    stack.log_line("bound on disk space").await;
    let of_the_machine = stack.figure("greet@1.0.0", "host_failures").await;
    assert!(of_the_machine < stack.figure("greet@1.0.0", "crashes").await, "{of_the_machine}");
    assert!(stack.figure("greet@1.0.0", "crashes").await >= 5);
}

/// Counts files and directories, including `at` itself.
fn count(at: &Path) -> u64 {
    let below =
        std::fs::read_dir(at).map(|entries| entries.flatten().map(|entry| count(&entry.path())).sum());
    1 + below.unwrap_or(0)
}

async fn refusal(stack: &Stack) -> String {
    let mut tunnel = stack.tunnel("greet").await;
    format!("{:?}", tunnel.until_event(Type::AdmissionRejected).await)
}

#[tokio::test]
async fn a_full_disk_at_worker_start_is_told_to_the_calls_and_over_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = json!({"entrypoint": "greet.py", "limits": {"memoryBytes": 268_435_456, "pids": 64}});
    install(&dir.path().join("plugins"), "greet", "1.0.0", &manifest);
    std::fs::write(dir.path().join("plugins/greet/1.0.0/package/greet.py"), PYTHON).unwrap();
    let disk = Disk::mount(&dir.path().join("state"));
    let stack = launch(dir, runtime(), &[]).await;
    disk.settled().await;
    disk.fill(0);
    // More crashes in a minute than would quarantine the plugin.
    for _ in 0..8 {
        let told = refusal(&stack).await;
        assert!(told.contains("host_trouble: ") && told.contains("No space left on device"), "{told}");
    }
    assert_eq!(stack.figure("greet@1.0.0", "crashes").await, 0);
    assert_eq!(stack.figure("greet@1.0.0", "quarantined_s").await, 0);
    assert!(stack.figure("greet@1.0.0", "host_failures").await >= 8);
    disk.free();
    let said = stack.call("greet", "one", &json!({})).await;
    assert_eq!(output(&said).unwrap_or_else(|| panic!("{said:?}"))["text"], "Hello");
    assert_eq!(stack.homes(), 1, "the starts that failed left nothing");
}
