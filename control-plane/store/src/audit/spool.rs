//! A bounded file of this machine before an [`AuditLog`] that is elsewhere: what that one does not take waits there, and
//! is brought to it in order once it takes events again.
//!
//! Owns the file, which several processes of one machine may share, and which outlives them. Refuses events where the file
//! is full, and says before that of an org which has a tenth of it that nothing more may begin there: what ends is
//! taken. Keeps true: what [`AuditLog::append`] took is in the file or in the log; nothing leaves the file before
//! the log has it. An event may be in the log twice where the connection to it broke, or this process ended, between the
//! log's commit and the file's.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::sqlite::SqliteAudit;
use super::{AuditError, AuditLog, AuditQuery, CallEvent, StoredEvent};
use crate::calls::OpenError;
use crate::private;
use org_bytes::OrgBytes;

mod org_bytes;

/// Longer than the log takes for a batch while it is well. Its own errors come later, where it waits for a connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many times as long may it take for a batch that has waited.
const MOVES: u32 = 15;
/// How often it is looked whether the log takes events again.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Most events that are brought to the log at once.
const BATCH: u32 = 512;

/// An audit log that may be away, and the file before it.
pub struct SpooledAudit {
    log: Arc<dyn AuditLog>,
    file: SqliteAudit,
    path: PathBuf,
    /// Held by whoever adds to the file, and by whoever finds it empty.
    adding: Mutex<()>,
    /// The file has events, or may: later ones wait behind them.
    waiting: AtomicBool,
    org_bytes: OrgBytes,
    /// How long the log may take for a batch.
    patience: Duration,
}

impl SpooledAudit {
    /// Opens or creates the file, whose events may need at most `max_bytes`, and one batch more. What an earlier process
    /// left in it is brought to the log too.
    pub async fn open(
        log: Arc<dyn AuditLog>,
        path: &Path,
        max_bytes: u64,
    ) -> Result<SpooledAudit, OpenError> {
        let file = SqliteAudit::open(path, max_bytes).await?;
        let waiting = AtomicBool::new(!file.is_empty().await?);
        let org_bytes = OrgBytes::of(max_bytes, file.by_org().await?);
        let adding = Mutex::new(());
        Ok(SpooledAudit { log, file, path: path.to_owned(), adding, waiting, org_bytes, patience: PATIENCE })
    }

    /// Brings to the log what waits, whenever it takes events; never ends.
    pub async fn keep_moving(&self) {
        let mut ticks = tokio::time::interval(TRY_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.move_waiting().await {
                Ok(0) => {}
                Ok(events) => {
                    tracing::info!(events, file = %self.path.display(), "the audit log takes events again and got those that waited");
                }
                Err(error) => {
                    tracing::debug!(%error, file = %self.path.display(), "events of calls still wait for the audit log");
                }
            }
        }
    }

    /// Brings to the log all that waits, unless another process does; returns how many events that were.
    async fn move_waiting(&self) -> Result<u64, AuditError> {
        if !self.waiting.load(Ordering::Acquire) {
            // Another process that shares the file may have left something and be gone.
            if self.file.is_empty().await? {
                return Ok(0);
            }
            self.waiting.store(true, Ordering::Release);
        }
        let Some(_lock) = self.lock()? else { return Ok(0) };
        let mut moved = 0;
        loop {
            let batch = self.file.oldest(BATCH).await?;
            let Some(last) = batch.last().map(|stored| stored.seq) else {
                let _adding = self.adding.lock().await;
                if self.file.is_empty().await? {
                    self.org_bytes.clear();
                    self.waiting.store(false, Ordering::Release);
                    return Ok(moved);
                }
                continue;
            };
            let events: Vec<CallEvent> = batch.into_iter().map(|stored| stored.event).collect();
            // No call waits for this, and what is given up may be there twice.
            self.hand_over(&events, MOVES * self.patience).await?;
            self.file.remove(last).await?;
            self.org_bytes.remove(&events);
            moved += events.len() as u64;
        }
    }

    /// The right to move events, which one process has at a time.
    fn lock(&self) -> Result<Option<File>, AuditError> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let file = OpenOptions::new().create(true).append(true).mode(private::FILE).open(&path);
        let locked = file.map_err(TryLockError::Error).and_then(|file| file.try_lock().map(|()| file));
        match locked {
            Ok(file) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(AuditError(format!("lock {}: {error}", path.display()))),
        }
    }

    async fn hand_over(&self, events: &[CallEvent], within: Duration) -> Result<(), AuditError> {
        match tokio::time::timeout(within, self.log.append(events)).await {
            Ok(appended) => appended,
            Err(_) => Err(AuditError(format!("no answer within {} ms", within.as_millis()))),
        }
    }
}

#[async_trait]
impl AuditLog for SpooledAudit {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        let mut away = None;
        if !self.waiting.load(Ordering::Acquire) {
            match self.hand_over(events, self.patience).await {
                Ok(()) => return Ok(()),
                Err(error) => away = Some(error),
            }
        }
        let _adding = self.adding.lock().await;
        self.file.push(events).await.map_err(|why| {
            AuditError(format!("it is away, and {}, where events wait, {why}", self.path.display()))
        })?;
        for org in self.org_bytes.add(events) {
            tracing::warn!(%org, file = %self.path.display(), "an org has a tenth of the file in which events wait for the audit log: its calls are refused until the log took some of them");
        }
        if !self.waiting.swap(true, Ordering::AcqRel)
            && let Some(error) = away
        {
            tracing::warn!(%error, file = %self.path.display(), "the audit log does not take events of calls: they wait in a file until it does");
        }
        Ok(())
    }

    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        self.log.page(query).await
    }

    fn is_required(&self) -> bool {
        true
    }

    fn has_room(&self, org: &str) -> bool {
        !self.waiting.load(Ordering::Acquire) || self.org_bytes.has_room(org)
    }
}

#[cfg(test)]
mod tests;
