//! The tunnels: unguessable handles, each good once, for the peer that asked, for a short time.
//!
//! Keeps true: unknown, expired, used and foreign handles are answered alike; at most `MAX_TUNNELS` exist.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::secret::random_hex;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::egress::Lent;
use crate::pool::Ticket;
use crate::ppp::outbox::Outbox;
use crate::tunnel::peer::Peer;

/// How long a handle waits for its ProxyPpp.
pub const TTL: Duration = Duration::from_secs(10);
/// How long the statistics of an ended tunnel wait for their CloseTunnel.
const KEEP_STATS: Duration = Duration::from_secs(60);
const MAX_TUNNELS: usize = 20_000;

/// What a tunnel cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelStats {
    pub cpu_ms: u64,
    pub rss_max: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub duration: Duration,
}

#[derive(Debug, Default)]
pub struct Handles(Mutex<HashMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    peer: Peer,
    mcp_request_id: String,
    cancel: CancellationToken,
    stats: watch::Sender<Option<TunnelStats>>,
    state: State,
}

#[derive(Debug)]
enum State {
    Offered {
        offer: Offer,
        expires: Instant,
    },
    Attached,
    /// The outbox may hold what the gateway has not read.
    Ended {
        forget: Instant,
        outbox: Outbox,
    },
}

/// What a handle stands for.
#[derive(Debug)]
pub struct Offer {
    pub ticket: Ticket,
    pub soft_deadline: Option<Instant>,
    pub lent: Option<Arc<Lent>>,
}

/// A tunnel that its ProxyPpp has taken up.
#[derive(Debug)]
pub struct Attached {
    pub ticket: Ticket,
    /// The end of a call that names none itself.
    pub soft_deadline: Option<Instant>,
    /// By what its worker's proxy proves requests to one origin.
    pub lent: Option<Arc<Lent>>,
    /// Somebody closed or cancelled the tunnel.
    pub cancel: CancellationToken,
}

/// There is no such handle for this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHandle;

/// There are too many tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Handles {
    /// A new handle for `peer`.
    pub fn offer(&self, peer: Peer, mcp_request_id: String, offer: Offer) -> Result<String, TooMany> {
        let id = random_hex::<16>();
        let state = State::Offered { offer, expires: Instant::now() + TTL };
        let entry = Entry {
            peer,
            mcp_request_id,
            cancel: CancellationToken::new(),
            stats: watch::Sender::new(None),
            state,
        };
        let mut entries = self.0.lock();
        if entries.len() >= MAX_TUNNELS {
            // The entry's ticket gives its slot back when it is dropped, after the lock.
            drop(entries);
            drop(entry);
            return Err(TooMany);
        }
        entries.insert(id.clone(), entry);
        Ok(id)
    }

    /// Takes a handle up; it cannot be taken up again.
    pub fn attach(&self, peer: &Peer, id: &str) -> Result<Attached, NoHandle> {
        let mut entries = self.0.lock();
        let entry = entries.get_mut(id).filter(|entry| entry.peer == *peer).ok_or(NoHandle)?;
        match std::mem::replace(&mut entry.state, State::Attached) {
            State::Offered { offer, expires } if Instant::now() < expires => {
                let Offer { ticket, soft_deadline, lent } = offer;
                Ok(Attached { ticket, soft_deadline, lent, cancel: entry.cancel.clone() })
            }
            other => {
                entry.state = other;
                Err(NoHandle)
            }
        }
    }

    /// Notes that a tunnel has ended.
    pub fn ended(&self, id: &str, stats: TunnelStats, outbox: Outbox) {
        if let Some(entry) = self.0.lock().get_mut(id) {
            entry.state = State::Ended { forget: Instant::now() + KEEP_STATS, outbox };
            entry.stats.send_replace(Some(stats));
        }
    }

    /// Notes that a tunnel has ended and told its gateway what it cost.
    pub fn closed(&self, id: &str, stats: TunnelStats) {
        let entry = self.0.lock().remove(id);
        if let Some(entry) = entry {
            entry.stats.send_replace(Some(stats));
        }
    }

    /// Closes a tunnel: one that was not taken up is gone, a running one is cancelled. The statistics come
    /// when it has ended; `Ok(None)`: it never ran.
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

    /// The handles that `peer` asked for in the name of an MCP request.
    pub fn of_request(&self, peer: &Peer, mcp_request_id: &str) -> Vec<String> {
        let entries = self.0.lock();
        let own = |entry: &Entry| entry.peer == *peer && entry.mcp_request_id == mcp_request_id;
        entries.iter().filter(|(_, entry)| own(entry)).map(|(id, _)| id.clone()).collect()
    }

    /// Forgets what has expired.
    pub fn sweep(&self) {
        let now = Instant::now();
        let expired = |entry: &Entry| match &entry.state {
            State::Offered { expires, .. } => *expires <= now,
            State::Attached => false,
            State::Ended { forget, .. } => *forget <= now,
        };
        let mut entries = self.0.lock();
        let gone: Vec<Entry> =
            entries.extract_if(|_, entry| expired(entry)).map(|(_, entry)| entry).collect();
        drop(entries);
        for entry in &gone {
            if let State::Ended { outbox, .. } = &entry.state {
                outbox.discard();
            }
        }
        // Their tickets give their slots back now, without the lock.
        drop(gone);
    }

    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
