//! Files of the stores are accessible to their owner only, regardless of the umask.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use asp_store::audit::{AuditLog, CallEvent};
use asp_store::blobs::{BlobId, BlobMeta, Blobs, DiskBlobs};
use asp_store::control::sql::ControlStore;
use asp_store::packages::{DiskPackages, Quota};
use asp_store::sqlite::{SqliteAudit, SqliteCalls};

/// Returns every file and directory below, with its mode.
fn modes(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::metadata(&path).unwrap();
        found.push((path.clone(), metadata.permissions().mode() & 0o777));
        if metadata.is_dir() {
            found.extend(modes(&path));
        }
    }
    found
}

fn assert_private(directory: &Path) {
    let found = modes(directory);
    assert!(!found.is_empty());
    for (path, mode) in found {
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
}

#[tokio::test]
async fn new_files_are_private_and_those_of_an_earlier_version_become_so() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for n in 0..2 {
        let control = ControlStore::file(&at("asp.db")).await.unwrap();
        let _calls = SqliteCalls::open(&at("calls.db")).await.unwrap();
        let log = SqliteAudit::open(&at("audit.db"), 1 << 30).await.unwrap();
        log.append(&[CallEvent { at_ms: 0, org: "acme".into(), event: "{}".into() }]).await.unwrap();
        DiskPackages::open(&at("packages"), Quota::default()).await.unwrap();
        let blobs = DiskBlobs::open(&at("artifacts")).await.unwrap();
        let meta = BlobMeta {
            org: "acme".into(),
            owner: b"alice".to_vec(),
            server: "s".into(),
            name: "n".into(),
            content_type: "text/plain".into(),
            expires_ms: i64::MAX,
        };
        let mut upload = blobs.create(BlobId::random(n), "acme").await.unwrap();
        upload.write(b"bytes").await.unwrap();
        upload.finish(meta).await.unwrap();
        // While the databases are open, -wal and -shm exist.
        assert_private(directory.path());
        control.close().await;
        for entry in fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}
