//! Publishes changes: rebuilds the snapshot when the store's revision moved, and debounces.
//!
//! Keeps true:
//! - The first change is published at once; the changes of the next [`COALESCE`] together at its end.
//! - Edges wait longer for a change that opens, depending on the size of their snapshot, and for one that only closes, which
//!   gateways enforce in the meantime. A change that is reverted by then costs them nothing.
//! - If a snapshot cannot be built, the last good one stays. The fault is reported, and the build is retried when something
//!   changes or after [`RETRY`].
//! - If the store could not be read, it is read again at the next poll; the revision does not count as tried.
//! - A change by another process on the same store is found within [`POLL`].
//! - A revision that does not change the snapshot is not pushed; of the others only the difference is.
//! - The snapshot is rebuilt every hour, because the lists of revocations depend on the time.
//! - Revocations are published even while a build runs or fails. The build is published with them, and with those that
//!   followed. A revocation is never withdrawn before a build that has every change up to its withdrawal.

mod overtaking;
mod standing;
pub mod stored;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::clock;
use asp_proto::snapshot::{EdgeSnapshot, RecentRevocations};
use asp_registry::EdgeChange;
use asp_store::control::{Position, StoreError};
use asp_xds::endpoints::EndpointSet;
use asp_xds::freshness::Freshness;
use asp_xds::parts::PartsBuilder;
use asp_xds::published::{self, Content, Publication, XdsState, XdsStateReceiver};
use asp_xds::subscribers::SeenRevisions;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::catalog::build::SnapshotBuild;
use crate::catalog::fault::Fault;
pub use overtaking::RevocationUpdate;
use overtaking::RevocationWatch;
pub use standing::PublicationStatus;
use standing::ReadFailure;

/// Minimum time between two pushes.
pub const COALESCE: Duration = Duration::from_millis(50);
/// Minimum time between two pushes of the edge snapshot, for each MiB of it, if the change may wait: every Envoy
/// receives all of it, and each of its workers parses it again.
const EDGE_COALESCE: Duration = Duration::from_secs(1);
/// Maximum of that time, and the time for which a change that only closes waits: longer than the second after which an
/// org that writes continuously may write again, so that a change that it reverts is never sent. Each push costs every
/// Envoy a new VM, however small it is. The poll that ends the time comes within [`POLL`].
const MAX_EDGE_COALESCE: Duration = Duration::from_millis(1_500);
/// Interval of polls for revisions from other processes.
pub const POLL: Duration = Duration::from_millis(500);

/// Length of an hour, in milliseconds.
const HOUR: u64 = 60 * 60 * 1_000;
/// Time after which a failed build of a revision is retried: building costs as much as publishing.
pub const RETRY: Duration = Duration::from_secs(30);
/// Age of the last completed read of the store at which the publisher counts as stuck. Building everything takes
/// several seconds.
pub const SILENT: Duration = Duration::from_secs(15);
/// Maximum number of consecutive builds, each superseded because revocations that were published during it were
/// withdrawn, or could not be read again. During the last one none are published.
const MAX_BUILDS: u32 = 3;

/// Source of snapshots.
#[async_trait]
pub trait SnapshotSource: Send + Sync {
    /// Returns the current position of the store.
    async fn position(&self) -> anyhow::Result<Position>;
    /// Builds the snapshot of the current state, which may be newer than the last position. With `raise`, all parts get
    /// the new revision, including unchanged ones.
    async fn build(&self, raise: bool) -> anyhow::Result<SnapshotBuild>;
    /// Adds the revocations after a revision to `recent`; works during a build, too.
    async fn overtake(&self, recent: &RecentRevocations, after: u64) -> anyhow::Result<RevocationUpdate>;
    /// Called once the last build is published; a build for which it is not called was repeated.
    fn published(&self) {}
}

/// Handle of the publisher: notifies it of changes, and gives access to what it published.
#[derive(Clone)]
pub struct Handle {
    dirty: Arc<Notify>,
    xds_state: XdsStateReceiver,
    standing: watch::Receiver<PublicationStatus>,
    looked: Arc<Mutex<Instant>>,
    freshness: Freshness,
    seen_revisions: Arc<SeenRevisions>,
}

impl Handle {
    /// Returns the collection of revisions that subscribers have in force.
    pub fn seen_revisions(&self) -> Arc<SeenRevisions> {
        Arc::clone(&self.seen_revisions)
    }

    /// Notifies the publisher of a new store revision.
    pub fn changed(&self) {
        self.dirty.notify_one();
    }

    pub fn xds_state(&self) -> XdsStateReceiver {
        self.xds_state.clone()
    }

    /// Returns the status of publication, which can be awaited.
    pub fn status(&self) -> watch::Receiver<PublicationStatus> {
        self.standing.clone()
    }

    /// Waits until the store's state at `revision` is sent to gateways (edges may still wait for it), or until it is
    /// known that it does not change the snapshot or cannot be published.
    pub async fn wait_until_sent(&self, revision: u64) {
        let mut standing = self.status();
        let mut xds_state = self.xds_state();
        let is_settled = async {
            let _ = standing.wait_for(|standing| standing.is_of(revision)).await.map(drop);
        };
        let is_sent = async {
            let has_it =
                |state: &XdsState| state.snapshot.as_ref().is_some_and(|s| s.gateways_at() >= revision);
            let _ = xds_state.wait_for(has_it).await.map(drop);
        };
        tokio::select! {
            () = is_settled => {}
            () = is_sent => {}
        }
    }

    /// Whether the newest revision cannot be published at all, or is unknown because the store was not read for
    /// [`SILENT`].
    pub fn is_stuck(&self) -> bool {
        self.standing.borrow().fault.is_some() || self.silent_for() >= SILENT
    }

    /// Returns the time since the last completed read of the store.
    pub fn silent_for(&self) -> Duration {
        self.looked.lock().elapsed()
    }

    /// Returns the age of the published state, for subscribers; a running build does not count as age, for up to
    /// [`SILENT`].
    pub fn freshness(&self) -> Freshness {
        self.freshness.clone()
    }
}

/// Publisher of snapshots, run as a task.
pub struct Publisher {
    source: Arc<dyn SnapshotSource>,
    /// Path of the filter on Envoy's machine.
    filter_wasm: String,
    endpoints: watch::Receiver<Arc<EndpointSet>>,
    xds_state: watch::Sender<XdsState>,
    dirty: Arc<Notify>,
    standing: watch::Sender<PublicationStatus>,
    /// Position of the store at the last attempt.
    tried: Option<Position>,
    /// Time of the next attempt at the tried revision; `None` if it was built.
    retry_at: Option<Instant>,
    /// Time at which unreadable last published forms are read again; `None` if none are missing. The published state is
    /// current without them.
    forms_again_at: Option<Instant>,
    /// Last failed read of the store.
    unread: Option<ReadFailure>,
    /// Time of the last completed read of the store.
    looked: Arc<Mutex<Instant>>,
    freshness: Freshness,
    /// Hour since 1970 of the last attempt.
    hour: u64,
    /// Time at which the edge snapshot last changed for edges.
    edge_pushed_at: Option<Instant>,
    /// Time until which edges wait for the last build; `None` if they have it.
    edge_waits_until: Option<Instant>,
    /// Revision of revocations that were published ahead of a build; 0 if the last build has them all.
    overtaken: u64,
    /// Parts that changed in unpublished builds.
    changed: BTreeSet<Arc<str>>,
    seen_revisions: Arc<SeenRevisions>,
}

/// Result of a refresh.
enum RefreshOutcome {
    /// The revision was tried before.
    Unchanged,
    Built {
        covers: u64,
        faults: Vec<Fault>,
        /// New state to publish; `None` if nothing changed.
        published: Option<Box<Publication>>,
    },
}

impl Publisher {
    pub fn new(
        source: Arc<dyn SnapshotSource>,
        filter_wasm: String,
        endpoints: watch::Receiver<Arc<EndpointSet>>,
    ) -> (Publisher, Handle) {
        let (xds_state, receiver) = watch::channel(XdsState::default());
        let dirty: Arc<Notify> = Arc::default();
        let (standing, watched) = watch::channel(PublicationStatus::default());
        let seen_revisions: Arc<SeenRevisions> = Arc::default();
        let looked = Arc::new(Mutex::new(Instant::now()));
        let freshness = Freshness::default();
        let handle = Handle {
            dirty: Arc::clone(&dirty),
            xds_state: receiver,
            standing: watched,
            looked: Arc::clone(&looked),
            freshness: freshness.clone(),
            seen_revisions: Arc::clone(&seen_revisions),
        };
        let publisher = Publisher {
            source,
            filter_wasm,
            endpoints,
            xds_state,
            dirty,
            standing,
            tried: None,
            retry_at: None,
            forms_again_at: None,
            unread: None,
            looked,
            freshness,
            hour: 0,
            edge_pushed_at: None,
            edge_waits_until: None,
            overtaken: 0,
            changed: BTreeSet::new(),
            seen_revisions: Arc::clone(&seen_revisions),
        };
        (publisher, handle)
    }

    /// Publishes until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let work = async {
            loop {
                self.refresh().await;
                tokio::time::sleep(COALESCE).await;
                tokio::select! {
                    () = self.dirty.notified() => {}
                    // Err: no more endpoints will come; polling continues.
                    _ = self.endpoints.changed() => {}
                    () = tokio::time::sleep(POLL) => {}
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Brings the published state up to date.
    async fn refresh(&mut self) {
        let endpoints = Arc::clone(&self.endpoints.borrow_and_update());
        let mut news = None;
        let began = Instant::now();
        let rebuilt = self.rebuild().await;
        if rebuilt.is_ok() && self.unread.is_none() {
            *self.looked.lock() = Instant::now();
            // Another control plane may be able to publish a revision that cannot be built here.
            if self.retry_at.is_none() {
                self.freshness.renew(began);
            }
        }
        let snapshot = match rebuilt {
            Ok(RefreshOutcome::Unchanged) => {
                // The fault of a revision that could not be built or read remains until the next attempt.
                if self.retry_at.is_none() && self.unread.is_none() {
                    self.recovered();
                }
                None
            }
            Ok(RefreshOutcome::Built { covers, faults, published }) => {
                news = Some((covers, faults));
                published
            }
            Err(error) => {
                self.report(&error);
                None
            }
        };
        self.xds_state.send_if_modified(|xds_state| {
            let moved = xds_state.endpoints.version != endpoints.version;
            if moved {
                xds_state.endpoints = endpoints;
            }
            if let Some((covers, _)) = &news {
                // Not a reason to wake subscribers by itself.
                xds_state.covers = *covers;
            }
            let Some(snapshot) = snapshot else {
                return moved;
            };
            xds_state.snapshot = Some(Arc::from(snapshot));
            true
        });
        if let Some((covers, faults)) = news {
            self.source.published();
            self.recovered();
            self.stand(covers, faults);
        }
    }

    /// Builds a snapshot if the revision moved or another attempt is due.
    async fn rebuild(&mut self) -> anyhow::Result<RefreshOutcome> {
        let position = self.source.position().await?;
        let revision = position.revision;
        let due = [self.retry_at, self.forms_again_at].into_iter().flatten().any(|at| at <= Instant::now());
        let hour = clock::now_ms() / HOUR;
        let last = self.xds_state.borrow().snapshot.clone();
        let covers = self.standing.borrow().covers;
        // A failed build is only retried when it is due.
        let raise = self.retry_at.is_none()
            && last.as_deref().is_some_and(|last| self.seen_revisions.concerns(last, covers));
        let edge_is_due =
            self.retry_at.is_none() && self.edge_waits_until.is_some_and(|until| until <= Instant::now());
        let is_known = self.tried.as_ref() == Some(&position) && hour == self.hour;
        if is_known && !due && !raise && !edge_is_due {
            self.unread = None;
            return Ok(RefreshOutcome::Unchanged);
        }
        if self.unread.is_some_and(|unread| unread.waits(revision)) {
            return Ok(RefreshOutcome::Unchanged);
        }
        let built = self.build(raise).await;
        if built.as_ref().is_err_and(|error| error.is::<StoreError>()) {
            // The revision does not count as tried: nothing is known about it.
            self.unread = Some(ReadFailure::after(self.unread, revision));
            return built.map(|_| RefreshOutcome::Unchanged);
        }
        (self.unread, self.tried, self.hour) = (None, Some(position), hour);
        self.forms_again_at = None;
        self.retry_at = Some(Instant::now() + RETRY);
        Ok(self.publish(built?, raise))
    }

    /// Builds a snapshot that includes all published revocations.
    async fn build(&mut self, raise: bool) -> anyhow::Result<SnapshotBuild> {
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

    /// Publishes a build; edges may get theirs later, but not with `raise`.
    fn publish(&mut self, built: SnapshotBuild, raise: bool) -> RefreshOutcome {
        let SnapshotBuild { position, edge, recent, gateway, changed, faults, lacks_forms } = built;
        let revision = position.revision;
        // Revocations may have been published during the build.
        let last = self.xds_state.borrow().snapshot.clone();
        let (edge, waits_until) = match last.as_deref().filter(|_| !raise) {
            Some(last) => self.for_edges(last, edge),
            None => (edge, None),
        };
        self.edge_waits_until = waits_until;
        // While edges wait, this revision is not published completely.
        let covers = if waits_until.is_some() { self.standing.borrow().covers } else { revision };
        let content = Content { revision, edge, recent, gateway, changed };
        let published = published::publish(content, last.as_deref(), &self.filter_wasm);
        self.tried = Some(position);
        self.retry_at = None;
        self.forms_again_at = lacks_forms.then(|| Instant::now() + RETRY);
        if let Some(published) = &published {
            if last.is_none_or(|last| !Arc::ptr_eq(&last.edge, &published.edge)) {
                self.edge_pushed_at = Some(Instant::now());
            }
            tracing::info!(
                revision,
                covers,
                edge = %published.edge.version,
                gateway = %published.gateway.version,
                gateway_parts = published.gateway.changed.len(),
                "snapshot published"
            );
        }
        let published = published.map(|published| Box::new(Publication { revision: covers, ..published }));
        RefreshOutcome::Built { covers, faults, published }
    }

    /// Returns the edge snapshot to publish: `built`, or the last one; in the second case also the time until which
    /// edges keep it if the two differ.
    fn for_edges(
        &self,
        last: &Publication,
        built: Arc<EdgeSnapshot>,
    ) -> (Arc<EdgeSnapshot>, Option<Instant>) {
        let has = &last.edge.content;
        let now = Instant::now();
        let until = match EdgeChange::between(has, &built) {
            EdgeChange::Nothing => return (Arc::clone(has), None),
            // Further changes do not postpone it.
            EdgeChange::Closes => self.edge_waits_until.or(Some(now + MAX_EDGE_COALESCE)),
            EdgeChange::Opens => {
                self.edge_pushed_at.map(|pushed_at| pushed_at + window(last.edge.bytes.len()))
            }
            EdgeChange::Other => None,
        };
        match until.filter(|until| *until > now) {
            Some(until) => (Arc::clone(has), Some(until)),
            None => (built, None),
        }
    }
}

/// Returns the minimum time between two pushes of an edge snapshot of this size, for changes that may wait.
fn window(bytes: usize) -> Duration {
    let kibibytes = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    (EDGE_COALESCE * kibibytes / (1 << 10)).min(MAX_EDGE_COALESCE)
}

#[cfg(test)]
mod tests;
