//! Coalescing, polling and last-known-good, on paused time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::Instant;

use super::*;
use crate::xds::endpoints::Endpoints;

#[derive(Default)]
struct Fake {
    revision: AtomicU64,
    builds: AtomicU64,
    broken: AtomicBool,
}

#[async_trait]
impl Source for Fake {
    async fn revision(&self) -> anyhow::Result<u64> {
        Ok(self.revision.load(Ordering::SeqCst))
    }

    async fn build(&self) -> anyhow::Result<GatewaySnapshot> {
        self.builds.fetch_add(1, Ordering::SeqCst);
        anyhow::ensure!(!self.broken.load(Ordering::SeqCst), "disk on fire");
        Ok(GatewaySnapshot { revision: self.revision.load(Ordering::SeqCst), ..GatewaySnapshot::default() })
    }
}

struct Running {
    fake: Arc<Fake>,
    handle: Handle,
    endpoints: Arc<Endpoints>,
    _stop: tokio_util::sync::DropGuard,
}

fn start() -> Running {
    let fake = Arc::new(Fake::default());
    let endpoints = Endpoints::new();
    let (publisher, handle) = Publisher::new(fake.clone(), "/f.wasm".into(), endpoints.subscribe());
    let stop = CancellationToken::new();
    tokio::spawn(publisher.run(stop.clone()));
    Running { fake, handle, endpoints, _stop: stop.drop_guard() }
}

async fn revision_of(world: &mut WorldReceiver, revision: u64) {
    world.wait_for(|world| world.snapshot.as_ref().is_some_and(|s| s.revision == revision)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lone_change_goes_out_at_once_and_a_burst_goes_out_as_one() {
    let running = start();
    let mut world = running.handle.world();
    revision_of(&mut world, 0).await;
    tokio::time::sleep(COALESCE * 2).await;

    let before = Instant::now();
    running.fake.revision.store(1, Ordering::SeqCst);
    running.handle.changed();
    revision_of(&mut world, 1).await;
    assert_eq!(before.elapsed(), Duration::ZERO, "the first change does not wait");

    let builds = running.fake.builds.load(Ordering::SeqCst);
    for revision in 2..=20 {
        running.fake.revision.store(revision, Ordering::SeqCst);
        running.handle.changed();
        tokio::task::yield_now().await;
    }
    revision_of(&mut world, 20).await;
    assert_eq!(before.elapsed(), COALESCE, "the rest waits for the end of the window");
    assert_eq!(running.fake.builds.load(Ordering::SeqCst), builds + 1, "nineteen changes, one build");
}

#[tokio::test(start_paused = true)]
async fn a_revision_made_by_another_process_is_found_by_the_poll() {
    let running = start();
    let mut world = running.handle.world();
    revision_of(&mut world, 0).await;
    let before = Instant::now();
    running.fake.revision.store(5, Ordering::SeqCst);
    revision_of(&mut world, 5).await;
    assert!(before.elapsed() <= POLL + COALESCE);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_cannot_be_built_leaves_the_last_good_one() {
    let running = start();
    let mut world = running.handle.world();
    running.fake.revision.store(1, Ordering::SeqCst);
    revision_of(&mut world, 1).await;

    running.fake.broken.store(true, Ordering::SeqCst);
    running.fake.revision.store(2, Ordering::SeqCst);
    running.handle.changed();
    tokio::time::sleep(POLL * 3).await;
    assert_eq!(running.handle.fault().as_deref(), Some("disk on fire"));
    assert_eq!(world.borrow().snapshot.as_ref().unwrap().revision, 1);

    running.fake.broken.store(false, Ordering::SeqCst);
    revision_of(&mut world, 2).await;
    assert_eq!(running.handle.fault(), None);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_comes_is_published_without_a_new_snapshot() {
    let running = start();
    let mut world = running.handle.world();
    revision_of(&mut world, 0).await;
    let builds = running.fake.builds.load(Ordering::SeqCst);
    let alive = running.endpoints.join("gateway".into(), "127.0.0.1:8082".parse().unwrap());
    world.wait_for(|world| world.endpoints.clusters.contains_key("gateway")).await.unwrap();
    drop(alive);
    world.wait_for(|world| world.endpoints.version == 2).await.unwrap();
    assert_eq!(running.fake.builds.load(Ordering::SeqCst), builds);
}
