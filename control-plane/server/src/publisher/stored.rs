//! What is published, from the store.

use std::sync::Arc;

use anyhow::Context;
use asp_proto::snapshot::RecentRevocations;
use asp_store::control::{Change, ControlStore, Position, Precondition, RevocationPage, Since};
use async_trait::async_trait;
use parking_lot::Mutex;

use super::forms::FormKeeper;
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
    forms: Arc<FormKeeper>,
    usage: Arc<Usage>,
}

impl StoreSource {
    /// The compiler is shared with the admin API, so that a server is compiled once; `usage` is what writes there are
    /// evaluated by, and follows what is read here.
    pub fn new(store: Arc<dyn ControlStore>, compiler: Compiler, usage: Arc<Usage>) -> StoreSource {
        let builder = Arc::new(Mutex::new(Builder::new(compiler.clone())));
        let forms = Arc::new(FormKeeper::new(Arc::clone(&store)));
        StoreSource { store, compiler, builder, forms, usage }
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

    /// Does something with the builder.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Builder) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let builder = Arc::clone(&self.builder);
        // Compiling and encoding take milliseconds: not on a thread that serves.
        let done = tokio::task::spawn_blocking(move || work(&mut builder.lock())).await;
        if done.is_err() {
            // It has broken off in the midst of it: everything is read and built anew.
            *self.builder.lock() = Builder::new(self.compiler.clone());
        }
        done.context("build what is published")?
    }

    /// Builds once more with what the store has as the last forms of `parts`. A store that does not say holds nothing up,
    /// revocations least of all.
    async fn with_last_forms(&self, built: Built, parts: Vec<String>, raise: bool) -> anyhow::Result<Built> {
        if parts.is_empty() {
            return Ok(built);
        }
        let forms = match self.store.published_forms(&parts).await {
            Ok(forms) => forms,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "last published forms could not be read, tried again soon; until then what cannot be published may be in force in \
                     another form than at other control planes; check the database"
                );
                return Ok(Built { lacks_forms: true, ..built });
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
        let usage = Arc::clone(&self.usage);
        let built = self.work(move |builder| {
            let built = builder.build(since, raise);
            // Whether or not it can be published: who may write how much depends on what is stored.
            usage.take(builder.totals());
            Ok((built?, builder.unasked()))
        });
        let (built, unasked) = built.await?;
        self.with_last_forms(built, unasked, raise).await
    }

    async fn overtake(&self, recent: &RecentRevocations, after: u64) -> anyhow::Result<Overtaken> {
        let now = clock::now_ms();
        let RevocationPage { through, is_whole, records } = self.store.revoked_since(after).await?;
        // It holds everything that was revoked before this moment only if there is no more to read.
        let until = if is_whole { now } else { recent.until };
        let with = revoked::with(recent, &records, &self.compiler.trusted(), (through, until));
        Ok(Overtaken { through, recent: with })
    }

    fn published(&self) {
        let unkept = self.builder.lock().unkept();
        self.forms.keep_soon(unkept);
    }
}

#[cfg(test)]
mod tests;
