//! Turns changes into pushes: rebuilds the snapshot when the store's revision moved, and coalesces.
//!
//! Keeps true: the first change goes out at once, those of the next [`COALESCE`] together at its end. Edges wait longer for a change
//! that opens, the longer the more they are sent, and for one that only closes, which gateways enforce in the meantime; a change that
//! is taken back by then costs them nothing. A snapshot that cannot be built leaves the last good one in place, is reported, and is
//! tried again when something changes or after [`RETRY`]; a store that could not be read is read again at the next poll, and costs no revision its
//! turn; a change made by another process on the same store is found within
//! [`POLL`]; a revision that changes nothing of the snapshot is not pushed, and of the others only what changed; each
//! hour it is built anew, because revocations move with the time. While it is built, and where it cannot be, what is revoked is
//! published all the same.

mod forms;
mod overtaking;
pub mod stored;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::{EdgeSnapshot, RecentRevocations};
use asp_store::control::{Position, StoreError};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::catalog::build::Built;
use crate::catalog::edge_form::EdgeChange;
use crate::catalog::fault::Fault;
use crate::clock;
use crate::xds::endpoints::EndpointSet;
use crate::xds::freshness::Freshness;
use crate::xds::published::{Content, Published};
use crate::xds::raised::Raised;
use crate::xds::{XdsState, XdsStateReceiver, resources};
pub use overtaking::Overtaken;

/// Shortest time between two pushes.
pub const COALESCE: Duration = Duration::from_millis(50);
/// Shortest time between two pushes of the edge snapshot for each MiB that it has, where what changed may wait: it goes whole to
/// every Envoy, each worker of which reads it anew.
const EDGE_COALESCE: Duration = Duration::from_secs(1);
/// The longest of it, and the time for which a change that only closes waits: longer than the second after which an org that writes
/// without pause may write again, so that what it takes back is never sent. Each push costs every Envoy a new VM, however small it
/// is. The look at the store that ends the time comes within [`POLL`].
const MAX_EDGE_COALESCE: Duration = Duration::from_millis(1_500);
/// How often the store is asked for a revision made by another process.
pub const POLL: Duration = Duration::from_millis(500);

/// In milliseconds.
const HOUR: u64 = 60 * 60 * 1_000;
/// How long a revision that could not be built waits for another try: building costs as much as publishing.
pub const RETRY: Duration = Duration::from_secs(30);
/// Longest pause before a revision is read again that the store could not read. The first time there is none, for a
/// connection that broke; what fails again and again may be costly to read.
const READ_AGAIN: Duration = Duration::from_secs(4);
/// Age of the last completed look at the store from which on the publisher counts as stuck. Building everything takes several
/// seconds.
pub const SILENT: Duration = Duration::from_secs(15);

/// Where snapshots come from.
#[async_trait]
pub trait Source: Send + Sync {
    /// Where the store is.
    async fn position(&self) -> anyhow::Result<Position>;
    /// What is to be published of the current state, whatever its revision is by now. `raise`: all of it is to have that
    /// revision, what has not changed too.
    async fn build(&self, raise: bool) -> anyhow::Result<Built>;
    /// Adds to `recent` what was revoked after a revision, also while something is built.
    async fn overtake(&self, recent: &RecentRevocations, after: u64) -> anyhow::Result<Overtaken>;
    /// Hears that what it built last is published: what it built and does not hear this of was built once more.
    fn published(&self) {}
}

/// How what is published stands to what is stored.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The store's revision that is published, or that changed nothing of the snapshot.
    pub covers: u64,
    /// The newest revision that was tried.
    pub tried: u64,
    /// Why nothing newer is published; `None` when it is.
    pub fault: Option<String>,
    /// The parts that are not published as they are stored.
    pub parts: Vec<Fault>,
}

impl Standing {
    /// Whether it says what became of `revision`: a fault of an earlier one says nothing of it.
    pub fn is_of(&self, revision: u64) -> bool {
        self.covers >= revision || (self.fault.is_some() && self.tried >= revision)
    }
}

/// Tells the publisher that something changed, and others what it published.
#[derive(Clone)]
pub struct Handle {
    dirty: Arc<Notify>,
    xds_state: XdsStateReceiver,
    standing: watch::Receiver<Standing>,
    looked: Arc<Mutex<Instant>>,
    freshness: Freshness,
    raised: Arc<Raised>,
}

impl Handle {
    /// Where the revisions that subscribers come with are told.
    pub fn raised(&self) -> Arc<Raised> {
        Arc::clone(&self.raised)
    }

    /// Says that the store has a new revision.
    pub fn changed(&self) {
        self.dirty.notify_one();
    }

    pub fn xds_state(&self) -> XdsStateReceiver {
        self.xds_state.clone()
    }

    /// How what is published stands to what is stored; it may be waited for.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Waits until gateways are sent what the store has at `revision`, for which edges may still wait, or until it is known that
    /// nothing of it changes the snapshot, or that it cannot be published.
    pub async fn sent_to_gateways(&self, revision: u64) {
        let (mut standing, mut xds_state) = (self.standing(), self.xds_state());
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

    /// Whether the newest revision cannot be published at all, or is not known: the store was not read for [`SILENT`].
    pub fn is_stuck(&self) -> bool {
        self.standing.borrow().fault.is_some() || self.silent_for() >= SILENT
    }

    /// Time since the store was read to the end.
    pub fn silent_for(&self) -> Duration {
        self.looked.lock().elapsed()
    }

    /// Age of what is published, for subscribers; what is being built does not count, for up to [`SILENT`].
    pub fn freshness(&self) -> Freshness {
        self.freshness.clone()
    }
}

/// The task that publishes.
pub struct Publisher {
    source: Arc<dyn Source>,
    /// The filter's path on Envoy's machine.
    filter_wasm: String,
    endpoints: watch::Receiver<Arc<EndpointSet>>,
    xds_state: watch::Sender<XdsState>,
    dirty: Arc<Notify>,
    standing: watch::Sender<Standing>,
    /// Where the store was when it was tried last.
    tried: Option<Position>,
    /// When the tried revision is tried again; `None`: it was built.
    retry_at: Option<Instant>,
    /// When last published forms that could not be read are read again; `None`: none are missing. What is published is current
    /// without them.
    forms_again_at: Option<Instant>,
    /// The last failure of the store.
    unread: Option<Unread>,
    /// When the store was read to the end last.
    looked: Arc<Mutex<Instant>>,
    freshness: Freshness,
    /// The hour since 1970 in which it was tried.
    hour: u64,
    /// When edges were told of another snapshot of theirs last.
    edge_told: Option<Instant>,
    /// The end of the time for which they are not told of the one that was built last; `None`: they have it.
    edge_waits_until: Option<Instant>,
    /// The revision of the revocations that were published ahead of a build; 0: the last build has them all.
    overtaken: u64,
    /// Parts that changed in builds that were not published.
    changed: BTreeSet<Arc<str>>,
    raised: Arc<Raised>,
}

/// A revision that the store could not read.
#[derive(Clone, Copy)]
struct Unread {
    revision: u64,
    pause: Duration,
    again_at: Instant,
}

impl Unread {
    /// The next failure, of `revision`.
    fn after(last: Option<Unread>, revision: u64) -> Unread {
        let last = last.filter(|last| last.revision == revision);
        let pause = last.map_or(Duration::ZERO, |last| (last.pause * 2).max(POLL).min(READ_AGAIN));
        Unread { revision, pause, again_at: Instant::now() + pause }
    }

    fn waits(&self, revision: u64) -> bool {
        self.revision == revision && Instant::now() < self.again_at
    }
}

/// What a look at the store led to.
enum Rebuilt {
    /// The revision was tried before.
    Nothing,
    Built {
        covers: u64,
        faults: Vec<Fault>,
        /// `None`: it says nothing new.
        published: Option<Box<Published>>,
    },
}

impl Publisher {
    pub fn new(
        source: Arc<dyn Source>,
        filter_wasm: String,
        endpoints: watch::Receiver<Arc<EndpointSet>>,
    ) -> (Publisher, Handle) {
        let (xds_state, receiver) = watch::channel(XdsState::default());
        let dirty: Arc<Notify> = Arc::default();
        let (standing, watched) = watch::channel(Standing::default());
        let raised: Arc<Raised> = Arc::default();
        let looked = Arc::new(Mutex::new(Instant::now()));
        let freshness = Freshness::default();
        let handle = Handle {
            dirty: Arc::clone(&dirty),
            xds_state: receiver,
            standing: watched,
            looked: Arc::clone(&looked),
            freshness: freshness.clone(),
            raised: Arc::clone(&raised),
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
            edge_told: None,
            edge_waits_until: None,
            overtaken: 0,
            changed: BTreeSet::new(),
            raised: Arc::clone(&raised),
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
                    // Err: no more gateways can come; the poll goes on.
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

    /// Brings what is published up to date.
    async fn refresh(&mut self) {
        let endpoints = Arc::clone(&self.endpoints.borrow_and_update());
        let mut news = None;
        let began = Instant::now();
        let rebuilt = self.rebuild().await;
        if rebuilt.is_ok() && self.unread.is_none() {
            *self.looked.lock() = Instant::now();
            // Of a revision that cannot be built another control plane may know more.
            if self.retry_at.is_none() {
                self.freshness.renew(began);
            }
        }
        let snapshot = match rebuilt {
            Ok(Rebuilt::Nothing) => {
                // A revision that cannot be built, or read, stands until it is tried again.
                if self.retry_at.is_none() && self.unread.is_none() {
                    self.recovered();
                }
                None
            }
            Ok(Rebuilt::Built { covers, faults, published }) => {
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
                // Nobody is waked for it alone.
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

    /// Builds a snapshot if the revision moved, or if it is time to try it again.
    async fn rebuild(&mut self) -> anyhow::Result<Rebuilt> {
        let position = self.source.position().await?;
        let revision = position.revision;
        let due = [self.retry_at, self.forms_again_at].into_iter().flatten().any(|at| at <= Instant::now());
        let hour = clock::now_ms() / HOUR;
        let last = self.xds_state.borrow().snapshot.clone();
        let covers = self.standing.borrow().covers;
        // What cannot be built now is tried again in its time.
        let raise =
            self.retry_at.is_none() && last.as_deref().is_some_and(|last| self.raised.concerns(last, covers));
        let edge_is_due =
            self.retry_at.is_none() && self.edge_waits_until.is_some_and(|until| until <= Instant::now());
        let is_known = self.tried.as_ref() == Some(&position) && hour == self.hour;
        if is_known && !due && !raise && !edge_is_due {
            self.unread = None;
            return Ok(Rebuilt::Nothing);
        }
        if self.unread.is_some_and(|unread| unread.waits(revision)) {
            return Ok(Rebuilt::Nothing);
        }
        let built = self.build(raise).await;
        if built.as_ref().is_err_and(|error| error.is::<StoreError>()) {
            // It was not tried: nothing is known of it.
            self.unread = Some(Unread::after(self.unread, revision));
            return built.map(|_| Rebuilt::Nothing);
        }
        (self.unread, self.tried, self.hour) = (None, Some(position), hour);
        self.forms_again_at = None;
        self.retry_at = Some(Instant::now() + RETRY);
        Ok(self.publish(built?, raise))
    }

    /// Puts what was built in the place of what is published; edges may hear of theirs later. `raise`: they may not.
    fn publish(&mut self, built: Built, raise: bool) -> Rebuilt {
        let Built { position, edge, recent, gateway, changed, faults, lacks_forms } = built;
        let revision = position.revision;
        // Revocations may have been published meanwhile.
        let last = self.xds_state.borrow().snapshot.clone();
        let (edge, waits_until) = match last.as_deref().filter(|_| !raise) {
            Some(last) => self.for_edges(last, edge),
            None => (edge, None),
        };
        self.edge_waits_until = waits_until;
        // While edges wait, not everything of this revision is said.
        let covers = if waits_until.is_some() { self.standing.borrow().covers } else { revision };
        let content = Content { revision, edge, recent, gateway, changed };
        let published = resources::publish(content, last.as_deref(), &self.filter_wasm);
        self.tried = Some(position);
        self.retry_at = None;
        self.forms_again_at = lacks_forms.then(|| Instant::now() + RETRY);
        if let Some(published) = &published {
            if last.is_none_or(|last| !Arc::ptr_eq(&last.edge, &published.edge)) {
                self.edge_told = Some(Instant::now());
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
        let published = published.map(|published| Box::new(Published { revision: covers, ..published }));
        Rebuilt::Built { covers, faults, published }
    }

    /// Returns the edge snapshot to publish: `built`, or the last one, then with the time until which edges keep it if the two
    /// differ.
    fn for_edges(&self, last: &Published, built: Arc<EdgeSnapshot>) -> (Arc<EdgeSnapshot>, Option<Instant>) {
        let has = &last.edge.content;
        let now = Instant::now();
        let until = match EdgeChange::between(has, &built) {
            EdgeChange::Nothing => return (Arc::clone(has), None),
            // Changes that come meanwhile make it no later.
            EdgeChange::Closes => self.edge_waits_until.or(Some(now + MAX_EDGE_COALESCE)),
            EdgeChange::Opens => self.edge_told.map(|told| told + window(last.edge.bytes.len())),
            EdgeChange::Other => None,
        };
        match until.filter(|until| *until > now) {
            Some(until) => (Arc::clone(has), Some(until)),
            None => (built, None),
        }
    }

    /// Keeps the standing faults, and logs each once.
    fn stand(&self, covers: u64, parts: Vec<Fault>) {
        for fault in parts.iter().filter(|fault| !self.standing.borrow().parts.contains(fault)) {
            tracing::error!(
                part = fault.part.as_str(),
                name = %fault.name,
                fault = %fault.fault,
                in_force = fault.in_force,
                way_out = fault.way_out,
                "a part of the stored state is not published as it is stored, the rest is"
            );
        }
        self.standing.send_modify(|standing| {
            standing.covers = covers;
            standing.parts = parts;
        });
    }

    /// Takes back the fault of the whole.
    fn recovered(&self) {
        if self.standing.send_if_modified(|standing| standing.fault.take().is_some()) {
            tracing::info!("snapshots are published again");
        }
    }

    /// Logs a fault once, not at every poll.
    fn report(&self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        let tried = self.tried.as_ref().map_or(0, |tried| tried.revision);
        let mut news = false;
        self.standing.send_if_modified(|standing| {
            news = standing.fault.as_deref() != Some(text.as_str());
            if news {
                standing.fault = Some(text.clone());
            }
            let moved = std::mem::replace(&mut standing.tried, tried) != tried;
            news || moved
        });
        if news {
            tracing::error!(error = %text, "no new snapshot is published; the last good one stays, with what is revoked meanwhile where that can be read");
        }
    }
}

/// Returns the shortest time between two pushes of an edge snapshot of so many bytes, where what changed may wait.
fn window(bytes: usize) -> Duration {
    let kibibytes = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    (EDGE_COALESCE * kibibytes / (1 << 10)).min(MAX_EDGE_COALESCE)
}

#[cfg(test)]
mod tests;
