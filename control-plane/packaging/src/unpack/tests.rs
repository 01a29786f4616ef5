//! Malicious and valid archives.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{EntryType, Header};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

struct Trial {
    root: tempfile::TempDir,
}

impl Trial {
    fn new(bytes: &[u8]) -> Trial {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("package"), bytes).unwrap();
        Trial { root }
    }

    fn unpack(&self, format: Format) -> Result<(), UnpackError> {
        unpack(&self.root.path().join("package"), format, "p-1.0.0.jar", &self.folder())
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("inner/package")
    }

    /// Returns everything below the trial's root, relative to it.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.root.path().to_owned()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path.clone());
                }
                found.push(path.strip_prefix(self.root.path()).unwrap().display().to_string());
            }
        }
        found.sort();
        found
    }
}

fn trial(bytes: &[u8], format: Format) -> (Result<(), UnpackError>, Trial) {
    let trial = Trial::new(bytes);
    fs::create_dir(trial.root.path().join("inner")).unwrap();
    (trial.unpack(format), trial)
}

fn zipped(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Builds a tar whose entry headers are written as given: the tar writer would reject bad names.
fn tarred(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, kind, bytes) in entries {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o4755);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name_literal("/etc/passwd").unwrap();
        }
        header.set_cksum();
        tar.append(&header, *bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

const PLAIN: EntryType = EntryType::Regular;
const BAD_NAMES: [&str; 8] =
    ["../evil", "a/../../evil", "/etc/evil", "a//b", "./evil", "a\\..\\evil", "a/./b", "evil\n"];

#[test]
fn nothing_is_written_outside_and_no_name_is_bent_to_fit() {
    for name in BAD_NAMES {
        for format in [Format::Wheel, Format::Bundle, Format::Jar] {
            let (outcome, trial) = trial(&zipped(&[("good.py", b"x"), (name, b"evil")]), format);
            assert!(matches!(outcome, Err(UnpackError::Path(_))), "{name:?} {outcome:?}");
            assert!(trial.files().iter().all(|file| !file.contains("evil")), "{:?}", trial.files());
        }
        // Below `package/`, as npm has it; an absolute name has another first folder.
        let within = format!("package/{name}");
        for name in [name, &within] {
            let (outcome, trial) =
                trial(&tarred(&[("package/good.js", PLAIN, b"x"), (name, PLAIN, b"evil")]), Format::Npm);
            assert!(matches!(outcome, Err(UnpackError::Path(_))), "{name:?} {outcome:?}");
            assert!(trial.files().iter().all(|file| !file.contains("evil")), "{:?}", trial.files());
        }
    }
}

#[test]
fn links_and_devices_are_refused() {
    use EntryType::{Block, Char, Fifo, GNUSparse, Link, Symlink};
    for kind in [Symlink, Link, Char, Block, Fifo, GNUSparse] {
        let (outcome, trial) = trial(&tarred(&[("package/it", kind, b"")]), Format::Npm);
        assert!(outcome.is_err(), "{kind:?}");
        assert!(trial.folder().join("it").symlink_metadata().is_err(), "{kind:?}");
    }
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.add_symlink("it", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    let (outcome, _) = trial(&writer.finish().unwrap().into_inner(), Format::Wheel);
    assert!(matches!(outcome, Err(UnpackError::Special(_))), "{outcome:?}");
}

#[test]
fn one_name_is_one_file() {
    let twice = tarred(&[("package/a", PLAIN, b"1"), ("package/a", PLAIN, b"2")]);
    assert!(matches!(trial(&twice, Format::Npm).0, Err(UnpackError::Twice(_))));
    // A file where a folder is needed.
    let under = tarred(&[("package/a", PLAIN, b"1"), ("package/a/b", PLAIN, b"2")]);
    assert!(trial(&under, Format::Npm).0.is_err());
    // The zip writer rejects duplicate names, so one entry is renamed in the bytes to a name of the same length.
    let mut bytes = zipped(&[("first.py", b"1"), ("other.py", b"2")]);
    let places: Vec<usize> =
        bytes.windows(8).enumerate().filter(|(_, w)| *w == b"other.py").map(|(at, _)| at).collect();
    for at in places {
        bytes[at..at + 8].copy_from_slice(b"first.py");
    }
    assert!(trial(&bytes, Format::Wheel).0.is_err());
}

#[test]
fn a_bomb_ends_before_it_fills_the_disk() {
    let zeros = vec![0_u8; 80 << 20];
    for (bytes, format) in [
        (zipped(&[("zeros", &zeros)]), Format::Wheel),
        (tarred(&[("package/zeros", PLAIN, &zeros)]), Format::Npm),
        (zipped(&[("META-INF/lib/zeros.jar", &zeros)]), Format::Jar),
    ] {
        assert!(bytes.len() < 1 << 20, "it is small itself");
        let (outcome, trial) = trial(&bytes, format);
        assert!(outcome.is_err(), "{format:?}");
        let written: u64 =
            trial.files().iter().map(|f| trial.root.path().join(f).metadata().unwrap().len()).sum();
        assert!(written < 64 << 20, "{format:?} wrote {written}");
    }
}

#[test]
fn too_many_entries_are_refused() {
    let names: Vec<String> = (0..20_001).map(|n| format!("package/{n}")).collect();
    let entries: Vec<(&str, EntryType, &[u8])> =
        names.iter().map(|name| (name.as_str(), PLAIN, &b""[..])).collect();
    assert!(matches!(trial(&tarred(&entries), Format::Npm).0, Err(UnpackError::TooLarge)));
    let deep = format!("package/{}x", "d/".repeat(40));
    assert!(matches!(trial(&tarred(&[(&deep, PLAIN, b"")]), Format::Npm).0, Err(UnpackError::TooLarge)));
}

#[test]
fn what_is_no_archive_of_its_kind_is_refused() {
    let zip = zipped(&[("a", b"1")]);
    let tar = tarred(&[("package/a", PLAIN, b"1")]);
    for (bytes, format) in [
        (&b""[..], Format::Wheel),
        (b"", Format::Npm),
        (b"PK\x03\x04", Format::Jar),
        (&zip, Format::Npm),
        (&tar, Format::Bundle),
        (&zip[..zip.len() - 9], Format::Wheel),
        (&tar[..tar.len() / 2], Format::Npm),
    ] {
        assert!(trial(bytes, format).0.is_err(), "{format:?} {bytes:?}");
    }
}

/// Every damaged archive is rejected or unpacked within its folder; nothing panics.
#[test]
fn damaged_archives_stay_within_their_folder() {
    let code = b"def handler(ctx):\n    return 1\n".repeat(20);
    let good = [
        (zipped(&[("a.py", &code), ("b/c.py", &code), ("META-INF/lib/x.jar", &code)]), Format::Wheel),
        (tarred(&[("package/a.js", PLAIN, &code), ("package/b/c.js", PLAIN, &code)]), Format::Npm),
        (zipped(&[("a.class", &code), ("META-INF/lib/x.jar", &code)]), Format::Jar),
    ];
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |bound: usize| {
        // xorshift64: the same damage in every run.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % bound as u64) as usize
    };
    let mut refused = 0;
    let mut taken = 0;
    for (bytes, format) in &good {
        for _ in 0..400 {
            let mut bytes = bytes.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            if random(8) == 0 {
                bytes.truncate(random(bytes.len()));
            }
            let (outcome, trial) = trial(&bytes, *format);
            if outcome.is_ok() {
                taken += 1
            } else {
                refused += 1
            }
            assert!(trial.files().iter().all(|file| file == "package" || file.starts_with("inner")));
        }
    }
    assert!(refused > 100 && taken > 10, "{refused} refused, {taken} taken");
}

#[test]
fn files_are_readable_for_all_and_writable_for_their_owner_only() {
    let bytes = tarred(&[("package/run", PLAIN, b"#!"), ("package/d/", EntryType::Directory, b"")]);
    let (outcome, trial) = trial(&bytes, Format::Npm);
    outcome.unwrap();
    let mode = |path: &str| trial.folder().join(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("run"), 0o755, "no bit of setuid");
    assert!(trial.folder().join("d").is_dir());
}

/// Runs the test again in a child process with a restrictive umask, which in this process would affect other tests.
#[test]
fn a_processs_mask_keeps_no_worker_from_its_code() {
    const AGAIN: &str = "ASP_TEST_UNPACK_MASK";
    let this = "unpack::tests::a_processs_mask_keeps_no_worker_from_its_code";
    if std::env::var_os(AGAIN).is_none() {
        let mut again = std::process::Command::new("sh");
        again.args(["-c", "umask 077; exec \"$0\" --exact \"$1\""]).arg(std::env::current_exe().unwrap());
        let done = again.arg(this).env(AGAIN, "1").output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (outcome, trial) = trial(&tarred(&[("package/a/b/c.js", PLAIN, b"x")]), Format::Npm);
    outcome.unwrap();
    let mode = |path: &str| trial.folder().join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(""), mode("a"), mode("a/b"), mode("a/b/c.js")], [0o755; 4]);
}

#[test]
fn a_jar_is_kept_and_what_it_carries_lies_beside_it() {
    let bytes =
        zipped(&[("a/B.class", b"1"), ("META-INF/lib/x.jar", b"2"), ("META-INF/lib/deep/y.jar", b"3")]);
    let (outcome, trial) = trial(&bytes, Format::Jar);
    outcome.unwrap();
    assert_eq!(fs::read(trial.folder().join("p-1.0.0.jar")).unwrap(), bytes);
    assert_eq!(fs::read(trial.folder().join("lib/x.jar")).unwrap(), b"2");
    assert!(!trial.folder().join("lib/y.jar").exists() && !trial.folder().join("lib/deep").exists());
}

#[test]
fn an_encrypted_entry_is_refused() {
    let mut bytes = zipped(&[("a.py", b"x")]);
    // General purpose bit 0, in the local header and in the central directory (APPNOTE 4.4.4).
    let central = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    bytes[6] |= 1;
    bytes[central + 8] |= 1;
    assert!(trial(&bytes, Format::Wheel).0.is_err());
}

#[test]
fn a_file_that_never_changes_gets_a_second_name_and_every_other_one_is_copied() {
    use std::os::unix::fs::MetadataExt;

    let root = tempfile::tempdir().unwrap();
    let file = |name: &str, is_fixed| {
        let source = root.path().join(name);
        fs::write(&source, name).unwrap();
        folder::File { path: format!("lib/{name}"), source, executable: false, is_fixed }
    };
    let files = [file("fixed", true), file("own", false)];
    let target = root.path().join("package");
    copy(&files, &target).unwrap();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let made = |name: &str| target.join("lib").join(name);
    assert_eq!(inode(&made("fixed")), inode(&files[0].source));
    assert_ne!(inode(&made("own")), inode(&files[1].source));
    assert_eq!(fs::read_to_string(made("own")).unwrap(), "own");
    let twice = [file("own", false), file("own", true)];
    let again = copy(&twice, &root.path().join("other"));
    assert!(matches!(again, Err(UnpackError::Twice(_))), "{again:?}");
}
