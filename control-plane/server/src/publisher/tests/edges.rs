//! Waiting times of edges for changes.

use asp_proto::snapshot::OrgExposure;

use super::*;

fn edge_is_at(revision: u64) -> impl FnMut(&XdsState) -> bool {
    move |state| state.snapshot.as_ref().is_some_and(|s| s.edge.revision == revision)
}

#[tokio::test(start_paused = true)]
async fn a_large_edge_snapshot_waits_for_others_unless_more_than_exposure_and_limits_changes() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    let mut xds_state = handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    fake.edge.lock().public_url = "x".repeat(1 << 20);
    let write = |revision: u64| {
        fake.revision.store(revision, Ordering::SeqCst);
        handle.changed();
    };
    write(1);
    xds_state.wait_for(edge_is_at(1)).await.unwrap();

    let begun = Instant::now();
    write(2);
    let gateways =
        xds_state.wait_for(|state| state.snapshot.as_ref().is_some_and(|s| s.gateway.revision == 2));
    let gateways = gateways.await.unwrap().snapshot.clone().unwrap();
    assert!(begun.elapsed() <= COALESCE, "gateways do not wait");
    assert_eq!((gateways.edge.revision, gateways.revision), (1, 1));
    assert_eq!(handle.status().borrow().covers, 1, "not all of it is said");
    let told = xds_state.wait_for(edge_is_at(2)).await.unwrap().snapshot.clone().unwrap();
    assert!(begun.elapsed() >= EDGE_COALESCE && begun.elapsed() <= EDGE_COALESCE + POLL + COALESCE * 2);
    assert_eq!((told.revision, told.gateway.revision), (2, 2));
    handle.status().wait_for(|standing| standing.covers == 2).await.unwrap();

    let begun = Instant::now();
    write(3);
    xds_state
        .wait_for(|state| state.snapshot.as_ref().is_some_and(|s| s.gateway.revision == 3))
        .await
        .unwrap();
    fake.edge.lock().revoked = vec![1; 16];
    write(4);
    xds_state.wait_for(edge_is_at(4)).await.unwrap();
    assert!(begun.elapsed() <= COALESCE * 3, "{:?}", begun.elapsed());
    assert_eq!(handle.status().borrow().covers, 4);
}

#[tokio::test(start_paused = true)]
async fn what_only_closes_reaches_edges_late_and_what_is_taken_back_by_then_never() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    fake.has_no_limit.store(true, Ordering::SeqCst);
    let mut xds_state = handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    // The first server over one protocol, and the second: hidden (0) or shown (1).
    let (hidden, shown, second_hidden) = (0b010, 0b011, 0b1010);
    let write = |revision: u64, exceptions: &[u32]| {
        let exposure = OrgExposure { org: "acme".into(), exceptions: exceptions.to_vec() };
        fake.edge.lock().exposure = vec![exposure];
        fake.revision.store(revision, Ordering::SeqCst);
        handle.changed();
    };
    let published = || handle.xds_state().borrow().snapshot.clone().unwrap();
    write(1, &[shown]);
    xds_state.wait_for(edge_is_at(1)).await.unwrap();

    for revision in (2..20).step_by(2) {
        write(revision, &[hidden]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let waiting = published();
        assert_eq!((waiting.revision, waiting.edge.revision), (revision - 1, 1));
        assert_eq!((waiting.gateway.revision, waiting.gateways_at()), (revision, revision));
        assert_eq!(handle.status().borrow().covers, revision - 1, "edges do not have it");
        write(revision + 1, &[shown]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(published().edge.revision, 1, "they have it already");
        assert_eq!((published().revision, handle.status().borrow().covers), (revision + 1, revision + 1));
    }

    let begun = Instant::now();
    write(20, &[hidden]);
    handle.wait_until_sent(20).await;
    assert!(begun.elapsed() <= COALESCE * 2, "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_secs(1)).await;
    write(21, &[hidden, second_hidden]);
    xds_state.wait_for(edge_is_at(21)).await.unwrap();
    let (elapsed, latest) = (begun.elapsed(), MAX_EDGE_COALESCE + POLL + COALESCE * 2);
    assert!((MAX_EDGE_COALESCE..=latest).contains(&elapsed), "{elapsed:?}");
    handle.status().wait_for(|standing| standing.covers == 21).await.unwrap();

    let begun = Instant::now();
    write(22, &[hidden]);
    xds_state.wait_for(edge_is_at(22)).await.unwrap();
    assert!(begun.elapsed() <= COALESCE * 2, "what opens: {:?}", begun.elapsed());
}

/// A subscriber of another control plane may have what was taken back here.
#[tokio::test(start_paused = true)]
async fn what_was_taken_back_is_published_at_a_later_revision_where_an_edge_has_it_from_elsewhere() {
    let running = start();
    let Running { fake, handle, .. } = &running;
    fake.has_no_limit.store(true, Ordering::SeqCst);
    let mut xds_state = handle.xds_state();
    revision_of(&mut xds_state, 0).await;
    fake.revision.store(3, Ordering::SeqCst);
    handle.changed();
    handle.status().wait_for(|standing| standing.covers == 3).await.unwrap();
    assert_eq!(xds_state.borrow().snapshot.as_ref().unwrap().edge.revision, 0);
    handle.seen_revisions().record(Kind::Edge, 2);
    xds_state.wait_for(edge_is_at(3)).await.unwrap();
}
