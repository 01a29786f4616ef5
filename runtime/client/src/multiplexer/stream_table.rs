//! The tunnels of a shared stream by name: where their frames go, and which of them are being closed.
//!
//! Keeps true: at most `MAX_LANES` tunnels; at most `WINDOW` and one message wait for each; a request without an
//! answer is forgotten after `FORGET`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_proto::supervisor::{
    AllocateWorkerResponse, CloseTunnelResponse, PppServerFrame, TunnelCost, ppp_server_frame::Payload,
    tunnel_event,
};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::{Code, Status};

use super::api_name;
use crate::admission::{self, Account, EndedTunnel};

/// Bytes that a runtime sends for one tunnel before they must be acknowledged as read (supervisor.proto).
pub(super) const WINDOW: usize = 2 << 20;
/// Minimum number of bytes that a frame counts in the window.
const LEAST: usize = 4096;
/// Maximum size of a message (plugin.proto); one may exceed the window.
pub const MAX_MESSAGE: usize = 4 << 20;
/// Frames of a window, the answer before them and the stream's end.
const MAX_WAITING: usize = WINDOW / LEAST + 8;
/// Maximum number of tunnels; the limit of a runtime.
const MAX_LANES: usize = 10_000;
const FORGET: Duration = Duration::from_secs(5);
/// Reason for closing a tunnel whose call ended before there was an answer.
pub(super) const ABANDONED: &str = "abandoned";

/// Event of a tunnel.
#[derive(Debug)]
pub enum StreamEvent {
    /// The answer to the request for a place.
    Allocated(AllocateWorkerResponse),
    Payload(Payload),
    /// The last frame; the tunnel's cost has been recorded.
    Last(Payload),
    /// The stream ended, well or with a fault.
    End(Option<Status>),
}

#[derive(Default)]
pub(super) struct StreamTable(Mutex<State>);

#[derive(Default)]
struct State {
    entries: HashMap<String, Entry>,
    ended: bool,
    /// Fault of the stream, unless it ended well.
    fault: Option<Status>,
}

enum Entry {
    Open {
        sender: mpsc::Sender<StreamEvent>,
        unread: Arc<AtomicUsize>,
        account: Account,
    },
    /// Its call ended before there was an answer.
    Abandoned {
        since: Instant,
        account: Account,
    },
    /// CloseTunnel was requested.
    Closing {
        tunnel: Box<EndedTunnel>,
        since: Instant,
        /// Held until the tunnel is closed.
        _closing: TaskTrackerToken,
    },
}

impl Entry {
    /// Creates the entry of a tunnel whose close answer, with its cost, is still expected.
    fn closing(tunnel: EndedTunnel) -> Entry {
        let _closing = tunnel.account.tasks.token();
        Entry::Closing { tunnel: Box::new(tunnel), since: Instant::now(), _closing }
    }
}

/// Returns the number of bytes that a frame counts in its tunnel's window.
pub(super) fn cost(payload: &Payload) -> usize {
    match payload {
        Payload::Ppp(any) => any.value.len().max(LEAST),
        Payload::Event(event) => event.encoded_len().max(LEAST),
    }
}

/// Whether the runtime reports that there is no such tunnel.
fn is_unknown(payload: &Payload) -> bool {
    let Payload::Event(event) = payload else { return false };
    event.r#type() == tunnel_event::Type::TunnelClosed
        && admission::fault(event).is_some_and(|status| status.code() == Code::NotFound)
}

type StreamParts = (mpsc::Receiver<StreamEvent>, Arc<AtomicUsize>);

impl StreamTable {
    pub(super) fn add(&self, name: &str, account: Account) -> Result<StreamParts, Status> {
        let mut state = self.0.lock();
        if state.ended {
            let fault = state.fault.clone();
            return Err(fault.unwrap_or_else(|| Status::unavailable("the stream ended")));
        }
        if state.entries.len() >= MAX_LANES {
            return Err(Status::resource_exhausted("the stream has too many tunnels"));
        }
        let (sender, incoming) = mpsc::channel(MAX_WAITING);
        let unread = Arc::new(AtomicUsize::new(0));
        state.entries.insert(name.to_owned(), Entry::Open { sender, unread: unread.clone(), account });
        Ok((incoming, unread))
    }

    /// Passes a frame to its tunnel. Returns the id of a tunnel to close: a place that no call waits for any more.
    pub(super) fn pass(&self, frame: PppServerFrame) -> Option<String> {
        let PppServerFrame { tunnel_id, payload, closed } = frame;
        let payload = payload?;
        if let Some(cost) = closed {
            self.last(&tunnel_id, payload, &cost);
            return None;
        }
        let api = match &payload {
            Payload::Ppp(any) => api_name(any),
            Payload::Event(_) => None,
        };
        match (api, &payload) {
            (Some("AllocateWorkerResponse"), Payload::Ppp(any)) => {
                let answer = AllocateWorkerResponse::decode(any.value.as_slice());
                return self.answered(&tunnel_id, answer.unwrap_or_default());
            }
            (Some("CloseTunnelResponse"), Payload::Ppp(any)) => {
                let answer = CloseTunnelResponse::decode(any.value.as_slice()).unwrap_or_default();
                let closed = self.0.lock().entries.remove(&tunnel_id);
                if let Some(Entry::Closing { tunnel, .. }) = closed {
                    tunnel.closed(answer.stats.as_ref());
                }
            }
            _ => self.deliver(&tunnel_id, payload),
        }
        None
    }

    /// Handles an answer to a request for a place. Further frames use the handle.
    fn answered(&self, name: &str, answer: AllocateWorkerResponse) -> Option<String> {
        let handle = answer.handle.as_ref().map(|handle| handle.tunnel_id.clone());
        let handle = handle.filter(|handle| !handle.is_empty());
        let mut state = self.0.lock();
        match (state.entries.remove(name), handle) {
            (Some(Entry::Open { sender, unread, account }), handle) => {
                // Err: the call has just ended; its stream leaves under the old name.
                let gone = sender.try_send(StreamEvent::Allocated(answer)).is_err();
                match handle {
                    Some(tunnel_id) if gone => return Some(state.unwanted(tunnel_id, account)),
                    Some(handle) => {
                        drop(state.entries.insert(handle, Entry::Open { sender, unread, account }))
                    }
                    None => {}
                }
                None
            }
            (Some(Entry::Abandoned { account, .. }), Some(tunnel_id)) => {
                Some(state.unwanted(tunnel_id, account))
            }
            _ => None,
        }
    }

    /// Handles the last frame of a tunnel whose work was accepted with the request. Its cost is recorded here,
    /// whether its call still listens or not.
    fn last(&self, name: &str, payload: Payload, cost: &TunnelCost) {
        let entry = self.0.lock().entries.remove(name);
        match entry {
            Some(Entry::Open { sender, account, .. }) => {
                account.used("ended", &admission::cost(cost));
                // Err: the call has ended.
                let _ = sender.try_send(StreamEvent::Last(payload));
            }
            Some(Entry::Abandoned { account, .. }) => account.used(ABANDONED, &admission::cost(cost)),
            Some(Entry::Closing { tunnel, .. }) => tunnel.used(&admission::cost(cost)),
            None => {}
        }
    }

    /// Delivers a frame. A frame of an unknown tunnel has crossed its closing and is dropped.
    fn deliver(&self, name: &str, payload: Payload) {
        let mut state = self.0.lock();
        // The tunnel's last frame has crossed the request to close it.
        if matches!(state.entries.get(name), Some(Entry::Closing { .. })) && is_unknown(&payload) {
            state.entries.remove(name);
        }
        let Some(Entry::Open { sender, unread, .. }) = state.entries.get(name) else { return };
        let waiting = unread.fetch_add(cost(&payload), Ordering::Relaxed);
        let over = waiting > WINDOW + MAX_MESSAGE;
        // Err: the call has ended, or the runtime sends more than it may. The tunnel ends.
        if over || sender.try_send(StreamEvent::Payload(payload)).is_err() {
            state.entries.remove(name);
        }
    }

    /// Marks a tunnel as closing, because its call has ended. Returns the tunnel if the stream has ended.
    pub(super) fn close(&self, tunnel: EndedTunnel) -> Result<(), EndedTunnel> {
        let mut state = self.0.lock();
        if state.ended {
            return Err(tunnel);
        }
        let name = tunnel.id.clone();
        state.entries.insert(name, Entry::closing(tunnel));
        Ok(())
    }

    /// Marks a tunnel as closing whose call ended before it took its place.
    pub(super) fn abandon(&self, handle: &str) {
        let mut state = self.0.lock();
        if let Some(Entry::Open { account, .. }) = state.entries.remove(handle) {
            state.unwanted(handle.to_owned(), account);
        }
    }

    /// Records that the tunnel is not read any more.
    pub(super) fn leave(&self, name: &str) {
        let mut state = self.0.lock();
        let Some(entry) = state.entries.get_mut(name) else { return };
        if let Entry::Open { account, .. } = entry {
            // Before the answer the stream itself assigned the name, and a place may still be granted.
            match name.starts_with('+') {
                true => *entry = Entry::Abandoned { since: Instant::now(), account: account.clone() },
                false => drop(state.entries.remove(name)),
            }
        }
    }

    /// Forgets requests that were not answered in time.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.0.lock().entries.retain(|_, entry| match entry {
            Entry::Open { .. } => true,
            Entry::Abandoned { since, .. } | Entry::Closing { since, .. } => now - *since < FORGET,
        });
    }

    /// Ends all tunnels, because the stream has ended.
    pub(super) fn end(&self, fault: Option<Status>) {
        let entries = {
            let mut state = self.0.lock();
            (state.ended, state.fault) = (true, fault);
            std::mem::take(&mut state.entries)
        };
        drop(entries);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.lock().ended
    }

    pub(super) fn ended_with(&self) -> Option<Status> {
        let state = self.0.lock();
        match state.ended {
            true => state.fault.clone(),
            false => Some(Status::resource_exhausted("the runtime sends more than it may")),
        }
    }
}

impl State {
    /// Marks a place as closing that no call waits for, and returns its id. It may have its work already: the cost is
    /// recorded all the same.
    fn unwanted(&mut self, tunnel_id: String, account: Account) -> String {
        let tunnel = EndedTunnel { id: tunnel_id.clone(), reason: ABANDONED, account };
        self.entries.insert(tunnel_id.clone(), Entry::closing(tunnel));
        tunnel_id
    }
}
