//! Turns changes into pushes: rebuilds the snapshot when the store's revision moved, and coalesces.
//!
//! Keeps true: the first change goes out at once, those of the next [`COALESCE`] together at its end; a
//! snapshot that cannot be built leaves the last good one in place, is reported, and is tried again when
//! something changes or after [`RETRY`]; a change made by another process on the same store is found within
//! [`POLL`]; a revision that changes nothing of the snapshot is not pushed.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::GatewaySnapshot;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::catalog::budget::GATEWAY;
use crate::catalog::build::Built;
use crate::catalog::fault::Fault;
use crate::xds::endpoints::EndpointSet;
use crate::xds::{Published, World, WorldReceiver, resources};

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
    /// Why nothing newer is published; `None` when it is.
    pub fault: Option<String>,
    /// The parts that are not published as they are stored.
    pub parts: Vec<Fault>,
}

/// Tells the publisher that something changed, and others what it published.
#[derive(Clone)]
pub struct Handle {
    dirty: Arc<Notify>,
    world: WorldReceiver,
    standing: Arc<Mutex<Standing>>,
}

impl Handle {
    /// Says that the store has a new revision.
    pub fn changed(&self) {
        self.dirty.notify_one();
    }

    pub fn world(&self) -> WorldReceiver {
        self.world.clone()
    }

    pub fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    /// Whether the newest revision cannot be published at all.
    pub fn is_stuck(&self) -> bool {
        self.standing.lock().fault.is_some()
    }
}

/// The task that publishes.
pub struct Publisher {
    source: Arc<dyn Source>,
    /// The filter's path on Envoy's machine.
    filter_wasm: String,
    endpoints: watch::Receiver<Arc<EndpointSet>>,
    world: watch::Sender<World>,
    dirty: Arc<Notify>,
    standing: Arc<Mutex<Standing>>,
    /// The newest revision that was tried.
    tried: Option<u64>,
    /// When the tried revision is tried again; `None`: it was built.
    retry_at: Option<Instant>,
}

/// What a look at the store led to.
enum Rebuilt {
    /// The revision was tried before.
    Nothing,
    /// There is a new revision, and nothing to push.
    Same,
    New(Box<Published>),
}

impl Publisher {
    pub fn new(
        source: Arc<dyn Source>,
        filter_wasm: String,
        endpoints: watch::Receiver<Arc<EndpointSet>>,
    ) -> (Publisher, Handle) {
        let (world, receiver) = watch::channel(World::default());
        let dirty: Arc<Notify> = Arc::default();
        let standing: Arc<Mutex<Standing>> = Arc::default();
        let handle = Handle { dirty: Arc::clone(&dirty), world: receiver, standing: Arc::clone(&standing) };
        let publisher =
            Publisher { source, filter_wasm, endpoints, world, dirty, standing, tried: None, retry_at: None };
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
        let snapshot = match self.rebuild().await {
            Ok(Rebuilt::Nothing) if self.retry_at.is_some() => None,
            Ok(rebuilt) => {
                if self.standing.lock().fault.take().is_some() {
                    tracing::info!("snapshots are published again");
                }
                match rebuilt {
                    Rebuilt::New(published) => Some(published),
                    Rebuilt::Nothing | Rebuilt::Same => None,
                }
            }
            Err(error) => {
                self.report(&error);
                None
            }
        };
        self.world.send_if_modified(|world| {
            let moved = world.endpoints.version != endpoints.version;
            if moved {
                world.endpoints = endpoints;
            }
            let Some(snapshot) = snapshot else {
                return moved;
            };
            world.snapshot = Some(Arc::from(snapshot));
            true
        });
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
        let last = self.world.borrow().snapshot.clone();
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
        self.stand(revision, faults);
        let Some(published) = published else { return Ok(Rebuilt::Same) };
        tracing::info!(
            revision = published.revision,
            edge_bytes = published.edge.len(),
            gateway_bytes = published.gateway.len(),
            "snapshot published"
        );
        Ok(Rebuilt::New(Box::new(published)))
    }

    /// Keeps the standing faults, and logs each once.
    fn stand(&self, covers: u64, parts: Vec<Fault>) {
        let mut standing = self.standing.lock();
        for fault in parts.iter().filter(|fault| !standing.parts.contains(fault)) {
            tracing::error!(
                part = fault.part.as_str(),
                name = %fault.name,
                fault = %fault.fault,
                in_force = fault.in_force,
                way_out = fault.way_out,
                "a part of the stored state is not published as it is stored, the rest is"
            );
        }
        standing.covers = covers;
        standing.parts = parts;
    }

    /// Logs a fault once, not at every poll.
    fn report(&self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        let mut standing = self.standing.lock();
        if standing.fault.as_deref() != Some(text.as_str()) {
            tracing::error!(error = %text, "no new snapshot is published, revocations among it; the last good one stays");
            standing.fault = Some(text);
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
