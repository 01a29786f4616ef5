//! The single ProxyPpp stream that all tunnels to a runtime share (supervisor.proto, "A shared stream").
//!
//! Owns: the assignment of frames to tunnels, and the closing of tunnels whose calls have ended. Refuses:
//! interpretation; a tunnel reads its frames. Keeps true: an unread tunnel blocks no other, and no more than its
//! window is buffered for it; a place that is granted to an ended call is closed at once; when the stream ends, every
//! tunnel ends.

mod stream_table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use asp_proto::supervisor::{AllocateWorkerResponse, CloseTunnelRequest, PppClientFrame};
use parking_lot::Mutex;
use prost::Name;
use prost_types::Any;
use tokio::sync::mpsc;
use tokio::sync::mpsc::WeakSender;
use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::admission::{Account, EndedTunnel};

/// A client of the Runtime Supervisor API.
pub type Client = RuntimeSupervisorClient<Channel>;

use stream_table::{ABANDONED, StreamTable, WINDOW, cost};
pub use stream_table::{MAX_MESSAGE, StreamEvent};

/// Frames of all tunnels that wait for the connection. Each may be large, so the queue is short.
const OUTGOING: usize = 64;
/// Timeout of opening a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval for sending closings that no frame took along, and for forgetting those without an answer.
const SWEEP: Duration = Duration::from_millis(250);
/// Maximum number of closings that wait for a frame to go along with.
const MAX_WAITING: usize = OUTGOING / 2;
/// The same maximum including calls that were abandoned before they were answered: as many as a stream has tunnels.
const MAX_ABANDONED: usize = 10_000;

/// A shared stream.
#[derive(Clone)]
pub struct Multiplexer {
    outgoing: mpsc::Sender<PppClientFrame>,
    streams: Arc<StreamTable>,
    /// Requests to close tunnels: nothing waits for them, so they are sent with the next frame or at the next sweep.
    closing: Arc<Mutex<Vec<PppClientFrame>>>,
    next: Arc<AtomicU64>,
}

impl Multiplexer {
    /// Opens a stream and reads it in a separate task. `heard` is called with how it ended.
    pub async fn open(
        mut client: Client,
        heard: impl FnOnce(Option<&Status>) + Send + 'static,
    ) -> Result<Multiplexer, Status> {
        let (outgoing, frames) = mpsc::channel(OUTGOING);
        // Announces to the runtime that many tunnels follow. The channel is new and has room.
        let _ = outgoing.try_send(PppClientFrame { keepalive: true, ..PppClientFrame::default() });
        let opened = tokio::time::timeout(OPEN_TIMEOUT, client.proxy_ppp(ReceiverStream::new(frames))).await;
        let opened = opened.unwrap_or_else(|_| Err(Status::unavailable("no stream in time")))?;
        let multiplexer =
            Multiplexer { outgoing, streams: Arc::default(), closing: Arc::default(), next: Arc::default() };
        let streams = multiplexer.streams.clone();
        let closing = multiplexer.closing.clone();
        let back = multiplexer.outgoing.downgrade();
        tokio::spawn(async move {
            let back = Back { outgoing: back, closing };
            let end = read(opened.into_inner(), &streams, &back).await;
            heard(end.as_ref());
            streams.end(end);
        });
        Ok(multiplexer)
    }

    /// Whether both are the same stream.
    pub fn is_same(&self, other: &Multiplexer) -> bool {
        Arc::ptr_eq(&self.streams, &other.streams)
    }

    /// Whether the stream accepts no more tunnels.
    pub fn is_over(&self) -> bool {
        self.streams.has_ended()
    }

    /// Opens a stream for a new tunnel, under a name of this stream.
    pub fn stream(&self, account: Account) -> Result<TunnelStream, Status> {
        let name = format!("+{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (incoming, unread) = self.streams.add(&name, account)?;
        Ok(TunnelStream { multiplexer: self.clone(), name, incoming, unread, untold: 0 })
    }

    /// Requests the end of a tunnel; its statistics are recorded when they arrive. Returns the tunnel if the stream
    /// cannot take the request now.
    pub fn close(&self, tunnel: EndedTunnel) -> Result<(), EndedTunnel> {
        let frame = close_frame(&tunnel.id, tunnel.reason);
        let mut waiting = self.closing.lock();
        if waiting.len() >= MAX_WAITING && !flush(&mut waiting, &self.outgoing) {
            return Err(tunnel);
        }
        self.streams.close(tunnel)?;
        waiting.push(frame);
        Ok(())
    }

    /// Sends a frame, after the closings that waited to go along with it. `Err`: the stream has ended.
    async fn send(&self, frame: PppClientFrame) -> Result<(), SendError<PppClientFrame>> {
        flush(&mut self.closing.lock(), &self.outgoing);
        self.outgoing.send(frame).await
    }
}

/// Reads the stream to its end; `None` if it ended well.
async fn read(
    mut incoming: Streaming<asp_proto::supervisor::PppServerFrame>,
    streams: &StreamTable,
    back: &Back,
) -> Option<Status> {
    let mut sweep = interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let frame = tokio::select! {
            frame = incoming.message() => frame,
            _ = sweep.tick() => {
                streams.sweep();
                back.flush();
                continue;
            }
        };
        match frame {
            Ok(Some(frame)) => {
                if let Some(tunnel_id) = streams.pass(frame) {
                    back.send(close_frame(&tunnel_id, ABANDONED));
                }
            }
            Ok(None) => return None,
            Err(status) => return Some(status),
        }
    }
}

/// Sending half for the reading task: it does not keep the stream open.
struct Back {
    outgoing: WeakSender<PppClientFrame>,
    closing: Arc<Mutex<Vec<PppClientFrame>>>,
}

impl Back {
    fn send(&self, frame: PppClientFrame) {
        if let Some(outgoing) = self.outgoing.upgrade() {
            send_or_keep(frame, &outgoing, &self.closing);
        }
    }

    fn flush(&self) {
        if let Some(outgoing) = self.outgoing.upgrade() {
            flush(&mut self.closing.lock(), &outgoing);
        }
    }
}

/// Sends waiting frames as far as there is room; returns whether all were sent.
fn flush(waiting: &mut Vec<PppClientFrame>, outgoing: &mpsc::Sender<PppClientFrame>) -> bool {
    let fits = waiting.len().min(outgoing.capacity());
    if fits > 0
        && let Ok(room) = outgoing.try_reserve_many(fits)
    {
        room.zip(waiting.drain(..fits)).for_each(|(room, frame)| room.send(frame));
    }
    waiting.is_empty()
}

/// Sends a request to close a tunnel that nothing waits for; without room it is sent later. It must not be lost: the
/// tunnel's work may be running and would continue to its deadline.
fn send_or_keep(
    frame: PppClientFrame,
    outgoing: &mpsc::Sender<PppClientFrame>,
    closing: &Mutex<Vec<PppClientFrame>>,
) {
    if let Err(TrySendError::Full(frame)) = outgoing.try_send(frame) {
        let mut waiting = closing.lock();
        if waiting.len() < MAX_ABANDONED {
            waiting.push(frame);
        }
    }
}

fn close_frame(tunnel_id: &str, reason: &str) -> PppClientFrame {
    let request = CloseTunnelRequest { tunnel_id: tunnel_id.to_owned(), reason: reason.to_owned() };
    PppClientFrame::carrying(tunnel_id, &request)
}

/// Returns the name of a message of the API itself.
fn api_name(any: &Any) -> Option<&str> {
    any.type_url.rsplit('/').next()?.strip_prefix("asp.runtime.supervisor.v1.")
}

/// One tunnel's part of the shared stream. Reading is acknowledged to the runtime in steps of half a window, so that it
/// continues to send.
pub struct TunnelStream {
    multiplexer: Multiplexer,
    /// Name of the tunnel: assigned by this stream until the tunnel has its handle.
    name: String,
    incoming: mpsc::Receiver<StreamEvent>,
    /// Window bytes that have arrived and were not taken.
    unread: Arc<AtomicUsize>,
    /// Window bytes that were taken and not acknowledged to the runtime.
    untold: usize,
}

impl TunnelStream {
    pub fn multiplexer(&self) -> &Multiplexer {
        &self.multiplexer
    }

    /// Sets the tunnel's handle, which its frames use from now on.
    pub fn rename(&mut self, handle: &str) {
        handle.clone_into(&mut self.name);
    }

    /// Sends a message for the tunnel. `Err`: it is too large, or the stream has ended.
    pub async fn send(&self, ppp: Any) -> Result<(), Status> {
        // On the stream, a message that is too large would end all tunnels.
        if ppp.value.len() > MAX_MESSAGE {
            return Err(Status::out_of_range("the message is too large for a plugin"));
        }
        self.send_frame(Some(ppp)).await
    }

    /// Returns a sender for the tunnel. Call it once the tunnel has its handle.
    pub fn sender(&self) -> FrameSender {
        FrameSender { multiplexer: self.multiplexer.clone(), tunnel_id: self.name.clone() }
    }

    async fn send_frame(&self, ppp: Option<Any>) -> Result<(), Status> {
        let keepalive = ppp.is_none();
        let frame = PppClientFrame { tunnel_id: self.name.clone(), ppp, keepalive };
        let sent = self.multiplexer.send(frame).await;
        sent.map_err(|_| Status::unavailable("the stream takes no more frames"))
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> StreamEvent {
        // A message may be longer than several steps: the runtime sends nothing more until all of them are acknowledged.
        while self.untold >= WINDOW / 2 {
            if let Err(status) = self.send_frame(None).await {
                return StreamEvent::End(Some(status));
            }
            self.untold -= WINDOW / 2;
        }
        let Some(arrived) = self.incoming.recv().await else {
            return StreamEvent::End(self.multiplexer.streams.ended_with());
        };
        if let StreamEvent::Payload(payload) = &arrived {
            let cost = cost(payload);
            self.unread.fetch_sub(cost, Ordering::Relaxed);
            self.untold += cost;
        }
        arrived
    }
}

/// Sends messages of the runtime's API for a tunnel that has its handle, independently of its stream.
pub struct FrameSender {
    multiplexer: Multiplexer,
    tunnel_id: String,
}

impl FrameSender {
    /// Sends a message. `Err`: the stream has ended.
    pub async fn send<M: Name>(&self, message: &M) -> Result<(), Status> {
        let sent = self.multiplexer.send(PppClientFrame::carrying(&self.tunnel_id, message)).await;
        sent.map_err(|_| Status::unavailable("the stream takes no more frames"))
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        // An answer for this stream is unwanted from now on, including one that has already arrived.
        self.incoming.close();
        while let Ok(arrived) = self.incoming.try_recv() {
            if let StreamEvent::Allocated(AllocateWorkerResponse { handle: Some(handle), .. }) = arrived {
                self.name = handle.tunnel_id;
                self.multiplexer.streams.abandon(&self.name);
                let frame = close_frame(&self.name, ABANDONED);
                send_or_keep(frame, &self.multiplexer.outgoing, &self.multiplexer.closing);
            }
        }
        self.multiplexer.streams.leave(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn more_closings_than_the_stream_has_room_for_go_one_after_the_other_and_none_is_lost() {
        let (outgoing, mut frames) = mpsc::channel(4);
        let closing = Mutex::default();
        for number in 0..20 {
            send_or_keep(close_frame(&number.to_string(), "abandoned"), &outgoing, &closing);
        }
        let mut sent = Vec::new();
        while sent.len() < 20 {
            while let Ok(frame) = frames.try_recv() {
                sent.push(frame.tunnel_id);
            }
            let all = flush(&mut closing.lock(), &outgoing);
            assert!(all || outgoing.capacity() == 0, "as many as there is room for");
        }
        assert_eq!(sent, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
        assert!(closing.lock().is_empty());
    }
}
