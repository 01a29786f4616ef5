//! [`Blobs`] with bytes in an object store and descriptions in PostgreSQL.

use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;

use super::client::S3;
use super::stored::{Error, ObjectFolder, ObjectUpload};
use crate::blobs::{BlobError, BlobId, BlobMeta, Blobs, EACH, MAX_BLOB, ORG_QUOTA, Upload};
use crate::link::Link;
use crate::postgres::Postgres;
use crate::postgres::objects::{Kind, ObjectQuota, StoredObject};

const FOLDER: &str = "artifacts";
/// Bytes of each upload in memory: small, because calls have many open at once.
const STEP: usize = 64 << 10;

/// Blobs shared by all processes with this database and this store.
pub struct S3Blobs(ObjectFolder);

impl S3Blobs {
    /// Creates the blobs, without connecting. Uploads are files in the local directory until they are complete.
    pub fn open(database: &Postgres, s3: S3, directory: &Path) -> Result<S3Blobs, BlobError> {
        S3Blobs::with_quota(database, s3, directory, ORG_QUOTA)
    }

    /// Creates the blobs with another quota for each org, in bytes.
    pub fn with_quota(
        database: &Postgres,
        s3: S3,
        directory: &Path,
        quota: u64,
    ) -> Result<S3Blobs, BlobError> {
        // Each blob is charged some bytes, which bounds their number.
        let quota = ObjectQuota { bytes: quota, objects: u64::MAX };
        let rows = database.objects(Kind::Artifact, quota);
        let stored = ObjectFolder { rows, s3, folder: FOLDER, directory: directory.to_owned(), step: STEP };
        Ok(S3Blobs(stored.prepared()?))
    }

    async fn find(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, StoredObject)>, Error> {
        let Some(found) = self.0.find(Some(org), id.as_str()).await? else { return Ok(None) };
        let meta = serde_json::from_str(&found.description).map_err(|_| self.0.other(&found))?;
        Ok(Some((meta, found)))
    }
}

impl From<Error> for BlobError {
    fn from(error: Error) -> BlobError {
        match error {
            Error::Full(_) => BlobError::Quota,
            error => BlobError::Unavailable(error.to_string()),
        }
    }
}

#[async_trait]
impl Blobs for S3Blobs {
    async fn create(&self, id: BlobId, org: &str) -> Result<Box<dyn Upload>, BlobError> {
        let writing = self.0.begin(org, EACH).await?;
        Ok(Box::new(S3BlobUpload { id, writing }))
    }

    async fn read(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, Bytes)>, BlobError> {
        let Some((meta, found)) = self.find(org, id).await? else { return Ok(None) };
        let bytes = self.0.read(&found).await?;
        Ok(bytes.map(|bytes| (meta, bytes)))
    }

    async fn link(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, u64, Link)>, BlobError> {
        if !self.0.s3.gives_links() {
            return Ok(None);
        }
        let Some((meta, found)) = self.find(org, id).await? else { return Ok(None) };
        let link = self.0.link(&found, &meta.name);
        Ok(link.map(|link| (meta, found.size, link)))
    }

    async fn sweep(&self) -> Result<(), BlobError> {
        Ok(self.0.sweep().await?)
    }
}

struct S3BlobUpload {
    id: BlobId,
    writing: ObjectUpload,
}

#[async_trait]
impl Upload for S3BlobUpload {
    async fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        if self.writing.size() + piece.len() as u64 > MAX_BLOB {
            return Err(BlobError::TooLarge);
        }
        Ok(self.writing.write(piece).await?)
    }

    async fn finish(mut self: Box<Self>, meta: BlobMeta) -> Result<(), BlobError> {
        let content = self.writing.complete().await?;
        let description =
            serde_json::to_string(&meta).map_err(|error| BlobError::Unavailable(error.to_string()))?;
        let named = (self.id.as_str(), description);
        match self.writing.show(&content, named, meta.expires_ms).await? {
            true => Ok(()),
            false => Err(BlobError::Unavailable("another blob has this id".into())),
        }
    }
}
