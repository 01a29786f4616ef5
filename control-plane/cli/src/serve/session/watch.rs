//! Sees that files of a directory of primitives changed: specs, and the code beside them.
//!
//! Looks at them again and again rather than asking the kernel: that works on every file system, and for editors
//! that rename, without a place for each folder. Keeps true: of a burst of writes one change is told, after its end.
//! Bound: [`MAX_FILES`].

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);
/// Nothing changed for so long: the editor or the package manager is done.
const SETTLED: Duration = Duration::from_millis(50);
/// Files that are looked at; those beyond are not followed.
const MAX_FILES: usize = 20_000;
/// What tools put beside code: they are made from it, or change while it is built.
const MADE: [&str; 4] = ["node_modules", "target", "classes", "__pycache__"];
/// Folders of code, below those of servers.
const CODE: &str = "plugins";
/// Endings of specs.
const SPECS: [&str; 3] = ["yaml", "yml", "json"];
/// A server's folder.
const SERVER_LEVEL: usize = 1;

/// Inode, length and time of the last change: an editor that renames leaves another inode.
type Mark = (u64, u64, i64, i64);
type Marks = BTreeMap<PathBuf, Mark>;

/// The files of a directory as they were seen last.
pub(super) struct Watch {
    root: PathBuf,
    seen: Marks,
}

impl Watch {
    pub(super) fn new(root: PathBuf) -> Watch {
        let seen = marks(&root);
        Watch { root, seen }
    }

    /// Waits until files are not what they were when this ended last.
    pub(super) async fn changed(&mut self) {
        loop {
            let mut now = self.look().await;
            if now != self.seen {
                loop {
                    tokio::time::sleep(SETTLED).await;
                    let later = self.look().await;
                    if later == now {
                        break;
                    }
                    now = later;
                }
                self.seen = now;
                return;
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn look(&self) -> Marks {
        let root = self.root.clone();
        // Err: the process ends.
        tokio::task::spawn_blocking(move || marks(&root)).await.unwrap_or_default()
    }
}

/// The files that make a directory of primitives. What cannot be read is not there.
fn marks(root: &Path) -> Marks {
    let mut found = Marks::new();
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((folder, level)) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let path = entry.path();
            // Follows links: what they lead to is what is read.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if name.starts_with('.') || MADE.contains(&name.as_ref()) {
                continue;
            }
            let is_code = level > SERVER_LEVEL;
            if metadata.is_dir() && (level < SERVER_LEVEL || name == CODE || is_code) {
                open.push((path, level + 1));
            } else if metadata.is_file() && (is_code || is_spec(&path)) {
                found.insert(path, (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()));
            }
            if found.len() >= MAX_FILES {
                return found;
            }
        }
    }
    found
}

fn is_spec(path: &Path) -> bool {
    path.extension().is_some_and(|extension| SPECS.iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "greet/greet.yaml";
    const CODE_FILE: &str = "greet/plugins/greet/lib/words.py";

    fn directory() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in
            [SPEC, CODE_FILE, "greet/plugins/greet/__pycache__/x.pyc", "greet/.hidden", "greet/README"]
        {
            write(root.path(), file, "one");
        }
        root
    }

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn specs_and_code_are_followed_and_what_tools_make_is_not() {
        let root = directory();
        let seen = marks(root.path());
        assert_eq!(
            seen.keys().map(|path| path.strip_prefix(root.path()).unwrap()).collect::<Vec<_>>(),
            [Path::new(SPEC), Path::new(CODE_FILE)]
        );
        write(root.path(), "greet/plugins/greet/__pycache__/y.pyc", "two");
        assert_eq!(marks(root.path()), seen);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_written_renamed_over_added_or_removed_is_a_change() {
        let root = directory();
        let at = root.path();
        let edits: [&dyn Fn(); 4] = [
            &|| write(at, CODE_FILE, "longer"),
            &|| {
                // As vim and others save.
                write(at, "greet/.greet.yaml.new", "one");
                fs::rename(at.join("greet/.greet.yaml.new"), at.join(SPEC)).unwrap();
            },
            &|| write(at, "other/server.yaml", "new"),
            &|| fs::remove_file(at.join(CODE_FILE)).unwrap(),
        ];
        let mut watch = Watch::new(at.to_owned());
        for edit in edits {
            edit();
            tokio::time::timeout(Duration::from_secs(60), watch.changed()).await.unwrap();
        }
        let unchanged = tokio::time::timeout(Duration::from_secs(60), watch.changed()).await;
        assert!(unchanged.is_err(), "nothing changed since");
    }
}
