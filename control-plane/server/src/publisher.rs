//! Turns changes into pushes: rebuilds the snapshot when the store's revision moved, and coalesces.
//!
//! Keeps true: the first change goes out at once, those of the next [`COALESCE`] together at its end; a
//! snapshot that cannot be built leaves the last good one in place and is reported; a change made by
//! another process on the same store is found within [`POLL`].

use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::GatewaySnapshot;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::xds::endpoints::EndpointSet;
use crate::xds::{World, WorldReceiver, resources};

/// Shortest time between two pushes (design §8: at least 50 ms).
pub const COALESCE: Duration = Duration::from_millis(50);
/// How often the store is asked for a revision made by another process.
pub const POLL: Duration = Duration::from_millis(500);

/// The bounds of `snapshot.proto`, in bytes.
const MAX_EDGE: usize = 2 * 1024 * 1024;
const MAX_GATEWAY: usize = 64 * 1024 * 1024;

/// Where snapshots come from.
#[async_trait]
pub trait Source: Send + Sync {
    /// The revision of the last change.
    async fn revision(&self) -> anyhow::Result<u64>;
    /// The snapshot of the current state, whatever its revision is by now.
    async fn build(&self) -> anyhow::Result<GatewaySnapshot>;
}

/// Tells the publisher that something changed, and others what it published.
#[derive(Clone)]
pub struct Handle {
    dirty: Arc<Notify>,
    world: WorldReceiver,
    fault: Arc<Mutex<Option<String>>>,
}

impl Handle {
    /// Says that the store has a new revision.
    pub fn changed(&self) {
        self.dirty.notify_one();
    }

    pub fn world(&self) -> WorldReceiver {
        self.world.clone()
    }

    /// Why the newest revision is not published; `None` when it is.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
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
    fault: Arc<Mutex<Option<String>>>,
    /// The newest revision that was tried.
    tried: Option<u64>,
}

impl Publisher {
    pub fn new(
        source: Arc<dyn Source>,
        filter_wasm: String,
        endpoints: watch::Receiver<Arc<EndpointSet>>,
    ) -> (Publisher, Handle) {
        let (world, receiver) = watch::channel(World::default());
        let (dirty, fault) = (Arc::new(Notify::new()), Arc::default());
        let handle = Handle { dirty: Arc::clone(&dirty), world: receiver, fault: Arc::clone(&fault) };
        (Publisher { source, filter_wasm, endpoints, world, dirty, fault, tried: None }, handle)
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
            Ok(snapshot) => {
                if self.fault.lock().take().is_some() {
                    tracing::info!("snapshots are published again");
                }
                snapshot
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
            world.snapshot = Some(Arc::new(snapshot));
            true
        });
    }

    /// Builds a snapshot if the revision moved.
    async fn rebuild(&mut self) -> anyhow::Result<Option<crate::xds::Published>> {
        let revision = self.source.revision().await?;
        if self.tried == Some(revision) {
            return Ok(None);
        }
        let snapshot = self.source.build().await?;
        let published = resources::publish(snapshot, &self.filter_wasm);
        anyhow::ensure!(
            published.gateway.len() <= MAX_GATEWAY,
            "the gateway snapshot has {} bytes, {MAX_GATEWAY} is the limit",
            published.gateway.len()
        );
        if published.edge.len() > MAX_EDGE {
            // Every Envoy worker copies it, and requests wait meanwhile; not enforcing would be worse.
            tracing::error!(bytes = published.edge.len(), limit = MAX_EDGE, "the edge snapshot is too large");
        }
        self.tried = Some(published.revision);
        tracing::info!(
            revision = published.revision,
            edge_bytes = published.edge.len(),
            gateway_bytes = published.gateway.len(),
            "snapshot published"
        );
        Ok(Some(published))
    }

    /// Logs a fault once, not at every poll.
    fn report(&self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        let mut fault = self.fault.lock();
        if fault.as_deref() != Some(text.as_str()) {
            tracing::error!(error = %text, "no new snapshot, the last good one stays");
            *fault = Some(text);
        }
    }
}

#[cfg(test)]
mod tests;
