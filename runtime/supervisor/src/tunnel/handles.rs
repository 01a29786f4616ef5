//! Handles of tunnels: unguessable, each usable by the peer that requested it.
//!
//! Keeps true: unknown, ended and foreign handles get the same answer; at most `MAX_TUNNELS` exist.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::secret::random_hex;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::egress::CredentialLease;
use crate::pool::Ticket;
use crate::ppp::outbox::Outbox;
use crate::tunnel::peer::Peer;

/// Time for which the statistics of an ended tunnel are kept for its CloseTunnel.
const KEEP_STATS: Duration = Duration::from_secs(60);
const MAX_TUNNELS: usize = 20_000;

/// Resource use of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelStats {
    pub cpu_ms: u64,
    pub rss_max: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub duration: Duration,
}

#[derive(Debug, Default)]
pub struct Handles(Mutex<HashMap<String, HandleEntry>>);

#[derive(Debug)]
struct HandleEntry {
    peer: Peer,
    mcp_request_id: String,
    cancel: CancellationToken,
    stats: watch::Sender<Option<TunnelStats>>,
    /// `None` while the tunnel runs.
    end: Option<TunnelEnd>,
}

#[derive(Debug)]
struct TunnelEnd {
    forget: Instant,
    /// May contain frames that the gateway has not read.
    outbox: Outbox,
}

/// Slot, limits and credential of a running tunnel.
#[derive(Debug)]
pub struct AttachedTunnel {
    pub ticket: Ticket,
    /// Deadline of a call that has none itself.
    pub soft_deadline: Option<Instant>,
    /// Credential that the worker's proxy adds to requests to one origin.
    pub lease: Option<Arc<CredentialLease>>,
    /// Cancelled when the tunnel is closed or cancelled.
    pub cancel: CancellationToken,
}

impl Handles {
    /// Creates the handle of a tunnel of `peer`; `None`: there are too many tunnels. The returned token is cancelled when
    /// the tunnel is closed.
    pub fn open(&self, peer: Peer, mcp_request_id: String) -> Option<(String, CancellationToken)> {
        let id = random_hex::<16>();
        let cancel = CancellationToken::new();
        let stats = watch::Sender::new(None);
        let entry = HandleEntry { peer, mcp_request_id, cancel: cancel.clone(), stats, end: None };
        let mut entries = self.0.lock();
        if entries.len() >= MAX_TUNNELS {
            return None;
        }
        entries.insert(id.clone(), entry);
        Some((id, cancel))
    }

    /// Records that a tunnel has ended.
    pub fn record_end(&self, id: &str, stats: TunnelStats, outbox: Outbox) {
        if let Some(entry) = self.0.lock().get_mut(id) {
            entry.end = Some(TunnelEnd { forget: Instant::now() + KEEP_STATS, outbox });
            entry.stats.send_replace(Some(stats));
        }
    }

    /// Removes the handle of a tunnel that has ended and whose gateway needs no CloseTunnel.
    pub fn record_close(&self, id: &str, stats: TunnelStats) {
        let entry = self.0.lock().remove(id);
        if let Some(entry) = entry {
            entry.stats.send_replace(Some(stats));
        }
    }

    /// Closes a tunnel; cancels it if it runs. The returned channel delivers the statistics when it has ended. `None`: the
    /// peer has no such handle.
    pub fn close(&self, peer: &Peer, id: &str) -> Option<watch::Receiver<Option<TunnelStats>>> {
        let mut entries = self.0.lock();
        let entry = entries.get(id).filter(|entry| entry.peer == *peer)?;
        let stats = entry.stats.subscribe();
        let Some(TunnelEnd { outbox, .. }) = &entry.end else {
            entry.cancel.cancel();
            return Some(stats);
        };
        let outbox = outbox.clone();
        entries.remove(id);
        drop(entries);
        outbox.discard();
        Some(stats)
    }

    /// Returns the handles that `peer` requested for an MCP request.
    pub fn of_request(&self, peer: &Peer, mcp_request_id: &str) -> Vec<String> {
        let entries = self.0.lock();
        let own = |entry: &HandleEntry| entry.peer == *peer && entry.mcp_request_id == mcp_request_id;
        entries.iter().filter(|(_, entry)| own(entry)).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets tunnels that ended long ago.
    pub fn sweep(&self) {
        let now = Instant::now();
        let gone: Vec<TunnelEnd> = {
            let mut entries = self.0.lock();
            let gone = entries.extract_if(|_, entry| entry.end.as_ref().is_some_and(|end| end.forget <= now));
            gone.filter_map(|(_, entry)| entry.end).collect()
        };
        gone.iter().for_each(|end| end.outbox.discard());
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
