use super::*;

const POOL: &str = "gateway";

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn served(set: &watch::Receiver<Arc<EndpointSet>>) -> Vec<u16> {
    set.borrow().clusters.get(POOL).into_iter().flatten().map(SocketAddr::port).collect()
}

async fn pass(endpoints: &Arc<Endpoints>, time: Duration) {
    tokio::time::advance(time).await;
    endpoints.sweep();
}

#[tokio::test(start_paused = true)]
async fn a_lost_stream_alone_withdraws_nobody_and_changes_nothing() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    let first = endpoints.join(POOL.into(), address(1));
    let second = endpoints.join(POOL.into(), address(1));
    let version = set.borrow().version;
    drop(first);
    drop(second);
    pass(&endpoints, LEASE * 12).await;
    assert_eq!(served(&set), [1], "the only one is lost: that may be this control plane's own fault");
    let again = endpoints.join(POOL.into(), address(1));
    assert_eq!(set.borrow().version, version, "Envoy is told nothing of all this");
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_lost_while_another_one_is_heard_goes_after_its_lease() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    let lost = endpoints.join(POOL.into(), address(1));
    let heard = endpoints.join(POOL.into(), address(2));
    let elsewhere = endpoints.join("heavy".into(), address(3));
    drop(lost);
    drop(elsewhere);
    pass(&endpoints, LEASE - Duration::from_millis(1)).await;
    assert_eq!(served(&set), [1, 2]);
    pass(&endpoints, Duration::from_millis(1)).await;
    assert_eq!(served(&set), [2]);
    assert_eq!(set.borrow().clusters["heavy"].len(), 1, "nobody of that cluster is heard");
    drop(heard);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_answer_drains_while_no_more_than_half_of_its_cluster_are_behind() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    let first = endpoints.join(POOL.into(), address(1));
    let second = endpoints.join(POOL.into(), address(2));
    first.set_behind(true);
    assert_eq!(served(&set), [2]);
    assert!(set.borrow().draining[POOL].contains(&address(1)));
    second.set_behind(true);
    assert_eq!(served(&set), [1, 2], "both are: requests go to somebody");
    let third = endpoints.join(POOL.into(), address(3));
    assert_eq!(served(&set), [1, 2, 3], "the one that has answered does not get all requests");
    assert!(set.borrow().draining.is_empty());
    second.set_behind(false);
    assert_eq!(served(&set), [2, 3]);
    let again = endpoints.join(POOL.into(), address(1));
    assert_eq!(served(&set), [1, 2, 3], "it has come back");
    drop((first, second, third, again));
}

#[tokio::test(start_paused = true)]
async fn one_is_behind_on_its_newest_stream_alone_and_as_long_as_there_is_that_stream() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    let other = endpoints.join(POOL.into(), address(2));
    let old = endpoints.join(POOL.into(), address(1));
    let new = endpoints.join(POOL.into(), address(1));
    old.set_behind(true);
    assert_eq!(served(&set), [1, 2], "the old stream is broken, which was not noticed yet");
    new.set_behind(true);
    assert_eq!(served(&set), [2]);
    old.set_behind(false);
    drop(old);
    assert_eq!(served(&set), [2], "it owes no less on the new one");
    drop(new);
    assert_eq!(served(&set), [1, 2], "it may be current elsewhere");
    assert!(set.borrow().draining.is_empty());
    drop(other);
}

#[tokio::test]
async fn one_that_has_lost_its_stream_is_withdrawn_by_its_word_and_nobody_who_came_after_it() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    endpoints.leave_disconnected((POOL.into(), address(1)));
    assert_eq!(set.borrow().version, 0, "nobody knows it");
    drop(endpoints.join(POOL.into(), address(1)));
    assert_eq!(served(&set), [1], "lost");
    endpoints.leave_disconnected((POOL.into(), address(1)));
    assert!(served(&set).is_empty());
    let _next = endpoints.join(POOL.into(), address(1));
    endpoints.leave_disconnected((POOL.into(), address(1)));
    assert_eq!(served(&set), [1], "another process is heard at its address");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_ends_is_withdrawn_at_once_and_shown_as_draining_for_a_while() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    let old = endpoints.join(POOL.into(), address(1));
    endpoints.join(POOL.into(), address(1)).leave();
    assert!(served(&set).is_empty(), "whatever other streams there are to it, and though it is the last one");
    assert!(set.borrow().draining[POOL].contains(&address(1)));
    drop(old);
    pass(&endpoints, DRAINING).await;
    assert!(set.borrow().draining.is_empty());
    endpoints.join(POOL.into(), address(1)).leave();
    let restarted = endpoints.join(POOL.into(), address(1));
    assert_eq!(served(&set), [1], "one that starts again is back");
    assert!(set.borrow().draining.is_empty());
    drop(restarted);
}

#[tokio::test(start_paused = true)]
async fn a_late_leave_of_a_process_leaves_its_successor_at_the_same_address() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    let former = endpoints.join(POOL.into(), address(1));
    let successor = endpoints.join(POOL.into(), address(1));
    former.leave();
    pass(&endpoints, DRAINING).await;
    assert_eq!(served(&set), [1]);
    successor.leave();
    assert!(served(&set).is_empty(), "its own leave counts");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_before_the_leave_that_breaks_late_is_no_loss_of_who_came_after() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    let stale = endpoints.join(POOL.into(), address(1));
    endpoints.join(POOL.into(), address(1)).leave();
    let restarted = endpoints.join(POOL.into(), address(1));
    let other = endpoints.join(POOL.into(), address(2));
    drop(stale);
    pass(&endpoints, LEASE).await;
    assert_eq!(served(&set), [1, 2], "it is heard all the time");
    drop(restarted);
    pass(&endpoints, LEASE).await;
    assert_eq!(served(&set), [2]);
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn addresses_without_end_displace_those_that_were_lost_first() {
    let endpoints = Endpoints::new();
    let set = endpoints.subscribe();
    let heard = endpoints.join(POOL.into(), address(1));
    for number in 0..MAX_ENDPOINTS + 10 {
        drop(endpoints.join(POOL.into(), address(2 + u16::try_from(number).unwrap())));
    }
    let served = served(&set);
    assert_eq!(served.len(), MAX_ENDPOINTS);
    assert!(served.contains(&1) && !served.contains(&2));
    drop(heard);
}
