//! A build, and the way of revocations past one that takes long, or that fails.
//!
//! Keeps true: what is published so is what was published last with more revocations, at the revision up to which those were read;
//! nothing else of that revision is said to be in force. It never takes a revocation back: the build that follows does.

use std::convert::Infallible;

use asp_proto::snapshot::RecentRevocations;
use asp_store::control::StoreError;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{Built, COALESCE, POLL, Publisher, SILENT, Source};
use crate::xds::{XdsState, resources};

/// Builds in a row of which none is published, because revocations of a later revision were during each; none are during the last
/// one.
pub(super) const MAX_BUILDS: u32 = 3;

/// The answer to what was revoked, whatever else changed.
#[derive(Debug, Default)]
pub struct Overtaken {
    /// The revision up to which the revocations were read.
    pub through: u64,
    /// The recent ones with these, at that revision; `None`: they are the same.
    pub recent: Option<RecentRevocations>,
}

/// Looks for revocations during one build.
pub(super) struct Overtaking<'p> {
    pub(super) source: &'p dyn Source,
    pub(super) dirty: &'p Notify,
    pub(super) xds_state: &'p watch::Sender<XdsState>,
    pub(super) filter_wasm: &'p str,
    /// The revision up to which everything is published.
    pub(super) covers: u64,
    /// The revision up to which revocations are.
    pub(super) after: u64,
    /// The last revision that was published so; 0 for none.
    pub(super) published: u64,
    /// Whether something changed meanwhile: whoever takes the notice has to look again.
    pub(super) was_told: bool,
}

impl Overtaking<'_> {
    /// Looks until it is dropped. A build that is done within [`COALESCE`] has what this would find.
    pub(super) async fn run(&mut self) -> Infallible {
        loop {
            tokio::time::sleep(COALESCE).await;
            self.look().await;
            tokio::select! {
                () = self.dirty.notified() => self.was_told = true,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// Publishes what was revoked by now.
    pub(super) async fn look(&mut self) {
        let last = self.xds_state.borrow().snapshot.clone();
        let Some(last) = last else { return };
        let Overtaken { through, recent } = match self.source.overtake(&last.recent.content, self.after).await
        {
            Ok(overtaken) => overtaken,
            // The build reads the same store, and says what is wrong with it.
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "revocations could not be read during a build");
                return;
            }
        };
        self.after = self.after.max(through);
        // Of a store that has lost commits nothing is taken that comes under a lower revision.
        let newer_than = last.recent.revision.max(last.gateway.revision);
        let Some(recent) = recent.filter(|recent| recent.revision > newer_than) else { return };
        let published = resources::overtaken(&last, recent, self.covers, self.filter_wasm);
        self.published = published.recent.revision;
        tracing::info!(
            revision = self.published,
            covers = self.covers,
            "revocations published ahead of what else has changed"
        );
        self.xds_state.send_modify(|xds_state| xds_state.snapshot = Some(published.into()));
    }
}

impl Publisher {
    /// Builds what holds all revocations that are published.
    pub(super) async fn build(&mut self, raise: bool) -> anyhow::Result<Built> {
        let mut raise = raise;
        let mut builds = 0;
        loop {
            builds += 1;
            let is_last = builds >= MAX_BUILDS;
            let mut built = match is_last {
                true => self.build_beside_beats(raise).await,
                false => self.build_overtaken(raise).await,
            }?;
            self.changed.append(&mut built.changed);
            if is_last || built.recent.revision >= self.overtaken {
                built.changed = std::mem::take(&mut self.changed);
                self.overtaken = 0;
                return Ok(built);
            }
            // Nobody would take its revocations, which are of an earlier revision.
            raise = true;
        }
    }

    /// Builds, and publishes meanwhile what is revoked.
    async fn build_overtaken(&mut self, raise: bool) -> anyhow::Result<Built> {
        let covers = self.standing.borrow().covers;
        let mut overtaking = Overtaking {
            source: &*self.source,
            dirty: &self.dirty,
            xds_state: &self.xds_state,
            filter_wasm: &self.filter_wasm,
            covers,
            after: covers.max(self.overtaken),
            published: 0,
            was_told: false,
        };
        let built = tokio::select! {
            built = self.build_beside_beats(raise) => built,
            never = overtaking.run() => match never {},
        };
        if built.as_ref().is_err_and(|error| !error.is::<StoreError>()) {
            overtaking.look().await;
        }
        let Overtaking { published, was_told, .. } = overtaking;
        self.overtaken = self.overtaken.max(published);
        if was_told {
            self.dirty.notify_one();
        }
        built
    }

    /// Builds, which may take seconds; meanwhile the store is asked whether it still answers.
    async fn build_beside_beats(&self, raise: bool) -> anyhow::Result<Built> {
        let is_current = self.retry_at.is_none() && self.unread.is_none();
        let beats = async {
            let mut left = if is_current { SILENT.as_millis() / POLL.as_millis() } else { 0 };
            while left > 0 {
                left -= 1;
                tokio::time::sleep(POLL).await;
                let began = Instant::now();
                if self.source.position().await.is_ok() {
                    self.freshness.renew(began);
                }
            }
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            built = self.source.build(raise) => built,
            never = beats => match never {},
        }
    }
}
