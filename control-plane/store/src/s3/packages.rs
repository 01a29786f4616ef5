//! [`Packages`] with bytes in an object store and descriptions in PostgreSQL.

use std::path::Path;

use async_trait::async_trait;
use futures::stream;
use tokio::io::AsyncRead;
use tokio_util::io::StreamReader;

use super::client::S3;
use super::stored::{Error, ObjectFolder, ObjectUpload, VerifiedDownload};
use crate::hex::hex;
use crate::link::Link;
use crate::packages;
use crate::packages::{
    Digest, MAX_PACKAGE, PackageError, PackageMeta, PackageUpload, Packages, Quota, Result,
};
use crate::postgres::Postgres;
use crate::postgres::objects::{Kind, ObjectQuota};

const FOLDER: &str = "packages";
/// Bytes of each upload in memory: large, because few packages are uploaded at once.
const STEP: usize = 1 << 20;

/// Packages shared by all processes with this database and this store.
pub struct S3Packages(ObjectFolder);

impl S3Packages {
    /// Creates the packages, without connecting. Uploads are files in the local directory until they are complete.
    pub fn open(database: &Postgres, s3: S3, directory: &Path, quota: Quota) -> Result<S3Packages> {
        let quota = ObjectQuota { bytes: quota.bytes, objects: quota.count as u64 };
        let rows = database.objects(Kind::Package, quota);
        let stored = ObjectFolder { rows, s3, folder: FOLDER, directory: directory.to_owned(), step: STEP };
        Ok(S3Packages(stored.prepared()?))
    }
}

impl From<Error> for PackageError {
    fn from(error: Error) -> PackageError {
        match error {
            Error::Full(quota) => PackageError::Quota {
                bytes: quota.bytes,
                count: usize::try_from(quota.objects).unwrap_or(usize::MAX),
            },
            error => PackageError::Unavailable(error.to_string()),
        }
    }
}

fn described(description: &str) -> Result<PackageMeta> {
    serde_json::from_str(description).map_err(|error| PackageError::Unavailable(error.to_string()))
}

#[async_trait]
impl Packages for S3Packages {
    async fn create(&self, owner: &str) -> Result<Box<dyn PackageUpload>> {
        let writing = self.0.begin(owner, 0).await?;
        Ok(Box::new(S3PackageUpload { stored: self.0.clone(), owner: owner.to_owned(), writing }))
    }

    async fn find(&self, owner: Option<&str>, digest: &Digest) -> Result<Option<PackageMeta>> {
        let found = self.0.find(owner, digest.as_str()).await?;
        found.map(|found| described(&found.description)).transpose()
    }

    async fn open(&self, found: &PackageMeta) -> Result<Option<Box<dyn AsyncRead + Send + Unpin>>> {
        let Some(row) = self.0.find(Some(&found.owner), &found.sha256).await? else { return Ok(None) };
        let reading = self.0.open(&row).await?;
        Ok(reading.map(|reading| Box::new(reader(reading)) as Box<_>))
    }

    async fn link(&self, found: &PackageMeta) -> Result<Option<Link>> {
        if !self.0.s3.gives_links() {
            return Ok(None);
        }
        let row = self.0.find(Some(&found.owner), &found.sha256).await?;
        Ok(row.and_then(|row| self.0.link(&row, &found.name)))
    }

    async fn list(&self, owner: Option<&str>) -> Result<Vec<PackageMeta>> {
        let all = self.0.rows.list(owner).await.map_err(Error::from)?;
        let mut found: Vec<PackageMeta> =
            all.iter().map(|description| described(description)).collect::<Result<_, _>>()?;
        packages::sort(&mut found);
        Ok(found)
    }

    async fn delete(&self, owner: &str, digest: &Digest) -> Result<bool> {
        let hidden = self.0.rows.hide(owner, digest.as_str()).await.map_err(Error::from)?;
        let Some(object) = hidden else { return Ok(false) };
        // Nobody can find it any more; if its bytes could not be deleted, it counts until a sweep has deleted them.
        if let Err(error) = self.0.delete(object).await {
            tracing::warn!(
                %error,
                "the bytes of a deleted package could not be removed from the object store: they count towards the quota until \
                 they are, which is retried every minute"
            );
        }
        Ok(true)
    }

    async fn sweep(&self) -> Result<()> {
        Ok(self.0.sweep().await?)
    }
}

/// Converts a download to a reader.
fn reader(reading: VerifiedDownload) -> impl AsyncRead + Send + Unpin {
    let pieces = stream::try_unfold(reading, |mut reading| async move {
        let piece = reading.next().await.map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>(piece.map(|piece| (piece, reading)))
    });
    StreamReader::new(Box::pin(pieces))
}

struct S3PackageUpload {
    stored: ObjectFolder,
    owner: String,
    writing: ObjectUpload,
}

#[async_trait]
impl PackageUpload for S3PackageUpload {
    async fn write(&mut self, piece: &[u8]) -> Result<()> {
        if self.writing.size() + piece.len() as u64 > MAX_PACKAGE {
            return Err(PackageError::TooLarge);
        }
        Ok(self.writing.write(piece).await?)
    }

    async fn finish(
        self: Box<Self>,
        digest: &Digest,
        name: &str,
        now_ms: u64,
    ) -> Result<packages::UploadOutcome> {
        let S3PackageUpload { stored, owner, mut writing } = *self;
        let stored_as = finish(&stored, &owner, &mut writing, (digest, name, now_ms)).await;
        if !matches!(stored_as, Ok(packages::UploadOutcome::New)) {
            // Before the answer, because a rejected client may upload again at once.
            writing.discard().await?;
        }
        stored_as
    }
}

async fn finish(
    stored: &ObjectFolder,
    owner: &str,
    writing: &mut ObjectUpload,
    (digest, name, now_ms): (&Digest, &str, u64),
) -> Result<packages::UploadOutcome> {
    let content = writing.complete().await?;
    let found = hex(&content.sha256());
    if found != digest.as_str() {
        return Err(PackageError::Mismatch { found });
    }
    // Before the transfer, because usually the same package is uploaded again.
    if stored.find(Some(owner), digest.as_str()).await?.is_some() {
        return Ok(packages::UploadOutcome::Known);
    }
    let meta = PackageMeta {
        sha256: found,
        name: name.to_owned(),
        size: content.size(),
        owner: owner.to_owned(),
        created_ms: now_ms,
    };
    let description =
        serde_json::to_string(&meta).map_err(|error| PackageError::Unavailable(error.to_string()))?;
    // Kept until it is deleted.
    let shown = writing.show(&content, (digest.as_str(), description), i64::MAX).await?;
    Ok(if shown { packages::UploadOutcome::New } else { packages::UploadOutcome::Known })
}
