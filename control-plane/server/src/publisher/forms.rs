//! Writes last published forms to the store.
//!
//! Keeps true: publication does not wait for it, and no form is stored before it is published; at most one task writes
//! and one waits; forms that could not be written are retried with the next publication.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asp_store::control::StoreError;
use asp_store::control::sql::ControlStore;
use parking_lot::Mutex;

use crate::catalog::build::{Batch, PendingForms};

/// Writer of published forms.
pub(super) struct FormKeeper {
    store: Arc<ControlStore>,
    /// Forms that are not being written yet.
    pending: Mutex<PendingForms>,
    /// Whether a task is waiting.
    is_due: AtomicBool,
    alone: tokio::sync::Mutex<()>,
}

impl FormKeeper {
    pub(super) fn new(store: Arc<ControlStore>) -> FormKeeper {
        FormKeeper {
            store,
            pending: Mutex::default(),
            is_due: AtomicBool::new(false),
            alone: tokio::sync::Mutex::default(),
        }
    }

    /// Writes these forms and the pending ones in the background.
    pub(super) fn store_in_background(self: &Arc<Self>, published: PendingForms) {
        self.pending.lock().add(published);
        if self.is_due.swap(true, Ordering::SeqCst) {
            return;
        }
        let keeper = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = keeper.store_all().await {
                tracing::warn!(
                    %error,
                    "last published forms could not be stored, retrying with the next change; until then a new \
                     control plane may serve earlier forms of parts that cannot be published; check the database"
                );
            }
        });
    }

    /// Writes all forms that were published so far.
    pub(super) async fn store_all(&self) -> anyhow::Result<()> {
        let _alone = self.alone.lock().await;
        self.is_due.store(false, Ordering::SeqCst);
        let mut pending = PendingForms::default();
        loop {
            pending.add(std::mem::take(&mut *self.pending.lock()));
            if pending.is_empty() {
                return Ok(());
            }
            // Encoding takes milliseconds, so not on a thread that serves.
            let encoded = tokio::task::spawn_blocking(move || {
                let batch = pending.batch();
                (pending, batch)
            });
            let (rest, batch) = encoded.await?;
            pending = rest;
            if let Err(error) = self.put(&batch).await {
                pending.add_earlier(batch.of);
                self.pending.lock().add_earlier(pending);
                return Err(error.into());
            }
        }
    }

    async fn put(&self, batch: &Batch) -> Result<(), StoreError> {
        self.store.put_published_forms(&batch.forms).await?;
        self.store.forget_published_forms(&batch.gone).await
    }
}
