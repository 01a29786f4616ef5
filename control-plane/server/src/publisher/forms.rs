//! Keeps the forms that were published in the store.
//!
//! Keeps true: nothing that is published waits for it, and nothing is kept before it is published; at most one process of it runs and
//! one waits; what the store did not take is tried again with what is published next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asp_store::control::{ControlStore, StoreError};
use parking_lot::Mutex;

use crate::catalog::build::{Batch, Unkept};

/// Writes the forms of what was published.
pub(super) struct FormKeeper {
    store: Arc<dyn ControlStore>,
    /// Parts that nobody writes yet.
    unkept: Mutex<Unkept>,
    /// Whether a task waits for its turn.
    is_due: AtomicBool,
    alone: tokio::sync::Mutex<()>,
}

impl FormKeeper {
    pub(super) fn new(store: Arc<dyn ControlStore>) -> FormKeeper {
        FormKeeper {
            store,
            unkept: Mutex::default(),
            is_due: AtomicBool::new(false),
            alone: tokio::sync::Mutex::default(),
        }
    }

    /// Keeps this and what is left of before, beside what is done next.
    pub(super) fn keep_soon(self: &Arc<Self>, published: Unkept) {
        self.unkept.lock().add(published);
        if self.is_due.swap(true, Ordering::SeqCst) {
            return;
        }
        let keeper = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = keeper.keep().await {
                tracing::warn!(
                    %error,
                    "last published forms could not be stored, tried again with the next change; until then a control plane that \
                     starts may serve an earlier form of what cannot be published; check the database"
                );
            }
        });
    }

    /// Keeps what was published until now.
    pub(super) async fn keep(&self) -> anyhow::Result<()> {
        let _alone = self.alone.lock().await;
        self.is_due.store(false, Ordering::SeqCst);
        let mut unkept = Unkept::default();
        loop {
            unkept.add(std::mem::take(&mut *self.unkept.lock()));
            if unkept.is_empty() {
                return Ok(());
            }
            // Encoding takes milliseconds: not on a thread that serves.
            let encoded = tokio::task::spawn_blocking(move || {
                let batch = unkept.batch();
                (unkept, batch)
            });
            let (rest, batch) = encoded.await?;
            unkept = rest;
            if let Err(error) = self.put(&batch).await {
                unkept.add_earlier(batch.of);
                self.unkept.lock().add_earlier(unkept);
                return Err(error.into());
            }
        }
    }

    async fn put(&self, batch: &Batch) -> Result<(), StoreError> {
        self.store.put_published_forms(&batch.forms).await?;
        self.store.forget_published_forms(&batch.gone).await
    }
}
