//! A bounded local file in front of a remote [`AuditLog`]: events that the log does not accept wait in the file and are
//! delivered in order once it does.
//!
//! Owns the file, which several processes of one machine may share and which outlives them. Refuses events if the file
//! is full. Before that, an org with a tenth of a half-full file may start no more calls; the events of its running
//! calls are still accepted. Keeps true: every event accepted by [`AuditLog::append`] is in the file or in the log; no
//! event leaves the file before the log has it, and the last event of a call takes the place of the `unknown` that another
//! gateway wrote while it waited. An event may be in the log twice only if the log was still writing it, after its connection
//! had broken, when the next attempt looked for it.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::{Result, SqliteAudit};
use crate::audit::replay::LateEvents;
use crate::audit::search::{AuditPage, AuditSearch};
use crate::audit::{AuditError, AuditLog, AuditQuery, CallEvent, CapturedBody, LostWriter, StoredEvent};
use crate::private;
use org_bytes::OrgBytes;

mod org_bytes;

/// Timeout of a batch. A healthy log is faster. The log's own errors may take longer, as it may first wait for a
/// connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// Factor on the timeout for a batch from the file.
const MOVES: u32 = 15;
/// Interval of attempts to deliver the events in the file.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of events delivered at once.
const BATCH: u32 = 512;

/// An audit log that may be unavailable, and the file in front of it.
pub struct SpooledAudit {
    log: Arc<dyn AuditLog>,
    file: SqliteAudit,
    path: PathBuf,
    /// Held while events are added to the file, and while the file is declared empty.
    adding: Mutex<()>,
    /// Whether the file may have events; later ones queue behind them.
    waiting: AtomicBool,
    org_bytes: OrgBytes,
    /// Timeout of a batch.
    patience: Duration,
    /// Directory of the journals in front of the log.
    journals: Option<PathBuf>,
}

impl SpooledAudit {
    /// Opens or creates the file, whose events may take `max_bytes` plus one batch. Events from an earlier process are
    /// delivered too.
    pub async fn open(log: Arc<dyn AuditLog>, path: &Path, max_bytes: u64) -> Result<SpooledAudit> {
        let file = SqliteAudit::open(path, max_bytes).await?;
        let waiting = AtomicBool::new(!file.is_empty().await?);
        let org_bytes = OrgBytes::of(max_bytes, file.by_org().await?);
        let adding = Mutex::new(());
        let path = path.to_owned();
        let patience = PATIENCE;
        Ok(SpooledAudit { log, file, path, adding, waiting, org_bytes, patience, journals: None })
    }

    /// Has gateways keep events in journals in this directory until the log or the file has them.
    pub fn journaled(mut self, directory: PathBuf) -> SpooledAudit {
        self.journals = Some(directory);
        self
    }

    /// Delivers the events in the file whenever the log accepts them; never ends.
    pub async fn keep_moving(&self) {
        let mut ticks = tokio::time::interval(TRY_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.move_waiting().await {
                Ok(0) => {}
                Ok(events) => {
                    tracing::info!(events, file = %self.path.display(), "the audit log accepts events again and has received those that waited");
                }
                Err(error) => {
                    tracing::debug!(%error, file = %self.path.display(), "events of calls still wait for the audit log");
                }
            }
        }
    }

    /// Delivers all events in the file unless another process does so already; returns their number.
    async fn move_waiting(&self) -> Result<u64, AuditError> {
        if !self.waiting.load(Ordering::Acquire) {
            // Another process that shares the file may have left events and ended.
            if self.file.is_empty().await? {
                return Ok(0);
            }
            self.waiting.store(true, Ordering::Release);
        }
        let Some(_lock) = self.lock()? else { return Ok(0) };
        let mut moved = 0;
        let mut late = LateEvents::default();
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
            // No call waits for this. Of a batch that times out, the next attempt finds what the log has.
            let within = MOVES * self.patience;
            let settling = tokio::time::timeout(within, late.settle(self.log.as_ref(), events.clone())).await;
            let append = settling.map_err(|_| no_answer(within))??;
            if !append.is_empty() {
                self.hand_over(&append, within).await?;
            }
            self.file.remove(last).await?;
            self.org_bytes.remove(&events);
            moved += events.len() as u64;
        }
    }

    /// Locks the file for delivery, which one process does at a time.
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
            Err(_) => Err(no_answer(within)),
        }
    }
}

fn no_answer(within: Duration) -> AuditError {
    AuditError(format!("no answer within {} ms", within.as_millis()))
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
            AuditError(format!(
                "it did not accept the events, and {}, where events wait, {why}",
                self.path.display()
            ))
        })?;
        for org in self.org_bytes.add(events) {
            tracing::warn!(%org, file = %self.path.display(), "an org uses a tenth of the file in which events wait for the audit log: its calls are refused until the log has accepted some of them");
        }
        if !self.waiting.swap(true, Ordering::AcqRel)
            && let Some(error) = away
        {
            tracing::warn!(%error, file = %self.path.display(), "the audit log does not accept events of calls: they wait in a file until it does");
        }
        Ok(())
    }

    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        self.log.page(query).await
    }

    async fn search(&self, search: &AuditSearch) -> Result<AuditPage, AuditError> {
        self.log.search(search).await
    }

    fn captures(&self, server: &str) -> bool {
        self.log.captures(server)
    }

    async fn capture(&self, bodies: &[CapturedBody]) -> Result<(), AuditError> {
        self.log.capture(bodies).await
    }

    async fn captured(&self, call: &str) -> Result<Vec<CapturedBody>, AuditError> {
        self.log.captured(call).await
    }

    async fn renew_writer(&self, id: &str, oldest_ms: i64) -> Result<(), AuditError> {
        self.log.renew_writer(id, oldest_ms).await
    }

    /// Keeps the record while events wait in the file: calls whose last event is there have ended only for this process.
    async fn release_writer(&self, id: &str) -> Result<(), AuditError> {
        match self.waiting.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.log.release_writer(id).await,
        }
    }

    async fn lost_writers(&self, longest: Duration) -> Result<Vec<LostWriter>, AuditError> {
        // The last events of a lost gateway may be in this file.
        match self.waiting.load(Ordering::Acquire) {
            true => Ok(Vec::new()),
            false => self.log.lost_writers(longest).await,
        }
    }

    async fn finish_writer(
        &self,
        lost: &LostWriter,
        events: &[CallEvent],
        is_last: bool,
    ) -> Result<bool, AuditError> {
        self.log.finish_writer(lost, events, is_last).await
    }

    /// Fails while events wait in the file: those of the gateway that has ended may be among them.
    async fn return_writer(&self, id: &str, oldest_ms: i64) -> Result<(), AuditError> {
        match self.waiting.load(Ordering::Acquire) {
            true => Err(AuditError(format!("events wait in {}", self.path.display()))),
            false => self.log.return_writer(id, oldest_ms).await,
        }
    }

    async fn replace(&self, stored: &StoredEvent, event: &CallEvent) -> Result<bool, AuditError> {
        self.log.replace(stored, event).await
    }

    fn journals(&self) -> Option<&Path> {
        self.journals.as_deref()
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
