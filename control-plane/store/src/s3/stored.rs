//! Objects of one port: written, made visible, read and deleted across the database and the store.
//!
//! Keeps true: an object's row exists before its bytes and is deleted after them, so that the remains of a crash are
//! found and deleted; no object is visible before all of its bytes are in the store.

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use sha2::{Digest, Sha256};

use super::client::{S3, S3Fault};
use super::reading::Download;
use super::spool::{Spool, SpooledContent};
use crate::hex::hex;
use crate::link::Link;
use crate::postgres::objects::{ObjectId, ObjectQuota, Objects, Reservation, ShowOutcome, StoredObject};
use crate::private;

/// Maximum number of objects in one round of a sweep.
const SWEPT: i64 = 500;
/// Maximum concurrent deletions.
const DELETED_AT_ONCE: usize = 8;
/// Maximum number of undeletable objects named in an error: in a store that accepts no deletion, every object is one.
const NAMED: usize = 10;

/// Reason why bytes could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the quota is used up")]
    Full(ObjectQuota),
    #[error("the upload was abandoned, because no data arrived for too long")]
    GivenUp,
    #[error(
        "the object {object} has other bytes than were written and is rejected: delete it, and check who else writes to the bucket"
    )]
    Other { object: String },
    #[error("{count} objects could not be deleted and still count towards their quota; {named}")]
    Undeleted { count: usize, named: String },
    #[error("{0}")]
    Store(#[from] S3Fault),
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("the directory of uploads: {0}")]
    Directory(#[from] std::io::Error),
}

/// Objects of one kind, in one folder of the store.
#[derive(Clone)]
pub(super) struct ObjectFolder {
    pub(super) rows: Objects,
    pub(super) s3: S3,
    pub(super) folder: &'static str,
    /// Local directory of uploads.
    pub(super) directory: PathBuf,
    /// Bytes of an upload kept in memory; at each step capacity is reserved, and they are written to disk.
    pub(super) step: usize,
}

impl ObjectFolder {
    /// Creates the directory if needed.
    pub(super) fn prepared(self) -> Result<ObjectFolder, Error> {
        private::directory(&self.directory)?;
        Ok(self)
    }

    fn key(&self, object: ObjectId) -> String {
        format!("{}/{}", self.folder, hex(&object))
    }

    /// Starts an object that is charged `each` bytes in addition to its content.
    pub(super) async fn begin(&self, holder: &str, each: u64) -> Result<ObjectUpload, Error> {
        let object: ObjectId = rand::random();
        if !self.rows.begin(object, holder, each).await? {
            return Err(Error::Full(self.rows.quota()));
        }
        Ok(ObjectUpload {
            stored: self.clone(),
            object,
            spool: Some(Spool::new()),
            taken: 0,
            sent: Presence::No,
            done: false,
        })
    }

    /// Returns a visible object of one holder or of any.
    pub(super) async fn find(&self, holder: Option<&str>, name: &str) -> Result<Option<StoredObject>, Error> {
        Ok(self.rows.find(holder, name).await?)
    }

    /// Opens an object for reading; `None` if its bytes are gone.
    pub(super) async fn open(&self, found: &StoredObject) -> Result<Option<VerifiedDownload>, Error> {
        let answer = self.s3.get(&self.key(found.object)).await?;
        Ok(answer.map(|answer| VerifiedDownload {
            stored: self.clone(),
            found: found.clone(),
            reading: Some(Download::new(answer, found.size)),
            received: 0,
            hash: Sha256::new(),
            held: None,
        }))
    }

    /// Reads and verifies all bytes of an object.
    pub(super) async fn read(&self, found: &StoredObject) -> Result<Option<Bytes>, Error> {
        let Some(mut reading) = self.open(found).await? else { return Ok(None) };
        let size = usize::try_from(found.size).map_err(|_| self.other(found))?;
        let mut bytes = BytesMut::with_capacity(size);
        while let Some(piece) = reading.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes.freeze()))
    }

    /// Returns a signed URL of an object; `None` if signed URLs are disabled.
    pub(super) fn link(&self, found: &StoredObject, name: &str) -> Option<Link> {
        self.s3.link(&self.key(found.object), name)
    }

    /// Returns the error for an object whose bytes differ from those written.
    pub(super) fn other(&self, found: &StoredObject) -> Error {
        Error::Other { object: self.key(found.object) }
    }

    /// Deletes an object that is no longer visible.
    pub(super) async fn delete(&self, object: ObjectId) -> Result<(), Error> {
        self.s3.delete(&self.key(object)).await?;
        Ok(self.rows.forget(object).await?)
    }

    /// Deletes expired objects and the remains of crashes and failures. Objects that cannot be deleted keep their row
    /// and their capacity, are retried after a minute, and block no others.
    pub(super) async fn sweep(&self) -> Result<(), Error> {
        let (mut count, mut named) = (0, Vec::new());
        loop {
            let past = self.rows.past(SWEPT).await?;
            let tried = past.len();
            let deletions = stream::iter(past).map(async |object| (object, self.delete(object).await));
            let mut deletions = deletions.buffer_unordered(DELETED_AT_ONCE);
            let before = count;
            while let Some((object, deleted)) = deletions.next().await {
                let Err(error) = deleted else { continue };
                count += 1;
                if named.len() < NAMED {
                    named.push(format!("{}: {error}", self.key(object)));
                }
            }
            let is_last = tried < usize::try_from(SWEPT).unwrap_or(usize::MAX);
            // No deletion of the round succeeded; another round would not do better now.
            if is_last || count - before == tried {
                break;
            }
        }
        self.rows.forget_holders().await?;
        match count {
            0 => Ok(()),
            count => Err(Error::Undeleted { count, named: named.join("; ") }),
        }
    }
}

/// Download of an object that returns the last bytes only after it has verified the size and the digest of all.
pub(super) struct VerifiedDownload {
    stored: ObjectFolder,
    found: StoredObject,
    /// `None` after the end.
    reading: Option<Download>,
    received: u64,
    hash: Sha256,
    held: Option<Bytes>,
}

impl VerifiedDownload {
    /// Returns the next bytes; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(reading) = &mut self.reading {
            let Some(piece) = reading.next().await? else {
                self.reading = None;
                return match self.hash.clone().finalize().as_slice() == self.found.sha256 {
                    true => Ok(self.held.take()),
                    false => Err(self.stored.other(&self.found)),
                };
            };
            self.hash.update(&piece);
            self.received += piece.len() as u64;
            if self.received > self.found.size {
                return Err(self.stored.other(&self.found));
            }
            if let Some(ready) = self.held.replace(piece) {
                return Ok(Some(ready));
            }
        }
        Ok(None)
    }
}

/// An object being written. Dropping it leaves nothing behind, apart from a short delay.
pub(super) struct ObjectUpload {
    stored: ObjectFolder,
    object: ObjectId,
    /// `None` once it is complete.
    spool: Option<Spool>,
    /// Bytes for which capacity is reserved.
    taken: u64,
    sent: Presence,
    done: bool,
}

/// Presence of the bytes in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    No,
    /// Unknown: no answer confirmed it, and they may still arrive.
    Perhaps,
    Yes,
}

impl ObjectUpload {
    pub(super) fn size(&self) -> u64 {
        self.spool.as_ref().map_or(0, Spool::size)
    }

    pub(super) async fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        let step = self.stored.step;
        let Some(spool) = &mut self.spool else { return Err(Error::GivenUp) };
        spool.push(piece);
        if spool.waiting() < step {
            return Ok(());
        }
        self.take().await?;
        let directory = self.stored.directory.clone();
        match &mut self.spool {
            Some(spool) => Ok(spool.flush(&directory).await?),
            None => Err(Error::GivenUp),
        }
    }

    /// Reserves capacity for the bytes received so far.
    async fn take(&mut self) -> Result<(), Error> {
        let more = self.size().saturating_sub(self.taken);
        match self.stored.rows.take(self.object, more).await? {
            Reservation::Taken => {
                self.taken += more;
                Ok(())
            }
            Reservation::Full => Err(Error::Full(self.stored.rows.quota())),
            Reservation::Gone => Err(Error::GivenUp),
        }
    }

    /// Completes the content and reserves capacity for all of it.
    pub(super) async fn complete(&mut self) -> Result<SpooledContent, Error> {
        // Also renews the time within which the upload must make progress.
        self.take().await?;
        let spool = self.spool.take().ok_or(Error::GivenUp)?;
        Ok(spool.finish(&self.stored.directory).await?)
    }

    /// Stores the content and makes it visible under a name until a time. Returns `false` if another object has the
    /// name.
    pub(super) async fn show(
        &mut self,
        content: &SpooledContent,
        (name, description): (&str, String),
        until_ms: i64,
    ) -> Result<bool, Error> {
        self.sent = Presence::Perhaps;
        self.stored.s3.put(&self.stored.key(self.object), content).await?;
        self.sent = Presence::Yes;
        let found = StoredObject {
            object: self.object,
            size: content.size(),
            sha256: content.sha256().to_vec(),
            description,
        };
        match self.stored.rows.show(name, &found, until_ms).await? {
            ShowOutcome::There => {
                self.done = true;
                Ok(true)
            }
            ShowOutcome::Known => Ok(false),
            ShowOutcome::Gone => Err(Error::GivenUp),
        }
    }

    /// Releases its capacity now.
    pub(super) async fn discard(mut self) -> Result<(), Error> {
        self.done = true;
        discard(&self.stored, self.object, self.sent).await
    }
}

impl Drop for ObjectUpload {
    fn drop(&mut self) {
        // Without a runtime the process is ending, and a sweep finds the object.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.done {
            return;
        }
        let stored = self.stored.clone();
        let object = self.object;
        let sent = self.sent;
        runtime.spawn(async move {
            if let Err(error) = discard(&stored, object, sent).await {
                tracing::debug!(%error, "an abandoned upload keeps its capacity until a sweep finds it");
            }
        });
    }
}

async fn discard(stored: &ObjectFolder, object: ObjectId, sent: Presence) -> Result<(), Error> {
    match sent {
        Presence::No => Ok(stored.rows.forget(object).await?),
        Presence::Perhaps => Ok(stored.rows.give_up(object).await?),
        Presence::Yes => stored.delete(object).await,
    }
}
