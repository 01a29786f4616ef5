//! Handles of tunnels: unguessable, each usable once, by the peer that requested it, for a short time.
//!
//! Keeps true: unknown, expired, used and foreign handles get the same answer; at most `MAX_TUNNELS` exist.

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

/// Time within which a handle must be used by ProxyPpp.
pub const TTL: Duration = Duration::from_secs(10);
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
    state: State,
}

#[derive(Debug)]
enum State {
    Offered {
        offer: HandleOffer,
        expires: Instant,
    },
    Attached,
    /// The outbox may contain frames that the gateway has not read.
    Ended {
        forget: Instant,
        outbox: Outbox,
    },
}

/// The allocation behind a handle.
#[derive(Debug)]
pub struct HandleOffer {
    pub ticket: Ticket,
    pub soft_deadline: Option<Instant>,
    pub lease: Option<Arc<CredentialLease>>,
}

/// A tunnel whose handle was used by ProxyPpp.
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

/// Error: the peer has no such handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHandle;

/// Error: there are too many tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTunnels;

impl Handles {
    /// Creates a handle for `peer`.
    pub fn offer(
        &self,
        peer: Peer,
        mcp_request_id: String,
        offer: HandleOffer,
    ) -> Result<String, TooManyTunnels> {
        let id = random_hex::<16>();
        let state = State::Offered { offer, expires: Instant::now() + TTL };
        let entry = HandleEntry {
            peer,
            mcp_request_id,
            cancel: CancellationToken::new(),
            stats: watch::Sender::new(None),
            state,
        };
        let mut entries = self.0.lock();
        if entries.len() >= MAX_TUNNELS {
            // Dropping the entry's ticket releases its slot, which must happen outside the lock.
            drop(entries);
            drop(entry);
            return Err(TooManyTunnels);
        }
        entries.insert(id.clone(), entry);
        Ok(id)
    }

    /// Uses a handle; it cannot be used again.
    pub fn attach(&self, peer: &Peer, id: &str) -> Result<AttachedTunnel, NoHandle> {
        let mut entries = self.0.lock();
        let entry = entries.get_mut(id).filter(|entry| entry.peer == *peer).ok_or(NoHandle)?;
        match std::mem::replace(&mut entry.state, State::Attached) {
            State::Offered { offer, expires } if Instant::now() < expires => {
                let HandleOffer { ticket, soft_deadline, lease } = offer;
                Ok(AttachedTunnel { ticket, soft_deadline, lease, cancel: entry.cancel.clone() })
            }
            other => {
                entry.state = other;
                Err(NoHandle)
            }
        }
    }

    /// Records that a tunnel has ended.
    pub fn record_end(&self, id: &str, stats: TunnelStats, outbox: Outbox) {
        if let Some(entry) = self.0.lock().get_mut(id) {
            entry.state = State::Ended { forget: Instant::now() + KEEP_STATS, outbox };
            entry.stats.send_replace(Some(stats));
        }
    }

    /// Records that a tunnel has ended and that its gateway has received the cost.
    pub fn record_close(&self, id: &str, stats: TunnelStats) {
        let entry = self.0.lock().remove(id);
        if let Some(entry) = entry {
            entry.stats.send_replace(Some(stats));
        }
    }

    /// Closes a tunnel: removes one that was not used, cancels a running one. The returned channel delivers the
    /// statistics when the tunnel has ended; `Ok(None)`: it never ran.
    pub fn close(
        &self,
        peer: &Peer,
        id: &str,
    ) -> Result<Option<watch::Receiver<Option<TunnelStats>>>, NoHandle> {
        let mut entries = self.0.lock();
        let entry = entries.get(id).filter(|entry| entry.peer == *peer).ok_or(NoHandle)?;
        match &entry.state {
            State::Offered { .. } => {
                let offered = entries.remove(id);
                drop(entries);
                drop(offered);
                Ok(None)
            }
            State::Attached => {
                entry.cancel.cancel();
                Ok(Some(entry.stats.subscribe()))
            }
            State::Ended { outbox, .. } => {
                let stats = entry.stats.subscribe();
                let outbox = outbox.clone();
                entries.remove(id);
                drop(entries);
                outbox.discard();
                Ok(Some(stats))
            }
        }
    }

    /// Returns the handles that `peer` requested for an MCP request.
    pub fn of_request(&self, peer: &Peer, mcp_request_id: &str) -> Vec<String> {
        let entries = self.0.lock();
        let own = |entry: &HandleEntry| entry.peer == *peer && entry.mcp_request_id == mcp_request_id;
        entries.iter().filter(|(_, entry)| own(entry)).map(|(id, _)| id.clone()).collect()
    }

    /// Removes expired entries.
    pub fn sweep(&self) {
        let now = Instant::now();
        let expired = |entry: &HandleEntry| match &entry.state {
            State::Offered { expires, .. } => *expires <= now,
            State::Attached => false,
            State::Ended { forget, .. } => *forget <= now,
        };
        let mut entries = self.0.lock();
        let gone: Vec<HandleEntry> =
            entries.extract_if(|_, entry| expired(entry)).map(|(_, entry)| entry).collect();
        drop(entries);
        for entry in &gone {
            if let State::Ended { outbox, .. } = &entry.state {
                outbox.discard();
            }
        }
        // Their tickets release their slots here, outside the lock.
        drop(gone);
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
