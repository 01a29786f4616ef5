//! What is published, from the store.

use std::sync::Arc;

use anyhow::Context;
use asp_proto::snapshot::RecentRevocations;
use asp_store::control::{Change, ControlStore, Position, Precondition, RevokedSince, Since};
use async_trait::async_trait;
use parking_lot::Mutex;

use super::{Overtaken, Source};
use crate::catalog::Compiler;
use crate::catalog::build::{Builder, Built};
use crate::catalog::revoked;
use crate::catalog::usage::Usage;
use crate::clock;

/// Who raises the revision, in the audit.
const ACTOR: &str = "control plane";

/// Builds from what changed in the store since it was built last.
pub struct StoreSource {
    store: Arc<dyn ControlStore>,
    compiler: Compiler,
    builder: Arc<Mutex<Builder>>,
    usage: Arc<Usage>,
}

impl StoreSource {
    /// The compiler is shared with the admin API, so that a server is compiled once; `usage` is what writes there are
    /// evaluated by, and follows what is read here.
    pub fn new(store: Arc<dyn ControlStore>, compiler: Compiler, usage: Arc<Usage>) -> StoreSource {
        let builder = Arc::new(Mutex::new(Builder::new(compiler.clone())));
        StoreSource { store, compiler, builder, usage }
    }
}

impl StoreSource {
    /// Raises the store's revision past `known`, which is not of its history: edges and gateways may have it in force.
    async fn pass(&self, known: &Position) -> anyhow::Result<()> {
        let to = known.revision.saturating_add(1);
        let change = Change {
            actor: ACTOR.to_owned(),
            at: clock::now_ms(),
            precondition: Precondition::None,
            evaluated_at: None,
        };
        let raised = self.store.raise_revision(&change, to).await?;
        tracing::error!(
            published = known.revision,
            now = raised.revision,
            "the database has lost commits that were published, as by a failover or a restore; all is read and published anew, \
             without them: look through the audit for what is missing, revocations first (docs/databases.md)"
        );
        Ok(())
    }
}

#[async_trait]
impl Source for StoreSource {
    async fn position(&self) -> anyhow::Result<Position> {
        Ok(self.store.position().await?)
    }

    async fn build(&self, raise: bool) -> anyhow::Result<Built> {
        let known = self.builder.lock().position();
        let is_other_history = !self.store.has(&known).await?;
        if is_other_history {
            self.pass(&known).await?;
        }
        let since = match is_other_history {
            true => Since::All(self.store.load().await?),
            false => self.store.since(known.revision).await?,
        };
        // Who has a part of the history that is lost takes nothing that is not newer.
        let raise = raise || is_other_history;
        let builder = Arc::clone(&self.builder);
        // Compiling and encoding take milliseconds: not on a thread that serves.
        let usage = Arc::clone(&self.usage);
        let work = move || {
            let mut builder = builder.lock();
            let built = builder.build(since, raise);
            // Whether or not it can be published: who may write how much depends on what is stored.
            usage.take(builder.totals());
            built
        };
        let built = tokio::task::spawn_blocking(work).await;
        if built.is_err() {
            // It has broken off in the midst of it: everything is read and built anew.
            *self.builder.lock() = Builder::new(self.compiler.clone());
        }
        built.context("build what is published")?
    }

    async fn overtake(&self, recent: &RecentRevocations, after: u64) -> anyhow::Result<Overtaken> {
        let now = clock::now_ms();
        let RevokedSince { through, is_whole, records } = self.store.revoked_since(after).await?;
        // It holds everything that was revoked before this moment only if there is no more to read.
        let until = if is_whole { now } else { recent.until };
        let with = revoked::with(recent, &records, &self.compiler.trusted(), (through, until));
        Ok(Overtaken { through, recent: with })
    }
}
