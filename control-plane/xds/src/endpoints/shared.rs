//! Exchange of connected gateways between the control planes on one store, so that each of them publishes all of them.
//!
//! Keeps true: while the store is unavailable, the last known state of the others stays; pending reports are sent once
//! it is back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asp_store::gateway_registry::{GatewayRegistry, GatewayReport, KnownGateway, Unavailable};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Endpoints, Key, LEASE, Member, RemoteState};

/// Interval of reports and reads.
const EVERY: Duration = Duration::from_secs(2);
/// Time without a connection to any control plane after which a gateway counts as lost.
const SILENT: Duration = Duration::from_secs(10);
/// Age up to which lost gateways are read: longer than their lease, for clusters without any connected gateway.
const READ: Duration = LEASE.saturating_mul(2);

impl Endpoints {
    /// Reports and reads until `stop`; run it as a task.
    pub async fn share(self: Arc<Self>, store: Arc<dyn GatewayRegistry>, stop: CancellationToken) {
        let mut is_away = false;
        let work = async {
            loop {
                match self.exchange(store.as_ref(), is_away).await {
                    Ok(()) if is_away => {
                        tracing::info!("gateways of other control planes can be read again");
                        is_away = false;
                    }
                    Err(error) if !is_away => {
                        tracing::warn!(
                            %error,
                            "gateways of other control planes cannot be read; the last known ones stay. Check the \
                             database"
                        );
                        is_away = true;
                    }
                    Ok(()) | Err(_) => {}
                }
                tokio::select! {
                    () = self.news.notified() => {}
                    () = tokio::time::sleep(EVERY) => {}
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    /// Reports the gateways connected to this control plane, and reads the reports of the others. `is_back`: the store
    /// was unavailable for a while.
    async fn exchange(&self, store: &dyn GatewayRegistry, is_back: bool) -> Result<(), Unavailable> {
        let left = self.members.lock().left.clone();
        for ((pool, address), at) in &left {
            store.leave(pool, &address.to_string(), at.elapsed()).await?;
        }
        self.members.lock().left.retain(|notified| !left.contains(notified));
        store.report(&self.name, &self.connected_here()).await?;
        // Taken before the read: a slow answer must not date a leave after a join that followed it.
        let now = Instant::now();
        let known = store.list_recent(READ).await?;
        let mut members = self.members.lock();
        let mut elsewhere: BTreeMap<_, _> = known.iter().filter_map(|known| read(known, now)).collect();
        if is_back {
            // The control planes that have them may not have reported yet: their lease starts again.
            let connected = members.elsewhere.iter().filter(|(_, state)| **state == RemoteState::Connected);
            for (key, _) in connected {
                let state = elsewhere.entry(key.clone()).or_insert(RemoteState::Silent(now));
                if matches!(state, RemoteState::Silent(_)) {
                    *state = RemoteState::Silent(now);
                }
            }
        }
        let others = known.iter().filter(|known| !known.follows.is_empty() && known.follows != self.name);
        members.follow_others = others.filter_map(key).collect();
        // Leaves that were announced in the meantime.
        elsewhere.extend(members.left.iter().map(|(key, at)| (key.clone(), RemoteState::Left(*at))));
        members.elsewhere = elsewhere;
        members.forget();
        self.publish(&members);
        Ok(())
    }

    fn connected_here(&self) -> Vec<GatewayReport> {
        let members = self.members.lock();
        let connected = members.known.iter().filter_map(|((pool, address), member)| match member {
            Member::Connected(_, opened) => Some(GatewayReport {
                pool: pool.clone(),
                address: address.to_string(),
                opened: opened.elapsed(),
            }),
            Member::Lost(_) | Member::Leaving(_) => None,
        });
        connected.collect()
    }
}

fn key(known: &KnownGateway) -> Option<Key> {
    Some((known.pool.clone(), known.address.parse().ok()?))
}

fn read(known: &KnownGateway, now: Instant) -> Option<(Key, RemoteState)> {
    let ago = |time: Duration| now.checked_sub(time).unwrap_or(now);
    let state = match known.left {
        Some(left) => RemoteState::Left(ago(left)),
        None if known.silent >= SILENT => RemoteState::Silent(ago(known.silent)),
        None => RemoteState::Connected,
    };
    Some((key(known)?, state))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use asp_store::gateway_registry::memory::MemoryGateways;
    use async_trait::async_trait;
    use tokio::sync::watch;

    use super::super::{DRAINING, EndpointSet};
    use super::*;

    const POOL: &str = "gateway";

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn served(set: &watch::Receiver<Arc<EndpointSet>>) -> Vec<u16> {
        set.borrow().clusters.get(POOL).into_iter().flatten().map(SocketAddr::port).collect()
    }

    struct Control {
        endpoints: Arc<Endpoints>,
        set: watch::Receiver<Arc<EndpointSet>>,
    }

    impl Control {
        fn new() -> Control {
            let endpoints = Endpoints::new();
            Control { set: endpoints.subscribe(), endpoints }
        }
    }

    async fn pass(controls: &[&Control], store: &MemoryGateways, time: Duration) {
        tokio::time::advance(time).await;
        // Twice, so that the first hears what the last has said.
        for control in controls.iter().chain(controls) {
            control.endpoints.exchange(store, false).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_tells_envoy_of_those_whom_the_other_hears_until_they_leave() {
        let store = MemoryGateways::default();
        let (one, other) = (Control::new(), Control::new());
        let both = [&one, &other];
        let first = one.endpoints.join(POOL.into(), address(1));
        let second = other.endpoints.join(POOL.into(), address(2));
        pass(&both, &store, EVERY).await;
        assert_eq!((served(&one.set), served(&other.set)), (vec![1, 2], vec![1, 2]));
        second.leave();
        assert_eq!(served(&other.set), [1], "at once where it said so");
        pass(&both, &store, EVERY).await;
        assert_eq!(served(&one.set), [1]);
        assert!(one.set.borrow().draining[POOL].contains(&address(2)));
        pass(&both, &store, DRAINING).await;
        assert!(one.set.borrow().draining.is_empty());
        let again = one.endpoints.join(POOL.into(), address(2));
        pass(&both, &store, EVERY).await;
        assert_eq!((served(&one.set), served(&other.set)), (vec![1, 2], vec![1, 2]), "it is back, elsewhere");
        drop((first, again));
    }

    #[tokio::test(start_paused = true)]
    async fn a_control_plane_that_is_lost_takes_no_gateway_along() {
        let store = MemoryGateways::default();
        let (one, other) = (Control::new(), Control::new());
        let first = one.endpoints.join(POOL.into(), address(1));
        let second = other.endpoints.join(POOL.into(), address(2));
        pass(&[&one, &other], &store, EVERY).await;
        // `other` is gone, and its gateway comes to `one` late.
        pass(&[&one], &store, SILENT * 3).await;
        assert_eq!(served(&one.set), [1, 2], "Envoy looks at its health itself");
        let moved = one.endpoints.join(POOL.into(), address(2));
        pass(&[&one], &store, LEASE * 2).await;
        assert_eq!(served(&one.set), [1, 2]);
        drop(moved);
        pass(&[&one], &store, SILENT).await;
        assert_eq!(served(&one.set), [1, 2]);
        pass(&[&one], &store, LEASE).await;
        assert_eq!(served(&one.set), [1], "lost for its lease while another one is heard");
        drop((first, second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leave_that_is_told_late_withdraws_nobody_who_is_back() {
        let store = MemoryGateways::default();
        let (one, other) = (Control::new(), Control::new());
        let gateway = one.endpoints.join(POOL.into(), address(1));
        pass(&[&one, &other], &store, EVERY).await;
        gateway.leave();
        // The store is away meanwhile.
        tokio::time::advance(EVERY).await;
        let again = other.endpoints.join(POOL.into(), address(1));
        pass(&[&other, &one], &store, EVERY).await;
        assert_eq!((served(&one.set), served(&other.set)), (vec![1], vec![1]));
        again.leave();
        let here = other.endpoints.join(POOL.into(), address(1));
        assert_eq!(served(&other.set), [1], "at once");
        pass(&[&other, &one], &store, EVERY).await;
        assert_eq!((served(&one.set), served(&other.set)), (vec![1], vec![1]));
        drop(here);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_moved_is_not_drained_where_it_answers_no_more() {
        let store = MemoryGateways::default();
        let (one, other) = (Control::new(), Control::new());
        let both = [&one, &other];
        let second = one.endpoints.join(POOL.into(), address(2));
        let left = one.endpoints.join(POOL.into(), address(1));
        pass(&both, &store, EVERY).await;
        left.set_behind(true);
        assert_eq!(served(&one.set), [2]);
        let moved = other.endpoints.join(POOL.into(), address(1));
        pass(&both, &store, EVERY).await;
        assert_eq!((served(&one.set), served(&other.set)), (vec![1, 2], vec![1, 2]));
        let back = one.endpoints.join(POOL.into(), address(1));
        back.set_behind(true);
        assert_eq!(served(&one.set), [2], "at once");
        pass(&both, &store, EVERY).await;
        assert_eq!(served(&one.set), [2], "the other stream is older");
        drop((second, left, moved, back));
    }

    /// A store whose answer to what is known is made before something happens here, and comes after it.
    struct Slow<'a, F> {
        store: &'a MemoryGateways,
        meanwhile: F,
    }

    #[async_trait]
    impl<F: Fn() + Send + Sync> GatewayRegistry for Slow<'_, F> {
        async fn report(&self, control: &str, reports: &[GatewayReport]) -> Result<(), Unavailable> {
            self.store.report(control, reports).await
        }

        async fn leave(&self, pool: &str, address: &str, ago: Duration) -> Result<(), Unavailable> {
            self.store.leave(pool, address, ago).await
        }

        async fn list_recent(&self, within: Duration) -> Result<Vec<KnownGateway>, Unavailable> {
            let known = self.store.list_recent(within).await;
            (self.meanwhile)();
            known
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_joins_while_others_say_that_the_one_before_it_has_left_is_served() {
        let store = MemoryGateways::default();
        let (one, other) = (Control::new(), Control::new());
        let former = other.endpoints.join(POOL.into(), address(1));
        pass(&[&one, &other], &store, EVERY).await;
        former.leave();
        pass(&[&other, &one], &store, EVERY).await;
        assert!(one.set.borrow().draining[POOL].contains(&address(1)));
        let joined = parking_lot::Mutex::new(None);
        let meanwhile = || *joined.lock() = Some(one.endpoints.join(POOL.into(), address(1)));
        one.endpoints.exchange(&Slow { store: &store, meanwhile }, false).await.unwrap();
        assert_eq!(served(&one.set), [1]);
        assert!(one.set.borrow().draining.is_empty());
        pass(&[&one, &other], &store, EVERY).await;
        assert_eq!((served(&one.set), served(&other.set)), (vec![1], vec![1]));
        drop(joined);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_the_store_longer_than_a_lease_takes_nobody_away() {
        let store = MemoryGateways::default();
        let (one, other) = (Control::new(), Control::new());
        let first = one.endpoints.join(POOL.into(), address(1));
        let second = other.endpoints.join(POOL.into(), address(2));
        pass(&[&one, &other], &store, EVERY).await;
        tokio::time::advance(LEASE * 2).await;
        one.endpoints.exchange(&store, true).await.unwrap();
        assert_eq!(served(&one.set), [1, 2]);
        pass(&[&one, &other], &store, EVERY).await;
        assert_eq!(served(&one.set), [1, 2]);
        drop((first, second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_control_plane_that_starts_knows_all_at_once_and_an_old_stream_brings_nobody_back() {
        let store = MemoryGateways::default();
        let (one, other) = (Control::new(), Control::new());
        let stale = one.endpoints.join(POOL.into(), address(1));
        pass(&[&one], &store, EVERY).await;
        let moved = other.endpoints.join(POOL.into(), address(1));
        pass(&[&one, &other], &store, EVERY).await;
        moved.leave();
        pass(&[&other, &one], &store, EVERY).await;
        assert!(served(&one.set).is_empty(), "the stream here is its own leftover");
        let new = Control::new();
        let alive = other.endpoints.join(POOL.into(), address(3));
        pass(&[&other, &new], &store, EVERY).await;
        assert_eq!(served(&new.set), [3]);
        drop((stale, alive));
    }
}
