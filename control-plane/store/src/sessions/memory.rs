//! The directory of sessions of one process, for tests only.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{DirectoryError, MAX_GATEWAYS, OpenSession, SessionDirectory, SessionEntry, SessionId};
use crate::records::OwnerId;

/// Sessions kept until the process ends.
#[derive(Default)]
pub struct MemoryDirectory {
    rows: Mutex<HashMap<SessionId, SessionRow>>,
}

struct SessionRow {
    entry: SessionEntry,
    until: Instant,
}

impl MemoryDirectory {
    /// Applies `change` to a session that has not ended, and keeps it for at least `left`.
    fn open(
        &self,
        session: SessionId,
        left: Duration,
        change: impl FnOnce(&mut OpenSession) -> OpenSession,
    ) -> SessionEntry {
        let now = Instant::now();
        let mut rows = self.rows.lock();
        rows.retain(|_, row| row.until > now);
        let row = rows
            .entry(session)
            .or_insert_with(|| SessionRow { entry: SessionEntry::Open(OpenSession::default()), until: now });
        let SessionEntry::Open(open) = &mut row.entry else { return SessionEntry::Ended };
        row.until = row.until.max(now + left);
        SessionEntry::Open(change(open))
    }
}

#[async_trait]
impl SessionDirectory for MemoryDirectory {
    async fn enter(
        &self,
        session: SessionId,
        gateway: OwnerId,
        left: Duration,
    ) -> Result<SessionEntry, DirectoryError> {
        Ok(self.open(session, left, |open| {
            open.gateways.retain(|other| *other != gateway);
            let others = open.clone();
            if open.gateways.len() >= MAX_GATEWAYS {
                open.gateways.remove(0);
            }
            open.gateways.push(gateway);
            others
        }))
    }

    async fn set_log_level(
        &self,
        session: SessionId,
        level: u8,
        left: Duration,
    ) -> Result<(), DirectoryError> {
        self.open(session, left, |open| {
            open.log_level = Some(level);
            open.clone()
        });
        Ok(())
    }

    async fn end(&self, session: SessionId, left: Duration) -> Result<Vec<OwnerId>, DirectoryError> {
        let until = Instant::now() + left;
        let before = self.rows.lock().insert(session, SessionRow { entry: SessionEntry::Ended, until });
        Ok(match before.map(|row| row.entry) {
            Some(SessionEntry::Open(open)) => open.gateways,
            Some(SessionEntry::Ended) | None => Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn does_what_every_directory_must() {
        super::super::suite::run(&MemoryDirectory::default()).await;
    }
}
