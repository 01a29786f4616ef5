//! Shared state of one process's clients: the ids of their requests, and their other work, which is handshakes,
//! closing requests and listening.
//!
//! Keeps true: each service has a quota of its own, so that one which hangs delays no call to another; all work ends
//! before the process does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asp_platform::quota::{Counts, QuotaPermit};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Maximum number of concurrent handshakes with one service, and of closing requests to it; a service that gets none
/// finds out by itself.
const OF_A_SERVICE: usize = 512;
/// Maximum number of sessions that are listened to: each uses a connection for as long as it lasts, and a process has
/// about a thousand unless it was given more.
const LISTENERS: usize = 256;

/// The tasks of all clients of one process.
pub struct ClientTasks {
    pub closings: TaskTracker,
    pub listeners: Arc<Semaphore>,
    handshakes: Arc<Mutex<Counts<String>>>,
    leaving: Arc<Mutex<Counts<String>>>,
    next_id: AtomicU64,
}

impl Default for ClientTasks {
    fn default() -> ClientTasks {
        ClientTasks {
            closings: TaskTracker::new(),
            listeners: Arc::new(Semaphore::new(LISTENERS)),
            handshakes: Arc::default(),
            leaving: Arc::default(),
            next_id: AtomicU64::new(1),
        }
    }
}

/// One permit of a service's quota, until this is dropped.
pub type ServicePermit = QuotaPermit<String>;

impl ClientTasks {
    /// Returns an id that no other request of this process has.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a permit for a handshake; `None` if the service has none left.
    pub fn handshake(&self, url: &Url) -> Option<ServicePermit> {
        permit(&self.handshakes, url)
    }

    pub fn closing(&self, url: &Url) -> Option<ServicePermit> {
        permit(&self.leaving, url)
    }

    /// Returns once all closing requests are sent.
    pub async fn drained(&self) {
        self.closings.close();
        self.closings.wait().await;
        self.closings.reopen();
    }
}

fn permit(counts: &Arc<Mutex<Counts<String>>>, url: &Url) -> Option<ServicePermit> {
    QuotaPermit::take(counts, url.origin().ascii_serialization(), OF_A_SERVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_takes_no_place_of_another_one_and_gives_its_own_back() {
        let tasks = ClientTasks::default();
        let url = |text: &str| Url::parse(text).unwrap();
        let slow = url("http://slow.example/mcp");
        let mut held: Vec<ServicePermit> =
            (0..OF_A_SERVICE).map(|_| tasks.handshake(&slow).unwrap()).collect();
        assert!(tasks.handshake(&url("http://slow.example/other")).is_none());
        assert!(tasks.closing(&slow).is_some() && tasks.handshake(&url("http://b.example/")).is_some());
        held.pop();
        assert!(tasks.handshake(&slow).is_some());
        held.clear();
        assert!(tasks.handshakes.lock().is_empty());
    }
}
