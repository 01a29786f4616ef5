//! Packages in a directory: `<owner>/<digest>.pkg` holds the bytes, `<owner>/<digest>.json` the description; the
//! owner's directory is named by a digest of the owner's name. A package exists if its description does.
//!
//! Keeps true: the description is written last and linked into place, so that a crash leaves no partial package; an
//! owner's packages are counted, uploads included, and refused above its quota. Only one process writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use sha2::Sha256;
use tokio::fs::{self, File};
use tokio::io::AsyncRead;

use super::{
    Digest, MAX_PACKAGE, PackageError, PackageMeta, PackageUpload, Packages, Quota, Result, UploadOutcome,
};
use crate::hex::hex;
use crate::owner_files::{FileError, FileUsage, OwnerUsage, UnfinishedFile, describe, owners};
use crate::private;

/// Packages below one directory.
pub struct DiskPackages {
    directory: PathBuf,
    /// Usage by owner directory, uploads included.
    usage: OwnerUsage,
    /// Held while a package's two files appear or disappear, so that a deletion does not remove another package's
    /// bytes.
    steps: Arc<tokio::sync::Mutex<()>>,
}

from_failure!(std::io::Error => PackageError::Unavailable);

impl From<FileError> for PackageError {
    fn from(error: FileError) -> PackageError {
        match error {
            FileError::Full(limit) => PackageError::Quota { bytes: limit.bytes, count: limit.files },
            FileError::Failed(error) => error.into(),
        }
    }
}

impl DiskPackages {
    /// Opens a directory, creates it if needed, and removes partial packages of a crash.
    pub async fn open(directory: &Path, quota: Quota) -> Result<DiskPackages> {
        private::directory(directory)?;
        let usage = OwnerUsage::new(FileUsage { bytes: quota.bytes, files: quota.count });
        let packages = DiskPackages { directory: directory.to_owned(), usage, steps: Arc::default() };
        for owner in owners(directory).await? {
            let used = clean(&packages.directory.join(&owner)).await?;
            packages.usage.set(owner, used);
        }
        Ok(packages)
    }

    fn path(&self, owner: &str, digest: &str) -> PathBuf {
        self.directory.join(directory_name(owner)).join(digest).with_extension("json")
    }
}

/// Removes files without a description; returns the usage of the packages that remain.
async fn clean(directory: &Path) -> Result<FileUsage> {
    let mut used = FileUsage::default();
    let mut files = fs::read_dir(directory).await?;
    while let Some(file) = files.next_entry().await? {
        let path = file.path();
        let described = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => {
                let described = describe::<PackageMeta>(&path).await?;
                described.filter(|_| path.with_extension("pkg").is_file())
            }
            Some("pkg") if describe::<PackageMeta>(&path.with_extension("json")).await?.is_some() => continue,
            _ => None,
        };
        match described {
            Some(meta) => {
                used.bytes += meta.size;
                used.files += 1;
            }
            None => fs::remove_file(&path).await?,
        }
    }
    Ok(used)
}

#[async_trait]
impl Packages for DiskPackages {
    async fn create(&self, owner: &str) -> Result<Box<dyn PackageUpload>> {
        let name = directory_name(owner);
        let directory = self.directory.join(&name);
        private::directory(&directory)?;
        let path = directory.join(format!("{}.part", part()));
        Ok(Box::new(DiskPackageUpload {
            file: UnfinishedFile::create(path, &self.usage, &name, 0).await?,
            directory,
            owner: owner.to_owned(),
            steps: self.steps.clone(),
            digest: <Sha256 as sha2::Digest>::new(),
        }))
    }

    async fn find(&self, owner: Option<&str>, digest: &Digest) -> Result<Option<PackageMeta>> {
        if let Some(owner) = owner {
            return Ok(describe::<PackageMeta>(&self.path(owner, digest.as_str())).await?);
        }
        for owner in owners(&self.directory).await? {
            let path = self.directory.join(owner).join(digest.as_str()).with_extension("json");
            if let Some(meta) = describe::<PackageMeta>(&path).await? {
                return Ok(Some(meta));
            }
        }
        Ok(None)
    }

    async fn open(&self, found: &PackageMeta) -> Result<Option<Box<dyn AsyncRead + Send + Unpin>>> {
        match File::open(self.path(&found.owner, &found.sha256).with_extension("pkg")).await {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn list(&self, owner: Option<&str>) -> Result<Vec<PackageMeta>> {
        let directories = match owner {
            Some(owner) => vec![directory_name(owner)],
            None => owners(&self.directory).await?,
        };
        let mut found = Vec::new();
        for directory in directories {
            let mut files = match fs::read_dir(self.directory.join(directory)).await {
                Ok(files) => files,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            while let Some(file) = files.next_entry().await? {
                let path = file.path();
                if path.extension().is_some_and(|extension| extension == "json") {
                    found.extend(describe::<PackageMeta>(&path).await?);
                }
            }
        }
        super::sort(&mut found);
        Ok(found)
    }

    async fn delete(&self, owner: &str, digest: &Digest) -> Result<bool> {
        let path = self.path(owner, digest.as_str());
        let _alone = self.steps.lock().await;
        let Some(meta) = describe::<PackageMeta>(&path).await? else { return Ok(false) };
        // The description first: bytes without one are never read.
        match fs::remove_file(&path).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            removed => removed?,
        }
        fs::remove_file(path.with_extension("pkg")).await?;
        self.usage.release(&directory_name(owner), FileUsage { bytes: meta.size, files: 1 });
        Ok(true)
    }
}

struct DiskPackageUpload {
    file: UnfinishedFile,
    directory: PathBuf,
    owner: String,
    steps: Arc<tokio::sync::Mutex<()>>,
    digest: Sha256,
}

#[async_trait]
impl PackageUpload for DiskPackageUpload {
    async fn write(&mut self, piece: &[u8]) -> Result<()> {
        if self.file.size() + piece.len() as u64 > MAX_PACKAGE {
            return Err(PackageError::TooLarge);
        }
        sha2::Digest::update(&mut self.digest, piece);
        Ok(self.file.write(piece).await?)
    }

    async fn finish(mut self: Box<Self>, digest: &Digest, name: &str, now_ms: u64) -> Result<UploadOutcome> {
        let found = hex(&sha2::Digest::finalize(self.digest.clone()));
        if found != digest.as_str() {
            return Err(PackageError::Mismatch { found });
        }
        self.file.sync().await?;
        let description = self.directory.join(digest.as_str()).with_extension("json");
        let steps = self.steps.clone();
        let _alone = steps.lock().await;
        if describe::<PackageMeta>(&description).await?.is_some() {
            return Ok(UploadOutcome::Known);
        }
        let meta = PackageMeta {
            sha256: found,
            name: name.to_owned(),
            size: self.file.size(),
            owner: self.owner.clone(),
            created_ms: now_ms,
        };
        let text = serde_json::to_vec(&meta).map_err(|error| PackageError::Unavailable(error.to_string()))?;
        // Before the last step, so that two uploads of the same bytes count once.
        let written = self.file.path().with_extension("new");
        private::write(&written, text).await?;
        fs::rename(self.file.path(), description.with_extension("pkg")).await?;
        // A hard link, unlike a rename, does not replace an existing file: only one of two uploads is the first.
        let linked = fs::hard_link(&written, &description).await;
        let _ = fs::remove_file(&written).await;
        match linked {
            Ok(()) => {
                self.file.keep();
                Ok(UploadOutcome::New)
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(UploadOutcome::Known),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns a safe name for any owner; it starts with a letter, because the empty owner is valid too.
fn directory_name(owner: &str) -> String {
    let digest = <Sha256 as sha2::Digest>::digest(owner.as_bytes());
    format!("o{}", hex(digest.get(..16).unwrap_or_default()))
}

/// Returns a name that no other upload of this process has; files of earlier processes were removed at its start.
fn part() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    const SMALL: Quota = Quota { bytes: 6, count: 3 };

    #[tokio::test]
    async fn the_disk_backend_passes_the_suite() {
        let directory = tempfile::tempdir().unwrap();
        suite::run(&DiskPackages::open(directory.path(), Quota::default()).await.unwrap()).await;
    }

    #[tokio::test]
    async fn packages_survive_a_restart_and_half_ones_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let packages = DiskPackages::open(directory.path(), Quota::default()).await.unwrap();
        let digest = suite::put(&packages, "acme", b"one").await.unwrap().0;
        let mut half = packages.create("acme").await.unwrap();
        half.write(b"two").await.unwrap();
        // State after a crash.
        std::mem::forget(half);
        let again = DiskPackages::open(directory.path(), SMALL).await.unwrap();
        assert_eq!(again.find(Some("acme"), &digest).await.unwrap().unwrap().size, 3);
        // Three of six bytes are used, and those of the partial package are free again.
        suite::put(&again, "acme", b"new").await.unwrap();
        assert!(matches!(suite::put(&again, "acme", b"x").await, Err(PackageError::Quota { .. })));
        suite::put(&again, "globex", b"theirs").await.unwrap();
        again.delete("acme", &digest).await.unwrap();
        suite::put(&again, "acme", b"x").await.unwrap();
        suite::put(&again, "acme", b"y").await.unwrap();
        assert!(
            matches!(suite::put(&again, "acme", b"").await, Err(PackageError::Quota { .. })),
            "three packages"
        );
    }

    /// A deletion between the two steps of an upload, or the reverse, left a description without bytes.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_package_that_is_pushed_while_it_is_deleted_is_there_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let packages = Arc::new(DiskPackages::open(directory.path(), Quota::default()).await.unwrap());
        let digest = suite::put(&*packages, "acme", b"one").await.unwrap().0;
        for _ in 0..300 {
            let pushing = packages.clone();
            let deleting = packages.clone();
            let gone = digest.clone();
            let pushed = tokio::spawn(async move { suite::put(&*pushing, "acme", b"one").await });
            let deleted = tokio::spawn(async move { deleting.delete("acme", &gone).await });
            pushed.await.unwrap().unwrap();
            deleted.await.unwrap().unwrap();
            if let Some(meta) = packages.find(Some("acme"), &digest).await.unwrap() {
                assert!(packages.open(&meta).await.unwrap().is_some(), "described, and without bytes");
            }
        }
    }

    #[tokio::test]
    async fn what_was_refused_takes_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let packages = DiskPackages::open(directory.path(), SMALL).await.unwrap();
        for _ in 0..4 {
            let mut upload = packages.create("acme").await.unwrap();
            upload.write(b"123456").await.unwrap();
            let wrong = Digest::parse(&"0".repeat(64)).unwrap();
            assert!(matches!(upload.finish(&wrong, "a", 1).await, Err(PackageError::Mismatch { .. })));
        }
        let digest = suite::put(&packages, "acme", b"123456").await.unwrap().0;
        packages.delete("acme", &digest).await.unwrap();
        let files = std::fs::read_dir(directory.path().join(directory_name("acme"))).unwrap().count();
        assert_eq!(files, 0);
    }

    /// A process without free file descriptors reads none.
    #[tokio::test]
    async fn a_package_whose_description_cannot_be_read_stays() {
        let directory = tempfile::tempdir().unwrap();
        let packages = DiskPackages::open(directory.path(), Quota::default()).await.unwrap();
        let digest = suite::put(&packages, "acme", b"one").await.unwrap().0;
        let description = packages.path("acme", digest.as_str());
        let saved = directory.path().join("saved");
        std::fs::rename(&description, &saved).unwrap();
        // A link to itself cannot be opened.
        std::os::unix::fs::symlink(&description, &description).unwrap();
        assert!(matches!(packages.find(Some("acme"), &digest).await, Err(PackageError::Unavailable(_))));
        assert!(matches!(
            DiskPackages::open(directory.path(), Quota::default()).await.map(drop),
            Err(PackageError::Unavailable(_))
        ));
        std::fs::rename(&saved, &description).unwrap();
        let found = packages.find(Some("acme"), &digest).await.unwrap().unwrap();
        assert!(packages.open(&found).await.unwrap().is_some());
    }
}
