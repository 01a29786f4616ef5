//! The way of revocations past a build that takes long, or that fails.
//!
//! Keeps true: what is published so is what was published last with more revocations, at the revision up to which those were read;
//! nothing else of that revision is said to be in force. It never takes a revocation back: the build that follows does.

use std::convert::Infallible;

use asp_proto::snapshot::RecentRevocations;
use tokio::sync::{Notify, watch};

use super::{COALESCE, POLL, Source};
use crate::xds::{XdsState, resources};

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
