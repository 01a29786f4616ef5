//! Publishes revocations ahead of a build that takes long or fails.
//!
//! Keeps true: such a publication is the previous one plus revocations, at the revision of the last of these; the rest
//! of that revision is not declared in force.

use std::convert::Infallible;

use asp_proto::snapshot::RecentRevocations;
use asp_xds::published::{self, XdsState};
use tokio::sync::{Notify, watch};

use super::{COALESCE, POLL, Publisher, SnapshotBuild, SnapshotSource};
use crate::catalog::revoked;

/// Revocations read independently of other changes.
#[derive(Debug, Default)]
pub struct RevocationUpdate {
    /// Revision up to which the revocations were read.
    pub through: u64,
    /// Recent revocations including these, at the revision of the last one; `None` if nothing changed. A build that has
    /// read them is of no earlier revision.
    pub recent: Option<RecentRevocations>,
}

/// Publication of revocations during one build.
pub(super) struct RevocationWatch<'p> {
    pub(super) source: &'p dyn SnapshotSource,
    pub(super) dirty: &'p Notify,
    pub(super) xds_state: &'p watch::Sender<XdsState>,
    pub(super) filter_wasm: &'p str,
    /// Revision up to which everything is published.
    pub(super) covers: u64,
    /// Revision up to which revocations are published.
    pub(super) after: u64,
    /// Last revision published this way; 0 if none.
    pub(super) published: u64,
    /// Whether a change was signalled during the build; the consumer of the signal must poll again.
    pub(super) was_notified: bool,
}

impl RevocationWatch<'_> {
    /// Publishes revocations until it is dropped. A build that finishes within [`COALESCE`] includes them itself.
    pub(super) async fn run(&mut self) -> Infallible {
        loop {
            tokio::time::sleep(COALESCE).await;
            self.publish_revoked().await;
            tokio::select! {
                () = self.dirty.notified() => self.was_notified = true,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// Publishes the revocations so far.
    pub(super) async fn publish_revoked(&mut self) {
        let last = self.xds_state.borrow().snapshot.clone();
        let Some(last) = last else { return };
        let RevocationUpdate { through, recent } = match self
            .source
            .overtake(&last.recent.content, self.after)
            .await
        {
            Ok(overtaken) => overtaken,
            // The build reads the same store and reports the fault.
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "revocations could not be read during a build");
                return;
            }
        };
        self.after = self.after.max(through);
        // If the store has lost commits, revocations of a lower revision are not published.
        let newer_than = last.recent.revision.max(last.gateway.revision);
        let Some(recent) = recent.filter(|recent| recent.revision > newer_than) else { return };
        let published = published::with_recent_revocations(&last, recent, self.covers, self.filter_wasm);
        let Some(published) = published else { return };
        self.published = published.recent.revision;
        tracing::info!(
            revision = self.published,
            covers = self.covers,
            "revocations published ahead of other changes"
        );
        self.xds_state.send_modify(|xds_state| xds_state.snapshot = Some(published.into()));
    }
}

impl Publisher {
    /// Returns the recent revocations of a build and those after it; `None` if they lack a published one. That one may
    /// have been withdrawn after a change that the build does not have.
    pub(super) async fn recent_after(&self, built: &SnapshotBuild) -> Option<RecentRevocations> {
        // If the store cannot be read, the next build reports it.
        let update = self.source.overtake(&built.recent, built.position.revision).await.ok()?;
        let published = self.xds_state.borrow().snapshot.clone()?;
        let is_newer = |recent: &RecentRevocations| {
            recent.revision >= self.overtaken && revoked::includes(recent, &published.recent.content)
        };
        update.recent.filter(is_newer)
    }
}
