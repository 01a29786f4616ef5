//! Revocations published during a build that is blocked, or fails.

use std::collections::BTreeMap;

use asp_proto::xds::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use asp_xds::delta::{DeltaSubscription, Push};

use super::*;

/// A gateway that receives what is published; versions by name of the part.
#[derive(Default)]
struct Gateway {
    subscription: DeltaSubscription,
    has: BTreeMap<String, String>,
}

impl Gateway {
    /// Receives the published state; returns the names of the parts in the push.
    fn receive(&mut self, state: &XdsState) -> Vec<String> {
        // The first request subscribes, the others are ignored.
        self.subscription.on_request(DeltaDiscoveryRequest::default(), "");
        let mut names = Vec::new();
        let mut response_nonce = String::new();
        for message in self.subscription.next_push(state).into_iter().flat_map(Push::messages) {
            response_nonce = message.nonce;
            for part in message.resources {
                names.push(part.name.clone());
                self.has.insert(part.name, part.version);
            }
        }
        let answer = DeltaDiscoveryRequest { response_nonce, ..DeltaDiscoveryRequest::default() };
        self.subscription.on_request(answer, "");
        names
    }
}

/// Waits until recent revocations of a revision are published.
async fn recent_of(xds_state: &mut XdsStateReceiver, revision: u64) -> XdsState {
    published(xds_state, |published| published.recent.revision == revision).await
}

/// Waits until everything of another revision than `last` is published.
async fn other_than(xds_state: &mut XdsStateReceiver, last: u64) -> XdsState {
    published(xds_state, |published| published.revision != last).await
}

async fn published(xds_state: &mut XdsStateReceiver, is_it: impl Fn(&Publication) -> bool) -> XdsState {
    let is_there = |state: &XdsState| state.snapshot.as_deref().is_some_and(&is_it);
    tokio::time::timeout(SILENT, xds_state.wait_for(is_there)).await.unwrap().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_revocation_overtakes_a_build_that_is_held() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    let mut xds_state = handle.xds_state();
    fake.revision.store(3, Ordering::SeqCst);
    revision_of(&mut xds_state, 3).await;
    let (reads, published_builds) = (fake.reads(), fake.published.load(Ordering::SeqCst));
    fake.holds.store(true, Ordering::SeqCst);
    fake.revision.store(4, Ordering::SeqCst);
    handle.changed();
    fake.has_read(reads + 1).await;

    let begun = Instant::now();
    assert_eq!(fake.revoke(), 5);
    handle.changed();
    let ahead = recent_of(&mut xds_state, 5).await;
    assert!(begun.elapsed() <= COALESCE * 2, "{:?}", begun.elapsed());
    let published = ahead.snapshot.as_ref().unwrap();
    assert_eq!((published.revision, published.edge.revision, published.gateway.revision), (3, 3, 5));
    assert_eq!(published.recent.content.revoked, marks([5]));
    assert_eq!(published.gateway.changed.iter().map(|name| &**name).collect::<Vec<_>>(), [parts::RECENT]);
    assert_eq!(handle.status().borrow().covers, 3, "4 is not published yet");
    // A subscriber that has it has nothing beyond its version, also once something newer is published.
    let versions =
        [(Kind::Gateway, &published.gateway.version), (Kind::Revocations, &published.recent.version)];
    for (kind, version) in versions {
        assert!(version.starts_with("5-") && version.ends_with("~3"), "{version}");
        assert_eq!(ahead.covered(kind.as_str(), 5, version), 3);
    }

    // A state that was read before the revocation is published with it.
    fake.holds.store(false, Ordering::SeqCst);
    fake.let_go.notify_one();
    let built = other_than(&mut xds_state, 3).await;
    let after = built.snapshot.as_ref().unwrap();
    assert_eq!((after.revision, after.edge.revision), (4, 4));
    assert_eq!((after.recent.revision, after.gateway.revision), (5, 5));
    assert_eq!(after.recent.content.revoked, marks([5]));
    assert_eq!(after.gateway.number, published.gateway.number + 1);
    let changed: Vec<&str> = after.gateway.changed.iter().map(|name| &**name).collect();
    assert_eq!(changed, ["base", parts::RECENT], "of the build, and the revocations");
    assert!(after.gateway.version.ends_with("~4") && after.recent.version.ends_with("~4"));
    for (kind, version) in versions {
        assert_eq!(built.covered(kind.as_str(), 5, version), 3);
    }
    assert_eq!(built.covers, 4, "5 is not published yet, except for revocations");
    let whole = other_than(&mut xds_state, 4).await;
    let after = whole.snapshot.as_ref().unwrap();
    assert_eq!((after.revision, after.recent.revision, after.gateway.revision), (5, 5, 5));
    assert!(!after.gateway.version.contains('~'));
    assert_eq!(fake.reads(), reads + 2);
    assert_eq!(fake.published.load(Ordering::SeqCst), published_builds + 2, "both are published");
}

#[tokio::test(start_paused = true)]
async fn revocations_during_every_build_wait_for_none_and_no_build_is_repeated() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    let mut xds_state = handle.xds_state();
    fake.revision.store(3, Ordering::SeqCst);
    revision_of(&mut xds_state, 3).await;
    let mut gateway = Gateway::default();
    gateway.receive(&xds_state.borrow_and_update().clone());
    let reads = fake.reads();
    fake.holds.store(true, Ordering::SeqCst);
    let mut revoked = Vec::new();
    for build in 1..=2 * u64::from(MAX_BUILDS) {
        fake.revision.fetch_add(1, Ordering::SeqCst);
        handle.changed();
        fake.has_read(reads + build).await;
        let built = fake.revision.load(Ordering::SeqCst);
        for _ in 0..3 {
            let begun = Instant::now();
            let revision = fake.revoke();
            revoked.push(revision);
            handle.changed();
            let ahead = recent_of(&mut xds_state, revision).await;
            assert!(begun.elapsed() <= COALESCE * 2, "{:?}", begun.elapsed());
            assert_eq!(gateway.receive(&ahead), [parts::RECENT]);
        }
        let last = xds_state.borrow().snapshot.as_ref().map_or(0, |last| last.revision);
        fake.let_go.notify_one();
        let state = other_than(&mut xds_state, last).await;
        assert_eq!(fake.reads(), reads + build, "one build");
        let published = state.snapshot.as_ref().unwrap();
        assert_eq!((published.revision, published.edge.revision, state.covers), (built, built, built));
        assert_eq!(published.recent.content.revoked, marks(revoked.iter().copied()));
        let newest = revoked.last().copied().unwrap();
        assert_eq!((published.recent.revision, published.gateway.revision), (newest, newest));
        assert!(gateway.receive(&state).contains(&"base".to_owned()));
        let parts = published.gateway.parts.iter();
        let sent: BTreeMap<String, String> =
            parts.map(|(name, part)| (name.to_string(), part.version_text())).collect();
        assert_eq!(gateway.has, sent);
        assert_eq!(gateway.subscription.in_force(), newest);
    }
}

/// The withdrawal may follow another change, which the build does not have.
#[tokio::test(start_paused = true)]
async fn a_revocation_that_is_withdrawn_during_a_build_is_in_force_until_the_next_one() {
    for is_followed in [false, true] {
        let running = start();
        let Running { fake, handle, .. } = &running;
        let mut xds_state = handle.xds_state();
        fake.revision.store(3, Ordering::SeqCst);
        revision_of(&mut xds_state, 3).await;
        let reads = fake.reads();
        fake.holds.store(true, Ordering::SeqCst);
        fake.revision.store(4, Ordering::SeqCst);
        handle.changed();
        fake.has_read(reads + 1).await;
        assert_eq!(fake.revoke(), 5);
        recent_of(&mut xds_state, 5).await;
        let mut now = fake.withdraw(5);
        if is_followed {
            now = fake.revoke();
        }
        fake.holds.store(false, Ordering::SeqCst);
        fake.let_go.notify_one();
        let state = other_than(&mut xds_state, 3).await;
        let published = state.snapshot.as_ref().unwrap();
        assert_eq!((published.revision, published.recent.revision), (now, now));
        assert_eq!(published.recent.content.revoked, marks(is_followed.then_some(now)));
        assert_eq!(fake.reads(), reads + 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_build_is_repeated_if_the_revocations_after_it_cannot_be_read() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    let mut xds_state = handle.xds_state();
    fake.revision.store(3, Ordering::SeqCst);
    revision_of(&mut xds_state, 3).await;
    let reads = fake.reads();
    fake.holds.store(true, Ordering::SeqCst);
    fake.revision.store(4, Ordering::SeqCst);
    handle.changed();
    fake.has_read(reads + 1).await;
    assert_eq!(fake.revoke(), 5);
    recent_of(&mut xds_state, 5).await;
    fake.has_unread_revocations.store(true, Ordering::SeqCst);
    fake.holds.store(false, Ordering::SeqCst);
    fake.let_go.notify_one();
    let state = other_than(&mut xds_state, 3).await;
    let published = state.snapshot.as_ref().unwrap();
    assert_eq!((published.revision, published.recent.revision), (5, 5));
    assert_eq!(published.recent.content.revoked, marks([5]));
    assert_eq!(fake.reads(), reads + 2);
}

#[tokio::test(start_paused = true)]
async fn withdrawals_without_end_hold_up_nothing_else() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    let mut xds_state = handle.xds_state();
    fake.revision.store(3, Ordering::SeqCst);
    revision_of(&mut xds_state, 3).await;
    let reads = fake.reads();
    fake.holds.store(true, Ordering::SeqCst);
    fake.revision.store(4, Ordering::SeqCst);
    handle.changed();
    for build in 1..MAX_BUILDS {
        fake.has_read(reads + u64::from(build)).await;
        let revision = fake.revoke();
        recent_of(&mut xds_state, revision).await;
        fake.withdraw(revision);
        fake.let_go.notify_one();
    }
    fake.has_read(reads + u64::from(MAX_BUILDS)).await;
    assert_eq!(xds_state.borrow().snapshot.as_ref().unwrap().revision, 3);
    let in_it = fake.revision.load(Ordering::SeqCst);
    fake.revoke();
    fake.let_go.notify_one();
    revision_of(&mut xds_state, in_it).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_build_waits_for_no_poll() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    let mut xds_state = handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    let reads = fake.reads();
    fake.holds.store(true, Ordering::SeqCst);
    fake.revision.store(1, Ordering::SeqCst);
    handle.changed();
    fake.has_read(reads + 1).await;
    fake.revision.store(2, Ordering::SeqCst);
    handle.changed();
    // The read of revocations consumes the notification.
    tokio::time::sleep(COALESCE * 3).await;
    fake.holds.store(false, Ordering::SeqCst);
    fake.let_go.notify_one();
    let begun = Instant::now();
    revision_of(&mut xds_state, 2).await;
    assert!(begun.elapsed() <= COALESCE * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_revocation_is_published_where_nothing_else_can_be_built() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    let mut xds_state = handle.xds_state();
    fake.revision.store(3, Ordering::SeqCst);
    revision_of(&mut xds_state, 3).await;
    fake.broken.store(true, Ordering::SeqCst);
    fake.revoke();
    handle.changed();
    let ahead = xds_state.wait_for(|state| state.snapshot.as_ref().is_some_and(|s| s.recent.revision == 4));
    assert_eq!(ahead.await.unwrap().snapshot.as_ref().unwrap().revision, 3);
    handle.status().wait_for(|standing| standing.fault.is_some()).await.unwrap();
    fake.broken.store(false, Ordering::SeqCst);
    fake.revision.store(5, Ordering::SeqCst);
    handle.changed();
    revision_of(&mut xds_state, 5).await;
    assert_eq!(xds_state.borrow().snapshot.as_ref().unwrap().recent.revision, 5);
}
