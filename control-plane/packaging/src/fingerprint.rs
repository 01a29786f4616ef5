//! The inputs of a plugin's build as one digest: its sources, the POMs that they inherit from, the tools that compile them, and
//! what its lock pins; and as a second digest the snapshot artifacts that the build used from Maven's repository.
//!
//! Keeps true: if the inputs cannot be determined, there is no digest, and the caller builds.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::dependencies::Dependencies;
use super::development::{DevelopmentFiles, NODE_LOCK};
use super::folder::{MAX_BYTES, MAX_DEPTH, MAX_FILES, is_left_out};
use super::{build, maven, pack};

/// Returns the digest of the code in `folder`; `None` if it cannot be read, exceeds the limit of a package, or is not all in
/// files of its own.
pub fn of(folder: &Path, language: &str) -> Option<[u8; 32]> {
    let mut digest = Sha256::new();
    for tool in build::tools(folder, language) {
        // A replaced tool has another inode or time; reading a whole JDK would take longer than building.
        let metadata = fs::metadata(&tool).ok()?;
        mark(&mut digest, &tool, &metadata);
    }
    for pom in if language == "java" { maven::parents(folder) } else { Vec::new() } {
        part(&mut digest, pom.as_os_str().as_bytes());
        add(&mut digest, &pom).ok()?;
    }
    for path in sources(folder, language)? {
        part(&mut digest, path.strip_prefix(folder).ok()?.as_os_str().as_bytes());
        match is_installed(folder, &path) {
            true => add_mark(&mut digest, &path).ok()?,
            false => add(&mut digest, &path).ok()?,
        }
    }
    // Err: they are not pinned yet, and the build will do so.
    let pinned = Dependencies::of(folder, language).and_then(|declared| declared.entry_name().ok());
    if let Some(pinned) = pinned {
        part(&mut digest, pinned.as_bytes());
    }
    Some(digest.finalize().into())
}

/// Returns the time of the last change of the code in `folder`, without what a package manager wrote; `None` if it cannot be
/// read.
pub fn last_change(folder: &Path, language: &str) -> Option<SystemTime> {
    let own = sources(folder, language)?.into_iter().filter(|path| !is_installed(folder, path));
    own.map(|path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok()).max().flatten()
}

/// Returns the files of the code in `folder`, sorted; `None` if there are more than a package may have.
fn sources(folder: &Path, language: &str) -> Option<Vec<PathBuf>> {
    let development = DevelopmentFiles::of(folder, language);
    let relative = |path: &Path| path.strip_prefix(folder).ok().and_then(Path::to_str).map(str::to_owned);
    let skips = |path: &Path, name: &str| {
        // A compiler reads every file there, whatever its name.
        let is_no_source = is_left_out(name) && (language != "java" || name == ".git");
        // The lock is not packed, but decides what is.
        let is_development = |relative: String| relative != NODE_LOCK && development.has(&relative);
        is_no_source || relative(path).is_some_and(is_development)
    };
    let mut files = Vec::new();
    collect(folder, 0, &skips, &mut files).ok()?;
    let is_development_link = |path: &Path| {
        path.is_symlink() && relative(path).is_some_and(|relative| development.has_link(&relative))
    };
    files.retain(|path| !is_development_link(path));
    files.sort();
    Some(files)
}

/// Returns the digest of the artifacts used by the last build in `folder` that may change without a new name.
pub fn of_snapshots(folder: &Path) -> [u8; 32] {
    let mut digest = Sha256::new();
    for file in maven::snapshots(folder) {
        // A missing file contributes only its name.
        match fs::metadata(&file) {
            Ok(metadata) => mark(&mut digest, &file, &metadata),
            Err(_) => part(&mut digest, file.as_os_str().as_bytes()),
        }
    }
    digest.finalize().into()
}

fn mark(digest: &mut Sha256, path: &Path, metadata: &fs::Metadata) {
    part(digest, path.as_os_str().as_bytes());
    let mark = [
        metadata.ino(),
        metadata.len(),
        metadata.mtime().unsigned_abs(),
        metadata.mtime_nsec().unsigned_abs(),
    ];
    mark.iter().for_each(|number| part(digest, &number.to_be_bytes()));
}

/// Adds a part with its length, so that different lists of parts never yield the same bytes.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

fn add(digest: &mut Sha256, path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    // The target of a link may change unnoticed, and reading a pipe would block forever.
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    digest.update([u8::from(metadata.permissions().mode() & 0o100 != 0)]);
    let (_, content) = pack::digest(path).map_err(io::Error::other)?;
    part(digest, content.as_bytes());
    Ok(())
}

/// Whether a package manager wrote the file: such files are too many to be read at each edit, and replaced instead of edited.
fn is_installed(folder: &Path, path: &Path) -> bool {
    let relative = path.strip_prefix(folder).unwrap_or(path);
    relative.starts_with("node_modules") || relative.starts_with("site-packages")
}

/// Adds a file by its inode, length, time and mode.
fn add_mark(digest: &mut Sha256, path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    digest.update([u8::from(metadata.permissions().mode() & 0o100 != 0)]);
    mark(digest, path, &metadata);
    Ok(())
}

/// Collects every file that is packed or compiled, without build output.
fn collect(
    folder: &Path,
    depth: usize,
    skips: &dyn Fn(&Path, &str) -> bool,
    files: &mut Vec<PathBuf>,
) -> io::Result<()> {
    if depth > MAX_DEPTH || files.len() > MAX_FILES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = entry.path();
        if skips(&path, &name) || build::is_made(folder, &name, depth == 0) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => collect(&path, depth + 1, skips, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, Mode};

    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn it_changes_with_content_names_and_modes_and_not_with_what_is_made() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        write(at, "main.py", "one");
        write(at, "lib/words.py", "two");
        let mut seen = vec![of(at, "python").unwrap()];
        write(at, "__pycache__/main.pyc", "x");
        write(at, "main.py", "one");
        assert_eq!(of(at, "python").unwrap(), seen[0]);
        let edits: [&dyn Fn(); 3] = [
            &|| write(at, "main.py", "two"),
            &|| fs::rename(at.join("lib/words.py"), at.join("lib/word.py")).unwrap(),
            &|| fs::set_permissions(at.join("main.py"), fs::Permissions::from_mode(0o755)).unwrap(),
        ];
        for edit in edits {
            edit();
            let now = of(at, "python").unwrap();
            assert!(!seen.contains(&now));
            seen.push(now);
        }
        assert_eq!(of(&at.join("absent"), "python"), None);
        std::os::unix::fs::symlink("main.py", at.join("link")).unwrap();
        assert_eq!(of(at, "python"), None, "what a link leads to may change unseen");
        fs::remove_file(at.join("link")).unwrap();
        let pipe = at.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(of(at, "python"), None, "nobody writes into it");
    }

    #[test]
    fn what_only_development_needs_is_no_part_of_it_but_the_lock_is() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        write(at, "main.mjs", "one");
        write(at, "package-lock.json", r#"{"packages": {"node_modules/tool": {"dev": true}}}"#);
        write(at, "node_modules/tool/index.js", "one");
        let before = of(at, "node").unwrap();
        write(at, "node_modules/tool/index.js", "two");
        write(at, "main.test.mjs", "two");
        assert_eq!(of(at, "node").unwrap(), before);
        write(at, "package-lock.json", r#"{"packages": {}}"#);
        assert_ne!(of(at, "node").unwrap(), before);
    }

    #[test]
    fn installed_files_count_by_their_marks() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        write(at, "main.py", "one");
        write(at, "site-packages/lib.py", "one");
        let installed = at.join("site-packages/lib.py");
        let before = of(at, "python").unwrap();
        assert_eq!(of(at, "python").unwrap(), before);
        let file = fs::File::options().write(true).open(&installed).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let marked = of(at, "python").unwrap();
        assert_ne!(marked, before);
        fs::remove_file(&installed).unwrap();
        std::os::unix::fs::symlink("../main.py", &installed).unwrap();
        assert_eq!(of(at, "python"), None, "what a link leads to may change unseen");
    }

    #[test]
    fn a_parent_pom_and_a_snapshot_are_part_of_what_maven_builds() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("plugins/greet");
        write(&at, "pom.xml", "<project><parent><artifactId>p</artifactId></parent></project>");
        write(&at, "../pom.xml", "<project/>");
        let before = of(&at, "java").unwrap();
        assert_eq!(of(&at, "java").unwrap(), before);
        write(&at, "../pom.xml", "<project><!-- other --></project>");
        assert_ne!(of(&at, "java").unwrap(), before);

        let list = |text: String| write(&at, "target/asp-dependencies.txt", &text);
        let jar = root.path().join("m2/1-SNAPSHOT/x.jar");
        write(root.path(), "m2/1-SNAPSHOT/x.jar", "one");
        list(format!("  a:x:jar:1-SNAPSHOT:compile:{}\n", jar.display()));
        let before = of_snapshots(&at);
        assert_eq!(of_snapshots(&at), before);
        write(root.path(), "m2/1-SNAPSHOT/x.jar", "other");
        assert_ne!(of_snapshots(&at), before);
    }

    #[test]
    fn classes_and_mavens_target_are_made() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        write(at, "Main.java", "class Main {}");
        let before = of(at, "python").unwrap();
        write(at, "classes/Main.class", "x");
        assert_eq!(of(at, "python").unwrap(), before);
        write(at, "pom.xml", "<project/>");
        let before = of(at, "python").unwrap();
        write(at, "target/a.jar", "x");
        assert_eq!(of(at, "python").unwrap(), before);
    }
}
