//! Source of snapshots that reads the store, and stores there what was published last.
//!
//! Keeps true: publication does not wait for the forms that are stored, and no form is stored before it is published; at
//! most one task writes them and one waits; forms that could not be written are retried with the next publication.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use asp_platform::clock;
use asp_proto::snapshot::RecentRevocations;
use asp_store::control::sql::ControlStore;
use asp_store::control::{Change, Position, RevocationPage, StateUpdate, StoreError};
use async_trait::async_trait;
use parking_lot::Mutex;

use super::{RevocationUpdate, SnapshotSource};
use crate::catalog::Compiler;
use crate::catalog::build::{Batch, Builder, PendingForms, SnapshotBuild};
use crate::catalog::revoked;
use crate::catalog::usage::Usage;

/// Actor of a raised revision in the audit.
const ACTOR: &str = "control plane";

/// Builds from the changes in the store since the last build.
pub struct StoreSource {
    store: Arc<ControlStore>,
    compiler: Compiler,
    builder: Arc<Mutex<Builder>>,
    forms: Arc<FormKeeper>,
    usage: Arc<Usage>,
}

impl StoreSource {
    /// Creates a source. The compiler is shared with the admin API, so that a server is compiled once; `usage` is
    /// updated here, and writes of the admin API are checked against it.
    pub fn new(store: Arc<ControlStore>, compiler: Compiler, usage: Arc<Usage>) -> StoreSource {
        let builder = Arc::new(Mutex::new(Builder::new(compiler.clone())));
        let forms = Arc::new(FormKeeper::new(Arc::clone(&store)));
        StoreSource { store, compiler, builder, forms, usage }
    }

    /// Raises the store's revision past `known`, which is not part of its history: edges and gateways may have it in
    /// force.
    async fn pass(&self, known: &Position) -> anyhow::Result<()> {
        let to = known.revision.saturating_add(1);
        let change = Change::unconditional(ACTOR, clock::now_ms());
        let raised = self.store.raise_revision(&change, to).await?;
        tracing::error!(
            published = known.revision,
            now = raised.revision,
            "the database has lost commits that were published, as after a failover or a restore; everything is read and \
             published again without them. Check the audit for missing changes, revocations first (docs/databases.md)"
        );
        Ok(())
    }

    /// Runs work with the builder on a blocking thread.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Builder) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let builder = Arc::clone(&self.builder);
        // Compiling and encoding take milliseconds, so not on a thread that serves.
        let done = tokio::task::spawn_blocking(move || work(&mut builder.lock())).await;
        if done.is_err() {
            // The work panicked halfway: start over, read and build everything.
            *self.builder.lock() = Builder::new(self.compiler.clone());
        }
        done.context("build the snapshot")?
    }

    /// Builds again with the store's last forms of `parts`. If the store does not answer, nothing is delayed, least of
    /// all revocations.
    async fn with_last_forms(
        &self,
        built: SnapshotBuild,
        parts: Vec<String>,
        raise: bool,
    ) -> anyhow::Result<SnapshotBuild> {
        if parts.is_empty() {
            return Ok(built);
        }
        let forms = match self.store.published_forms(&parts).await {
            Ok(forms) => forms,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "last published forms could not be read, retrying; until then parts that cannot be published may \
                     differ from those of other control planes; check the database"
                );
                return Ok(SnapshotBuild { lacks_forms: true, ..built });
            }
        };
        self.work(move |builder| {
            builder.take_forms(&parts, &forms);
            if forms.is_empty() { Ok(built) } else { builder.build_again(built, raise) }
        })
        .await
    }
}

#[async_trait]
impl SnapshotSource for StoreSource {
    async fn position(&self) -> anyhow::Result<Position> {
        Ok(self.store.position().await?)
    }

    async fn build(&self, raise: bool) -> anyhow::Result<SnapshotBuild> {
        let known = self.builder.lock().position();
        let is_other_history = !self.store.has(&known).await?;
        if is_other_history {
            self.pass(&known).await?;
        }
        let since = match is_other_history {
            true => StateUpdate::All(self.store.load().await?),
            false => self.store.since(known.revision).await?,
        };
        // Subscribers that have lost revisions in force only accept newer ones.
        let raise = raise || is_other_history;
        let usage = Arc::clone(&self.usage);
        let built = self.work(move |builder| {
            let built = builder.build(since, raise);
            // Whether or not it can be published: budgets depend on what is stored.
            usage.take(builder.totals());
            Ok((built?, builder.unread_parts()))
        });
        let (built, unasked) = built.await?;
        self.with_last_forms(built, unasked, raise).await
    }

    async fn overtake(&self, recent: &RecentRevocations, after: u64) -> anyhow::Result<RevocationUpdate> {
        let now = clock::now_ms();
        let RevocationPage { through, newest, is_whole, records } = self.store.revoked_since(after).await?;
        // Only a complete page includes everything that was revoked until now.
        let until = if is_whole { now } else { recent.until };
        let with = revoked::with(recent, &records, &self.compiler.trusted(), (newest, until));
        Ok(RevocationUpdate { through, recent: with })
    }

    fn published(&self) {
        let pending = self.builder.lock().pending();
        self.forms.store_in_background(pending);
    }
}

/// Writer of published forms.
struct FormKeeper {
    store: Arc<ControlStore>,
    /// Forms that are not being written yet.
    pending: Mutex<PendingForms>,
    /// Whether a task is waiting.
    is_due: AtomicBool,
    alone: tokio::sync::Mutex<()>,
}

impl FormKeeper {
    fn new(store: Arc<ControlStore>) -> FormKeeper {
        FormKeeper {
            store,
            pending: Mutex::default(),
            is_due: AtomicBool::new(false),
            alone: tokio::sync::Mutex::default(),
        }
    }

    /// Writes these forms and the pending ones in the background.
    fn store_in_background(self: &Arc<Self>, published: PendingForms) {
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
    async fn store_all(&self) -> anyhow::Result<()> {
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

#[cfg(test)]
mod tests;
