//! A ledger that fails where a test wants it to; all else reaches the real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_store::ledger::{Answer, Claim, Holder, Ledger, LedgerError, LedgerKey, LedgerRequest, MemoryLedger};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A ledger whose answers and releases fail for a while, or come to nothing as those of a gateway that dies do.
#[derive(Default)]
pub(crate) struct Faulty {
    pub inner: Arc<MemoryLedger>,
    pub failures: AtomicUsize,
    pub dies: bool,
    /// Number of claims that are taken and answered with an error.
    pub unheard: AtomicUsize,
    /// Number of claims that are taken and never answered.
    pub unanswered: AtomicUsize,
    /// A key whose answer is not stored is given back by another gateway.
    pub loses_keys: bool,
    /// Number of claims that pass to another gateway without an answer.
    pub unheard_seizures: AtomicUsize,
    /// Storing an answer panics, once it may.
    pub panics: Option<Arc<Notify>>,
}

impl Faulty {
    fn fails(&self) -> Result<(), LedgerError> {
        let once = |left: usize| left.checked_sub(1);
        match self.failures.fetch_update(Ordering::AcqRel, Ordering::Acquire, once) {
            Ok(_) => Err(LedgerError::Unavailable("database is locked".into())),
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Ledger for Faulty {
    async fn claim(
        &self,
        request: LedgerRequest,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim, LedgerError> {
        let claimed = self.inner.claim(request, holder, wait_until, lease).await;
        let once = |left: usize| left.checked_sub(1);
        if self.unanswered.fetch_update(Ordering::AcqRel, Ordering::Acquire, once).is_ok() {
            std::future::pending::<()>().await;
        }
        match self.unheard.fetch_update(Ordering::AcqRel, Ordering::Acquire, once) {
            Ok(_) => Err(LedgerError::Unavailable("the connection broke".into())),
            Err(_) => claimed,
        }
    }

    async fn seize(
        &self,
        request: LedgerRequest,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError> {
        let seized = self.inner.seize(request, holder, lease).await;
        let once = |left: usize| left.checked_sub(1);
        match self.unheard_seizures.fetch_update(Ordering::AcqRel, Ordering::Acquire, once) {
            Ok(_) => Err(LedgerError::Unavailable("the connection broke".into())),
            Err(_) => seized,
        }
    }

    async fn reclaim(
        &self,
        request: LedgerRequest,
        holder: Holder,
        lease: Duration,
    ) -> Result<bool, LedgerError> {
        self.inner.reclaim(request, holder, lease).await
    }

    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool, LedgerError> {
        self.inner.renew(key, holder, lease).await
    }

    async fn answer(&self, request: LedgerRequest) -> Result<Option<Bytes>, LedgerError> {
        self.fails()?;
        self.inner.answer(request).await
    }

    async fn running(&self, request: LedgerRequest) -> Result<Option<[u8; 16]>, LedgerError> {
        self.inner.running(request).await
    }

    async fn complete(
        &self,
        key: LedgerKey,
        holder: Holder,
        answer: Answer,
        keep: Duration,
    ) -> Result<bool, LedgerError> {
        if let Some(may) = &self.panics {
            may.notified().await;
            std::panic::resume_unwind(Box::new("a fault of ours"));
        }
        let fails = self.fails();
        if fails.is_err() && self.loses_keys {
            self.inner.release(key, holder).await?;
        }
        fails?;
        if self.dies { Ok(true) } else { self.inner.complete(key, holder, answer, keep).await }
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<(), LedgerError> {
        self.fails()?;
        if self.dies { Ok(()) } else { self.inner.release(key, holder).await }
    }
}
