//! Coalescing, polling and last-known-good, on paused time.

mod edges;
mod overtaking;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use asp_proto::snapshot::{BasePart, CoarseLimit, EdgeSnapshot, RecentRevocations, snapshot_part};
use asp_snapshot::parts;
use asp_xds::contract::Kind;
use asp_xds::endpoints::Endpoints;
use asp_xds::freshness::STALE;
use asp_xds::parts::{EncodedPart, PartsBuilder};
use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct Fake {
    revision: AtomicU64,
    builds: AtomicU64,
    /// Number of notifications that the last build is published.
    published: AtomicU64,
    broken: AtomicBool,
    /// Number of reads of the store that still fail.
    unread: AtomicU64,
    /// Whether the store does not answer at all.
    silent: AtomicBool,
    /// Seconds that a build takes.
    building: AtomicU64,
    /// Whether new revisions change nothing.
    notes: AtomicBool,
    /// Whether last published forms cannot be read.
    lacks_forms: AtomicBool,
    /// Whether a build that has read the store waits until it is released.
    holds: AtomicBool,
    let_go: Notify,
    /// Builds that have read the store.
    read: watch::Sender<u64>,
    /// Revisions of the revocations that are not withdrawn.
    revoked: Mutex<BTreeSet<u64>>,
    /// Whether revocations cannot be read by themselves.
    has_unread_revocations: AtomicBool,
    /// The edge snapshot, but for its revision, and a limit that differs with it.
    edge: Mutex<EdgeSnapshot>,
    /// Whether there is no such limit.
    has_no_limit: AtomicBool,
    said: Mutex<LastBuild>,
}

/// Last build.
#[derive(Default)]
struct LastBuild {
    edge: Arc<EdgeSnapshot>,
    recent: Arc<RecentRevocations>,
    gateway: PartsBuilder,
}

#[async_trait]
impl SnapshotSource for Fake {
    async fn position(&self) -> anyhow::Result<Position> {
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(Position { revision: self.revision.load(Ordering::SeqCst), ..Position::default() })
    }

    async fn build(&self, raise: bool) -> anyhow::Result<SnapshotBuild> {
        let failing =
            self.unread.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if failing.is_ok() {
            return Err(StoreError::Backend("connection reset".into()).into());
        }
        self.builds.fetch_add(1, Ordering::SeqCst);
        let building = self.building.load(Ordering::SeqCst);
        if building > 0 {
            tokio::time::sleep(Duration::from_secs(building)).await;
        }
        anyhow::ensure!(!self.broken.load(Ordering::SeqCst), "disk on fire");
        let revision = self.revision.load(Ordering::SeqCst);
        let revoked = marks(self.revoked.lock().iter().copied());
        self.read.send_modify(|read| *read += 1);
        if self.holds.load(Ordering::SeqCst) {
            self.let_go.notified().await;
        }
        let mut said = self.said.lock();
        if raise || !self.notes.load(Ordering::SeqCst) {
            let limit = CoarseLimit { user: revision.to_string(), ..CoarseLimit::default() };
            let has_no_limit = self.has_no_limit.load(Ordering::SeqCst);
            let coarse_limits = if has_no_limit { Vec::new() } else { vec![limit] };
            said.edge = Arc::new(EdgeSnapshot { revision, coarse_limits, ..self.edge.lock().clone() });
            said.recent = Arc::new(RecentRevocations { revision, revoked, ..RecentRevocations::default() });
            let base = BasePart { public_url: revision.to_string(), ..BasePart::default() };
            said.gateway.put("base", Some(EncodedPart::of(snapshot_part::Part::Base(base))));
            let recent = snapshot_part::Part::Recent((*said.recent).clone());
            said.gateway.put(parts::RECENT, Some(EncodedPart::of(recent)));
        }
        let changed = std::mem::take(&mut said.gateway.changed);
        Ok(SnapshotBuild {
            position: Position { revision, ..Position::default() },
            edge: Arc::clone(&said.edge),
            recent: Arc::clone(&said.recent),
            gateway: said.gateway.parts.clone(),
            changed,
            faults: Vec::new(),
            lacks_forms: self.lacks_forms.load(Ordering::SeqCst),
        })
    }

    async fn overtake(&self, recent: &RecentRevocations, after: u64) -> anyhow::Result<RevocationUpdate> {
        anyhow::ensure!(!self.has_unread_revocations.load(Ordering::SeqCst), "connection reset");
        let revoked = self.revoked.lock();
        let mut entries = recent.revoked.as_chunks::<16>().0.to_vec();
        entries.extend(revoked.range(after + 1..).map(|revision| u128::from(*revision).to_be_bytes()));
        let with = RecentRevocations {
            revision: revoked.last().copied().unwrap_or(0),
            revoked: asp_registry::sorted_set(entries),
            ..recent.clone()
        };
        let through = self.revision.load(Ordering::SeqCst);
        Ok(RevocationUpdate { through, recent: (with.revoked != recent.revoked).then_some(with) })
    }

    fn published(&self) {
        self.published.fetch_add(1, Ordering::SeqCst);
    }
}

impl Fake {
    /// Stores a revocation without notifying the publisher.
    fn revoke(&self) -> u64 {
        let revision = self.revision.fetch_add(1, Ordering::SeqCst) + 1;
        self.revoked.lock().insert(revision);
        revision
    }

    /// Withdraws a revocation without notifying the publisher.
    fn withdraw(&self, revoked: u64) -> u64 {
        self.revoked.lock().remove(&revoked);
        self.revision.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Waits until so many builds have read the store.
    async fn has_read(&self, builds: u64) {
        self.read.subscribe().wait_for(|read| *read >= builds).await.unwrap();
    }

    fn reads(&self) -> u64 {
        *self.read.borrow()
    }
}

/// Returns the entries of revocations of these revisions, in ascending order.
fn marks(revisions: impl IntoIterator<Item = u64>) -> Vec<u8> {
    revisions.into_iter().flat_map(|revision| u128::from(revision).to_be_bytes()).collect()
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

async fn revision_of(xds_state: &mut XdsStateReceiver, revision: u64) {
    xds_state
        .wait_for(|xds_state| xds_state.snapshot.as_ref().is_some_and(|s| s.revision == revision))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lone_change_goes_out_at_once_and_a_burst_goes_out_as_one() {
    let running = start();
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    tokio::time::sleep(COALESCE * 2).await;

    let before = Instant::now();
    running.fake.revision.store(1, Ordering::SeqCst);
    running.handle.changed();
    revision_of(&mut xds_state, 1).await;
    assert_eq!(before.elapsed(), Duration::ZERO, "the first change does not wait");

    let builds = running.fake.builds.load(Ordering::SeqCst);
    for revision in 2..=20 {
        running.fake.revision.store(revision, Ordering::SeqCst);
        running.handle.changed();
        tokio::task::yield_now().await;
    }
    revision_of(&mut xds_state, 20).await;
    assert_eq!(before.elapsed(), COALESCE, "the rest waits for the end of the window");
    assert_eq!(running.fake.builds.load(Ordering::SeqCst), builds + 1, "nineteen changes, one build");
}

#[tokio::test(start_paused = true)]
async fn a_revision_made_by_another_process_is_found_by_the_poll() {
    let running = start();
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    let before = Instant::now();
    running.fake.revision.store(5, Ordering::SeqCst);
    revision_of(&mut xds_state, 5).await;
    assert!(before.elapsed() <= POLL + COALESCE);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_cannot_be_built_leaves_the_last_good_one() {
    let running = start();
    let mut xds_state = running.handle.xds_state();
    running.fake.revision.store(1, Ordering::SeqCst);
    revision_of(&mut xds_state, 1).await;

    running.fake.broken.store(true, Ordering::SeqCst);
    running.fake.revision.store(2, Ordering::SeqCst);
    running.handle.changed();
    tokio::time::sleep(POLL * 3).await;
    assert_eq!(running.handle.status().borrow().fault.as_deref(), Some("disk on fire"));
    assert!(running.handle.is_stuck());
    assert_eq!(xds_state.borrow().snapshot.as_ref().unwrap().revision, 1);

    running.fake.broken.store(false, Ordering::SeqCst);
    revision_of(&mut xds_state, 2).await;
    assert!(!running.handle.is_stuck());
    assert_eq!(running.handle.status().borrow().covers, 2);
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_an_earlier_revision_says_nothing_of_a_later_one() {
    let running = start();
    let mut standing = running.handle.status();
    running.fake.broken.store(true, Ordering::SeqCst);
    running.fake.revision.store(1, Ordering::SeqCst);
    running.handle.changed();
    assert!(standing.wait_for(|standing| standing.is_of(1)).await.unwrap().fault.is_some());
    running.fake.broken.store(false, Ordering::SeqCst);
    running.fake.revision.store(2, Ordering::SeqCst);
    running.handle.changed();
    let mended = standing.wait_for(|standing| standing.is_of(2)).await.unwrap().clone();
    assert_eq!((mended.covers, mended.fault), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_cannot_be_built_is_tried_again_by_a_change_or_a_slow_timer_only() {
    let running = start();
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    let builds = || running.fake.builds.load(Ordering::SeqCst);
    let before = builds();
    running.fake.broken.store(true, Ordering::SeqCst);
    running.fake.revision.store(1, Ordering::SeqCst);
    tokio::time::sleep(RETRY - POLL).await;
    assert_eq!(builds(), before + 1, "not at every poll");
    assert!(running.handle.is_stuck(), "the fault stands meanwhile");
    tokio::time::sleep(POLL * 4).await;
    assert_eq!(builds(), before + 2, "the timer");
    running.fake.revision.store(2, Ordering::SeqCst);
    running.handle.changed();
    tokio::time::sleep(COALESCE * 2).await;
    assert_eq!(builds(), before + 3, "a change");
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_changes_nothing_is_not_pushed() {
    let running = start();
    running.fake.notes.store(true, Ordering::SeqCst);
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    xds_state.mark_unchanged();
    running.fake.revision.store(7, Ordering::SeqCst);
    running.handle.changed();
    tokio::time::sleep(POLL * 2).await;
    assert_eq!(running.handle.status().borrow().covers, 7);
    assert!(!xds_state.has_changed().unwrap());
    running.fake.notes.store(false, Ordering::SeqCst);
    running.fake.revision.store(8, Ordering::SeqCst);
    revision_of(&mut xds_state, 8).await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_comes_is_published_without_a_new_snapshot() {
    let running = start();
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    let builds = running.fake.builds.load(Ordering::SeqCst);
    let alive = running.endpoints.join("gateway".into(), "127.0.0.1:8082".parse().unwrap());
    xds_state.wait_for(|xds_state| xds_state.endpoints.clusters.contains_key("gateway")).await.unwrap();
    alive.leave();
    xds_state.wait_for(|xds_state| xds_state.endpoints.version == 2).await.unwrap();
    assert_eq!(running.fake.builds.load(Ordering::SeqCst), builds);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_another_control_plane_makes_the_same_be_published_again_at_a_later_revision() {
    let running = start();
    running.fake.revision.store(3, Ordering::SeqCst);
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 3).await;
    running.fake.notes.store(true, Ordering::SeqCst);
    running.fake.revision.store(7, Ordering::SeqCst);
    running.handle.changed();
    running.handle.status().wait_for(|standing| standing.covers == 7).await.unwrap();
    let seen_revisions = running.handle.seen_revisions();
    seen_revisions.record(Kind::Edge, 3);
    seen_revisions.record(Kind::Gateway, 9);
    seen_revisions.record(Kind::Gateway, u64::MAX);
    tokio::time::sleep(POLL * 2).await;
    assert_eq!(xds_state.borrow().snapshot.as_ref().unwrap().edge.revision, 3, "9 is not stored here");
    let again = start();
    again.fake.revision.store(3, Ordering::SeqCst);
    let mut xds_state = again.handle.xds_state();
    revision_of(&mut xds_state, 3).await;
    again.fake.notes.store(true, Ordering::SeqCst);
    again.fake.revision.store(7, Ordering::SeqCst);
    // What is made up hides nothing.
    (0..100).for_each(|n| again.handle.seen_revisions().record(Kind::Revocations, u64::MAX - n));
    again.handle.seen_revisions().record(Kind::Revocations, 5);
    revision_of(&mut xds_state, 7).await;
    let published = xds_state.borrow().snapshot.clone().unwrap();
    assert_eq!((published.edge.revision, published.recent.revision, published.gateway.revision), (7, 7, 7));
}

/// The publisher may or may not look between the restore and the command.
#[tokio::test(start_paused = true)]
async fn after_an_older_database_was_restored_all_is_published_once_its_revision_is_raised() {
    let running = start();
    running.fake.revision.store(9, Ordering::SeqCst);
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 9).await;
    let seen_revisions = running.handle.seen_revisions();
    for kind in [Kind::Edge, Kind::Revocations, Kind::Gateway] {
        seen_revisions.record(kind, 9);
    }
    tokio::time::sleep(POLL * 2).await;
    running.fake.revision.store(8, Ordering::SeqCst);
    revision_of(&mut xds_state, 8).await;
    running.fake.notes.store(true, Ordering::SeqCst);
    running.fake.revision.store(1_000, Ordering::SeqCst);
    revision_of(&mut xds_state, 1_000).await;
    let published = xds_state.borrow().snapshot.clone().unwrap();
    assert_eq!((published.edge.revision, published.recent.revision), (1_000, 1_000));
    assert_eq!(published.gateway.revision, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_costs_a_revision_no_more_than_a_poll() {
    let running = start();
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    running.fake.unread.store(1, Ordering::SeqCst);
    running.fake.revision.store(4, Ordering::SeqCst);
    running.handle.changed();
    let begun = Instant::now();
    running.handle.status().wait_for(|standing| standing.fault.is_some()).await.unwrap();
    assert!(!running.handle.status().borrow().is_of(4), "nothing is known of it");
    revision_of(&mut xds_state, 4).await;
    assert!(begun.elapsed() <= POLL * 2 + COALESCE * 2, "{:?}", begun.elapsed());
    running.handle.status().wait_for(|standing| standing.fault.is_none()).await.unwrap();
    running.fake.unread.store(u64::MAX, Ordering::SeqCst);
    running.fake.revision.store(5, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let failed = u64::MAX - running.fake.unread.load(Ordering::SeqCst);
    assert!((10..30).contains(&failed), "{failed} reads in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_says_nothing_is_noticed() {
    let running = start();
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    tokio::time::sleep(SILENT * 2).await;
    assert!(!running.handle.is_stuck(), "it looks again and again");
    running.fake.silent.store(true, Ordering::SeqCst);
    tokio::time::sleep(SILENT + POLL * 2).await;
    assert!(running.handle.is_stuck());
    assert!(running.handle.silent_for() >= SILENT);
}

/// A stale control plane loses its subscribers to another one.
#[tokio::test(start_paused = true)]
async fn a_publisher_is_stale_while_the_store_is_silent_or_has_what_it_cannot_build_and_not_while_it_builds()
{
    let running = start();
    let freshness = running.handle.freshness();
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    tokio::time::sleep(STALE * 10).await;
    assert!(!freshness.is_stale(), "it looks again and again");

    running.fake.building.store(STALE.as_secs() * 3, Ordering::SeqCst);
    running.fake.revision.store(1, Ordering::SeqCst);
    running.handle.changed();
    tokio::time::sleep(STALE * 2).await;
    assert_eq!(xds_state.borrow().covers, 0, "it builds");
    assert!(!freshness.is_stale(), "the store answers meanwhile");
    revision_of(&mut xds_state, 1).await;
    running.fake.building.store(0, Ordering::SeqCst);

    running.fake.broken.store(true, Ordering::SeqCst);
    running.fake.revision.store(2, Ordering::SeqCst);
    running.handle.changed();
    tokio::time::sleep(STALE + POLL).await;
    assert!(freshness.is_stale(), "another one may be able to build it");
    running.fake.broken.store(false, Ordering::SeqCst);
    running.fake.revision.store(3, Ordering::SeqCst);
    running.handle.changed();
    revision_of(&mut xds_state, 3).await;
    tokio::time::sleep(POLL).await;
    assert!(!freshness.is_stale());

    running.fake.silent.store(true, Ordering::SeqCst);
    tokio::time::sleep(STALE + POLL).await;
    assert!(freshness.is_stale());
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_lacks_last_forms_is_no_less_current_and_reads_them_again_by_a_slow_timer() {
    let running = start();
    let mut xds_state = running.handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    let builds = || running.fake.builds.load(Ordering::SeqCst);
    let before = builds();
    running.fake.lacks_forms.store(true, Ordering::SeqCst);
    running.fake.revision.store(1, Ordering::SeqCst);
    running.handle.changed();
    revision_of(&mut xds_state, 1).await;
    tokio::time::sleep(STALE * 2).await;
    assert!(!running.handle.freshness().is_stale(), "nobody has more than it has");
    assert_eq!(builds(), before + 1, "not at every poll");
    running.fake.lacks_forms.store(false, Ordering::SeqCst);
    tokio::time::sleep(RETRY).await;
    assert_eq!(builds(), before + 2, "the timer");
    tokio::time::sleep(RETRY * 2).await;
    assert_eq!(builds(), before + 2, "none are missing");
}
