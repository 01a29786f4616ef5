//! Which gateways are alive, and in which Envoy cluster: what EDS serves.
//!
//! A gateway counts from the moment it has acknowledged a snapshot until its stream ends; with several
//! streams to one address (a reconnect that overlaps) until the last of them ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Addresses by cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSet {
    /// Rises with every change; 0 before the first gateway.
    pub version: u64,
    /// When the first gateway came.
    pub since: Option<Instant>,
    pub clusters: BTreeMap<String, BTreeSet<SocketAddr>>,
}

type Key = (String, SocketAddr);

/// The live gateways of this control plane.
pub struct Endpoints {
    /// Streams per gateway. Bounded by the bound on subscribers.
    streams: Mutex<BTreeMap<Key, usize>>,
    set: watch::Sender<Arc<EndpointSet>>,
}

impl Endpoints {
    pub fn new() -> Arc<Endpoints> {
        Arc::new(Endpoints { streams: Mutex::default(), set: watch::Sender::default() })
    }

    pub fn subscribe(&self) -> watch::Receiver<Arc<EndpointSet>> {
        self.set.subscribe()
    }

    /// Counts a gateway as alive until the returned guard is dropped.
    pub fn join(self: &Arc<Self>, cluster: String, address: SocketAddr) -> Alive {
        let key = (cluster, address);
        let mut streams = self.streams.lock();
        let count = streams.entry(key.clone()).or_default();
        *count += 1;
        if *count == 1 {
            self.publish(&streams);
        }
        Alive { endpoints: Arc::clone(self), key }
    }

    fn publish(&self, streams: &BTreeMap<Key, usize>) {
        let mut clusters: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
        for (cluster, address) in streams.keys() {
            clusters.entry(cluster.clone()).or_default().insert(*address);
        }
        self.set.send_modify(|set| {
            let since = set.since.or_else(|| Some(Instant::now()));
            *set = Arc::new(EndpointSet { version: set.version + 1, since, clusters });
        });
    }
}

/// A gateway that is alive as long as this value.
pub struct Alive {
    endpoints: Arc<Endpoints>,
    key: Key,
}

impl Drop for Alive {
    fn drop(&mut self) {
        let mut streams = self.endpoints.streams.lock();
        let Some(count) = streams.get_mut(&self.key) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            streams.remove(&self.key);
            self.endpoints.publish(&streams);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_served_until_its_last_stream_ends() {
        let endpoints = Endpoints::new();
        let set = endpoints.subscribe();
        let address: SocketAddr = "127.0.0.1:8082".parse().unwrap();
        let first = endpoints.join("gateway".into(), address);
        let version = set.borrow().version;
        let second = endpoints.join("gateway".into(), address);
        assert_eq!(set.borrow().version, version, "an overlapping reconnect changes nothing");
        drop(first);
        assert!(set.borrow().clusters["gateway"].contains(&address));
        drop(second);
        assert!(set.borrow().clusters.is_empty());
        assert!(set.borrow().version > version);
    }
}
