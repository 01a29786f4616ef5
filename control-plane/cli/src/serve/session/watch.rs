//! Detects changes to the files of a directory of primitives: specs, and the code next to them.
//!
//! Polls instead of asking the kernel: that works on every file system and with editors that rename, without a watch per
//! folder. Keeps true: a burst of writes is one change, reported after its end; code that is packed or compiled is followed,
//! also through links, and build output is not. Bounds: [`MAX_SEEN`] and [`MAX_LEVEL`]; exceeding either is reported once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asp_packaging::folder::{MAX_DEPTH, is_left_out};
use asp_packaging::{build, maven};

/// Interval between two samples.
const EVERY: Duration = Duration::from_millis(200);
/// Time without changes after which the editor or the package manager is taken to be done.
const SETTLED: Duration = Duration::from_millis(50);
/// Maximum number of files and folders sampled; others are not followed.
const MAX_SEEN: usize = 20_000;
/// Name of the folders with code, below the folders of servers.
const CODE: &str = "plugins";
/// Extensions of specs.
const SPECS: [&str; 3] = ["yaml", "yml", "json"];
/// Depth of the content of a server's folder.
const SERVER_LEVEL: usize = 1;
/// Depth of the content of a plugin's folder.
const PLUGIN_LEVEL: usize = 3;
/// Maximum depth; deeper files are not packed either.
const MAX_LEVEL: usize = PLUGIN_LEVEL + MAX_DEPTH;

/// Inode, length and time of the last change. An editor that saves by renaming leaves a new inode.
type Mark = (u64, u64, i64, i64);

/// A sample of the files.
#[derive(Default, PartialEq)]
struct Look {
    marks: BTreeMap<PathBuf, Mark>,
    /// Files that builds took from elsewhere. They are known only after a build, so a new one does not count as a change; a
    /// missing one may just no longer be needed.
    outside: BTreeMap<PathBuf, Mark>,
    /// Whether a limit was reached.
    is_cut: bool,
}

impl Look {
    fn differs(&self, before: &Look) -> bool {
        let is_other =
            |(path, mark): (&PathBuf, &Mark)| before.outside.get(path).is_some_and(|was| was != mark);
        self.marks != before.marks || self.is_cut != before.is_cut || self.outside.iter().any(is_other)
    }
}

/// Files of a directory as of the last sample.
pub(super) struct Watch {
    root: PathBuf,
    seen: Look,
}

impl Watch {
    pub(super) fn new(root: PathBuf) -> Watch {
        let seen = sample(&root, MAX_SEEN);
        if seen.is_cut {
            warn(&root);
        }
        Watch { root, seen }
    }

    /// Records a file that this process itself has written, so that it does not count as a change.
    pub(super) fn record_write(&mut self, path: &Path) {
        if let Ok(metadata) = fs::metadata(path) {
            self.seen.marks.insert(path.to_owned(), mark(&metadata));
        }
    }

    /// Waits until files differ from their state at the end of the previous wait.
    pub(super) async fn wait_for_change(&mut self) {
        loop {
            let mut now = self.sample().await;
            if !now.differs(&self.seen) {
                self.seen = now;
            } else {
                loop {
                    tokio::time::sleep(SETTLED).await;
                    let later = self.sample().await;
                    if later == now {
                        break;
                    }
                    now = later;
                }
                if now.is_cut && !self.seen.is_cut {
                    warn(&self.root);
                }
                self.seen = now;
                return;
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn sample(&self) -> Look {
        let root = self.root.clone();
        // Err: the process is ending.
        tokio::task::spawn_blocking(move || sample(&root, MAX_SEEN)).await.unwrap_or_default()
    }
}

fn warn(root: &Path) {
    tracing::warn!(
        directory = %root.display(),
        max_files = MAX_SEEN,
        max_levels = MAX_DEPTH,
        "directory has more files or levels of code than are followed: changes to the rest take effect only after a restart \
         of asp dev; move everything that is not code out of the folders below `plugins`"
    );
}

fn mark(metadata: &fs::Metadata) -> Mark {
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// Returns the paths that exist, with their marks.
fn marked(paths: Vec<PathBuf>) -> impl Iterator<Item = (PathBuf, Mark)> {
    paths.into_iter().filter_map(|path| {
        let metadata = fs::metadata(&path).ok()?;
        Some((path, mark(&metadata)))
    })
}

/// Samples the files of a directory of primitives. Unreadable ones count as absent.
fn sample(root: &Path, max_seen: usize) -> Look {
    let mut found = Look::default();
    let mut seen = 0;
    let mut open = VecDeque::from([(root.to_owned(), 0)]);
    let mut opened = BTreeSet::new();
    while let Some((folder, level)) = open.pop_back() {
        if level == PLUGIN_LEVEL {
            found.marks.extend(marked(maven::parents(&folder)));
            found.outside.extend(marked(maven::snapshots(&folder)));
        }
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if is_ignored(&folder, &name, level) {
                continue;
            }
            seen += 1;
            if seen > max_seen {
                found.is_cut = true;
                return found;
            }
            let path = entry.path();
            // Follows links: the target is what is read.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            if metadata.is_dir() {
                let is_read = level < SERVER_LEVEL || name == CODE || level > SERVER_LEVEL;
                // Within code a link may lead back to a parent or far away: such folders come last, and each only once.
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                let is_far = is_link && level >= PLUGIN_LEVEL;
                let is_known = !opened.insert((metadata.dev(), metadata.ino()));
                match is_read && !(is_far && is_known) {
                    true if level >= MAX_LEVEL => found.is_cut = true,
                    true if is_far => open.push_front((path, level + 1)),
                    true => open.push_back((path, level + 1)),
                    false => {}
                }
            } else if metadata.is_file() && (level > SERVER_LEVEL || is_spec(&path)) {
                found.marks.insert(path, mark(&metadata));
            }
        }
    }
    found
}

/// Whether a file is neither a spec nor packed, or is build output.
fn is_ignored(folder: &Path, name: &str, level: usize) -> bool {
    if level < PLUGIN_LEVEL {
        return name.starts_with('.');
    }
    is_left_out(name) || build::is_made(folder, name, level == PLUGIN_LEVEL)
}

fn is_spec(path: &Path) -> bool {
    path.extension().is_some_and(|extension| SPECS.iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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

    /// Returns the followed files, relative to `root`.
    fn followed(root: &Path) -> Vec<String> {
        let seen = sample(root, MAX_SEEN).marks;
        seen.keys().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()).collect()
    }

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn specs_and_code_are_followed_and_what_tools_make_is_not() {
        let root = directory();
        assert_eq!(followed(root.path()), [SPEC, CODE_FILE]);
        write(root.path(), "greet/plugins/greet/__pycache__/y.pyc", "two");
        assert_eq!(followed(root.path()), [SPEC, CODE_FILE]);
    }

    #[test]
    fn what_is_packed_is_followed_and_what_a_build_makes_is_not() {
        let root = directory();
        let code = ["classes/school.py", "node_modules/x/index.js", "target/x.py", ".config/words"];
        for file in code {
            write(root.path(), &format!("greet/plugins/other/{file}"), "one");
        }
        let seen = followed(root.path());
        for file in code {
            assert!(seen.contains(&format!("greet/plugins/other/{file}")), "{file} in {seen:?}");
        }
        for file in ["plain/src/A.java", "plain/classes/A.class", "maven/pom.xml", "maven/target/a.jar"] {
            write(root.path(), &format!("java/plugins/{file}"), "one");
        }
        let java: Vec<String> =
            followed(root.path()).into_iter().filter(|file| file.starts_with("java/")).collect();
        assert_eq!(java, ["java/plugins/maven/pom.xml", "java/plugins/plain/src/A.java"]);
    }

    #[test]
    fn links_are_followed_to_a_plugin_and_to_shared_sources_and_not_around_in_one() {
        let root = directory();
        let elsewhere = tempfile::tempdir().unwrap();
        write(elsewhere.path(), "main.py", "one");
        symlink(elsewhere.path(), root.path().join("greet/plugins/linked")).unwrap();
        let round = root.path().join("greet/plugins/greet/round");
        fs::create_dir(&round).unwrap();
        symlink(".", round.join("a")).unwrap();
        symlink(".", round.join("b")).unwrap();
        let shared = tempfile::tempdir().unwrap();
        write(shared.path(), "words/Words.java", "one");
        symlink(root.path(), shared.path().join("back")).unwrap();
        symlink(shared.path(), root.path().join("greet/plugins/greet/shared")).unwrap();
        let seen = followed(root.path());
        for file in
            [SPEC, CODE_FILE, "greet/plugins/linked/main.py", "greet/plugins/greet/shared/words/Words.java"]
        {
            assert!(seen.iter().any(|path| path == file), "{file} in {seen:?}");
        }
        assert!(seen.len() < 12, "it goes around: {seen:?}");
        assert!(!sample(root.path(), MAX_SEEN).is_cut);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_build_takes_from_elsewhere_is_followed_and_told_first_by_the_build() {
        let elsewhere = tempfile::tempdir().unwrap();
        let at = elsewhere.path();
        write(
            at,
            "mine/greet/plugins/greet/pom.xml",
            "<parent><relativePath>../../../..</relativePath></parent>",
        );
        write(at, "pom.xml", "one");
        write(at, "m2/1-SNAPSHOT/x.jar", "one");
        let mut watch = Watch::new(at.join("mine"));
        let minute = Duration::from_secs(60);
        write(at, "pom.xml", "other");
        tokio::time::timeout(minute, watch.wait_for_change()).await.expect("a parent changed");
        fs::remove_file(at.join("pom.xml")).unwrap();
        tokio::time::timeout(minute, watch.wait_for_change()).await.expect("a parent is gone");
        write(at, "pom.xml", "again");
        tokio::time::timeout(minute, watch.wait_for_change()).await.expect("a parent is there again");
        let list = format!("a:x:jar:1-SNAPSHOT:compile:{}\n", at.join("m2/1-SNAPSHOT/x.jar").display());
        write(at, "mine/greet/plugins/greet/target/asp-dependencies.txt", &list);
        assert!(tokio::time::timeout(minute, watch.wait_for_change()).await.is_err(), "it was there before");
        write(at, "m2/1-SNAPSHOT/x.jar", "other");
        tokio::time::timeout(minute, watch.wait_for_change()).await.expect("a snapshot changed");
    }

    #[test]
    fn folders_count_and_so_do_levels() {
        let root = directory();
        // Seven entries: greet, its spec, its README, plugins, greet, lib, the file.
        assert!(!sample(root.path(), 7).is_cut);
        assert!(sample(root.path(), 6).is_cut);
        let deepest = format!("greet/plugins/greet{}", "/d".repeat(MAX_DEPTH));
        write(root.path(), &format!("{deepest}/x.py"), "one");
        assert!(followed(root.path()).contains(&format!("{deepest}/x.py")), "it is packed");
        assert!(!sample(root.path(), MAX_SEEN).is_cut);
        fs::create_dir(root.path().join(deepest).join("d")).unwrap();
        assert!(sample(root.path(), MAX_SEEN).is_cut);
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
            tokio::time::timeout(Duration::from_secs(60), watch.wait_for_change()).await.unwrap();
        }
        write(at, "other/greet.schema.json", "own");
        watch.record_write(&at.join("other/greet.schema.json"));
        let unchanged = tokio::time::timeout(Duration::from_secs(60), watch.wait_for_change()).await;
        assert!(unchanged.is_err(), "nothing changed since");
    }
}
