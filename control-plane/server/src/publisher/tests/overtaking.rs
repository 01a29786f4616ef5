//! Revocations published during a build that is blocked, or fails.

use super::*;
use crate::publisher::overtaking::MAX_BUILDS;

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
    let ahead = xds_state.wait_for(|state| state.snapshot.as_ref().is_some_and(|s| s.recent.revision == 5));
    let ahead = ahead.await.unwrap().clone();
    assert!(begun.elapsed() <= COALESCE * 2, "{:?}", begun.elapsed());
    let published = ahead.snapshot.as_ref().unwrap();
    assert_eq!((published.revision, published.edge.revision, published.gateway.revision), (3, 3, 5));
    assert_eq!(published.recent.content.revoked, [1; 16]);
    assert_eq!(published.gateway.changed.iter().map(|name| &**name).collect::<Vec<_>>(), [parts::RECENT]);
    assert_eq!(handle.status().borrow().covers, 3, "4 is not published yet");
    // A subscriber that has it has nothing beyond its version, also once something newer is published.
    let versions =
        [(Kind::Gateway, &published.gateway.version), (Kind::Revocations, &published.recent.version)];
    for (kind, version) in versions {
        assert!(version.starts_with("5-") && version.ends_with("~3"), "{version}");
        assert_eq!(ahead.covered(kind.as_str(), 5, version), 3);
    }

    // A state that was read before the revocation is not published without it.
    fake.holds.store(false, Ordering::SeqCst);
    fake.let_go.notify_one();
    let whole = xds_state.wait_for(|state| state.snapshot.as_ref().is_some_and(|s| s.revision != 3));
    let whole = whole.await.unwrap().clone();
    let after = whole.snapshot.as_ref().unwrap();
    assert_eq!((after.revision, after.recent.revision, after.gateway.revision), (5, 5, 5));
    let changed: Vec<&str> = after.gateway.changed.iter().map(|name| &**name).collect();
    assert_eq!(changed, ["base", parts::RECENT], "of both builds");
    assert!(!after.gateway.version.contains('~'));
    for (kind, version) in versions {
        assert_eq!(whole.covered(kind.as_str(), 5, version), 3);
    }
    assert_eq!(fake.reads(), reads + 2);
    let heard = fake.published.load(Ordering::SeqCst);
    assert_eq!(heard, published_builds + 1, "of the build that was overtaken nothing is kept");
}

#[tokio::test(start_paused = true)]
async fn revocations_without_end_hold_up_nothing_else() {
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
        let overtaken =
            |state: &XdsState| state.snapshot.as_ref().is_some_and(|s| s.recent.revision == revision);
        xds_state.wait_for(overtaken).await.unwrap();
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
