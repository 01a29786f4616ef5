//! Builds, and publishes revocations ahead of a build that takes long or fails.
//!
//! Keeps true: such a publication is the previous one plus revocations, at the revision of the last of these; the rest
//! of that revision is not declared in force. The build is published with them, and with those that followed. A
//! revocation is never withdrawn before a build that has every change up to its withdrawal.

use std::convert::Infallible;
use std::sync::Arc;

use asp_proto::snapshot::RecentRevocations;
use asp_store::control::StoreError;
use asp_xds::parts::PartsBuilder;
use asp_xds::published::{self, XdsState};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{COALESCE, POLL, Publisher, SILENT, SnapshotBuild, SnapshotSource};
use crate::catalog::revoked;

/// Maximum number of consecutive builds, each superseded because revocations that were published during it were
/// withdrawn, or could not be read again. During the last one none are published.
pub(super) const MAX_BUILDS: u32 = 3;

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
    /// Builds a snapshot that includes all published revocations.
    pub(super) async fn build(&mut self, raise: bool) -> anyhow::Result<SnapshotBuild> {
        let mut raise = raise;
        let mut builds = 0;
        loop {
            builds += 1;
            let is_last = builds >= MAX_BUILDS;
            let mut built = match is_last {
                true => self.build_with_heartbeat(raise).await,
                false => self.build_overtaken(raise).await,
            }?;
            self.changed.append(&mut built.changed);
            if is_last || built.recent.revision >= self.overtaken {
                built.changed = std::mem::take(&mut self.changed);
                self.overtaken = 0;
                return Ok(built);
            }
            if let Some(recent) = self.recent_after(&built).await {
                let changed = std::mem::take(&mut self.changed);
                let mut gateway = PartsBuilder { parts: built.gateway, changed };
                gateway.put_recent(&recent);
                self.overtaken = recent.revision;
                let PartsBuilder { parts: gateway, changed } = gateway;
                return Ok(SnapshotBuild { recent: Arc::new(recent), gateway, changed, ..built });
            }
            // Subscribers would reject its revocations, which are of an earlier revision.
            raise = true;
        }
    }

    /// Returns the recent revocations of a build and those after it; `None` if they lack a published one. That one may
    /// have been withdrawn after a change that the build does not have.
    async fn recent_after(&self, built: &SnapshotBuild) -> Option<RecentRevocations> {
        // If the store cannot be read, the next build reports it.
        let update = self.source.overtake(&built.recent, built.position.revision).await.ok()?;
        let published = self.xds_state.borrow().snapshot.clone()?;
        let is_newer = |recent: &RecentRevocations| {
            recent.revision >= self.overtaken && revoked::includes(recent, &published.recent.content)
        };
        update.recent.filter(is_newer)
    }

    /// Builds, and publishes revocations in the meantime.
    async fn build_overtaken(&mut self, raise: bool) -> anyhow::Result<SnapshotBuild> {
        let covers = self.standing.borrow().covers;
        let mut overtaking = RevocationWatch {
            source: &*self.source,
            dirty: &self.dirty,
            xds_state: &self.xds_state,
            filter_wasm: &self.filter_wasm,
            covers,
            after: covers.max(self.overtaken),
            published: 0,
            was_notified: false,
        };
        let built = tokio::select! {
            built = self.build_with_heartbeat(raise) => built,
            never = overtaking.run() => match never {},
        };
        if built.as_ref().is_err_and(|error| !error.is::<StoreError>()) {
            overtaking.publish_revoked().await;
        }
        let RevocationWatch { published, was_notified, .. } = overtaking;
        self.overtaken = self.overtaken.max(published);
        if was_notified {
            self.dirty.notify_one();
        }
        built
    }

    /// Builds, which may take seconds, and checks in the meantime whether the store still answers.
    async fn build_with_heartbeat(&self, raise: bool) -> anyhow::Result<SnapshotBuild> {
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
