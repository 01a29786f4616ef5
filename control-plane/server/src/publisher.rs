//! Turns changes into pushes: rebuilds the snapshot when the store's revision moved, and coalesces.
//!
//! Keeps true: the first change goes out at once, those of the next [`COALESCE`] together at its end; a
//! snapshot that cannot be built leaves the last good one in place, is reported, and is tried again when
//! something changes or after [`RETRY`]; a change made by another process on the same store is found within
//! [`POLL`]; a revision that changes nothing of the snapshot is not pushed.

pub mod stored;

use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::GatewaySnapshot;
use async_trait::async_trait;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::catalog::budget::GATEWAY;
use crate::catalog::build::Built;
use crate::catalog::fault::Fault;
use crate::xds::endpoints::EndpointSet;
use crate::xds::{Published, XdsState, XdsStateReceiver, resources};

/// Shortest time between two pushes.
pub const COALESCE: Duration = Duration::from_millis(50);
/// How often the store is asked for a revision made by another process.
pub const POLL: Duration = Duration::from_millis(500);

/// How long a revision that could not be built waits for another try: building costs as much as publishing.
pub const RETRY: Duration = Duration::from_secs(30);

/// Where snapshots come from.
#[async_trait]
pub trait Source: Send + Sync {
    /// The revision of the last change.
    async fn revision(&self) -> anyhow::Result<u64>;
    /// The snapshot of the current state, whatever its revision is by now; `last` is what is published.
    async fn build(&self, last: Option<Arc<Published>>) -> anyhow::Result<Built>;
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
}

impl Handle {
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

    /// Whether the newest revision cannot be published at all.
    pub fn is_stuck(&self) -> bool {
        self.standing.borrow().fault.is_some()
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
    /// The newest revision that was tried.
    tried: Option<u64>,
    /// When the tried revision is tried again; `None`: it was built.
    retry_at: Option<Instant>,
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
        let handle = Handle { dirty: Arc::clone(&dirty), xds_state: receiver, standing: watched };
        let publisher = Publisher {
            source,
            filter_wasm,
            endpoints,
            xds_state,
            dirty,
            standing,
            tried: None,
            retry_at: None,
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
        let snapshot = match self.rebuild().await {
            Ok(Rebuilt::Nothing) => {
                // A revision that cannot be built stands until it is tried again.
                if self.retry_at.is_none() {
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
            let Some(snapshot) = snapshot else {
                return moved;
            };
            xds_state.snapshot = Some(Arc::from(snapshot));
            true
        });
        if let Some((covers, faults)) = news {
            self.recovered();
            self.stand(covers, faults);
        }
    }

    /// Builds a snapshot if the revision moved, or if it is time to try it again.
    async fn rebuild(&mut self) -> anyhow::Result<Rebuilt> {
        let revision = self.source.revision().await?;
        let due = self.retry_at.is_some_and(|at| at <= Instant::now());
        if self.tried == Some(revision) && !due {
            return Ok(Rebuilt::Nothing);
        }
        self.tried = Some(revision);
        self.retry_at = Some(Instant::now() + RETRY);
        let last = self.xds_state.borrow().snapshot.clone();
        let Built { mut snapshot, faults } = self.source.build(last.clone()).await?;
        let revision = snapshot.revision;
        let same = last.is_some_and(|last| says_the_same(&mut snapshot, &last.snapshot));
        let published = (!same).then(|| resources::publish(snapshot, &self.filter_wasm));
        if let Some(published) = &published {
            anyhow::ensure!(
                published.gateway.len() <= GATEWAY,
                "the gateway snapshot has {} bytes, {GATEWAY} is the limit",
                published.gateway.len()
            );
        }
        self.tried = Some(revision);
        self.retry_at = None;
        if let Some(published) = &published {
            tracing::info!(
                revision = published.revision,
                edge_bytes = published.edge.len(),
                gateway_bytes = published.gateway.len(),
                "snapshot published"
            );
        }
        Ok(Rebuilt::Built { covers: revision, faults, published: published.map(Box::new) })
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
        let tried = self.tried.unwrap_or_default();
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
            tracing::error!(error = %text, "no new snapshot is published, revocations among it; the last good one stays");
        }
    }
}

/// Whether two snapshots differ by their revisions only: a note in the audit is nothing to push.
fn says_the_same(new: &mut GatewaySnapshot, last: &GatewaySnapshot) -> bool {
    let revision = std::mem::replace(&mut new.revision, last.revision);
    let digest = std::mem::replace(&mut new.digest, last.digest.clone());
    let edge = new.edge.as_mut().zip(last.edge.as_ref()).map(|(edge, last)| {
        let digest = std::mem::replace(&mut edge.digest, last.digest.clone());
        (std::mem::replace(&mut edge.revision, last.revision), digest)
    });
    let same = *new == *last;
    (new.revision, new.digest) = (revision, digest);
    if let (Some(edge), Some((revision, digest))) = (new.edge.as_mut(), edge) {
        (edge.revision, edge.digest) = (revision, digest);
    }
    same
}

#[cfg(test)]
mod tests;
