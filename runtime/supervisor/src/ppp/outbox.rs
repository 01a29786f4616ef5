//! The outbox of a tunnel: a bounded queue of frames for its gateway.
//!
//! Keeps true: at most `MAX_FRAMES` frames and `MAX_QUEUED_BYTES` bytes wait, plus the few frames that end a tunnel,
//! and all tunnels together stay within a [`OutboxBudget`]; a gateway that disconnects is noticed; a tunnel has at most
//! `WINDOW` bytes sent and unread, so that a gateway that does not read one tunnel still reads the others; a tunnel that
//! was given up still reports its end. Of a tunnel that began with its work, the frames of the beginning are held back: a
//! call that is answered within `HOLD` and has sent nothing before takes one frame, every other call sends all frames, in
//! order; the cost is reported once, by the last frame.

pub mod budget;
pub mod multiplexer;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asp_proto::supervisor::ppp_server_frame::Payload;
use asp_proto::supervisor::{PppServerFrame, TunnelCost};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use crate::ppp::outbox::budget::OutboxBudget;
use crate::ppp::outbox::multiplexer::Multiplexer;
use crate::ppp::{MAX_QUEUED_BYTES, frame_size};

pub const MAX_FRAMES: usize = 256;
/// Maximum number of bytes of one tunnel that are sent and not yet read (supervisor.proto, `PppClientFrame.keepalive`).
pub const WINDOW: usize = 2 << 20;
/// Minimum number of bytes that a frame counts in the window.
const LEAST: usize = 4096;
/// Time for which the beginning is held back. A gateway that cancels in this time waits as long.
const HOLD: Duration = Duration::from_millis(25);

/// The sending side.
#[derive(Clone, Debug)]
pub struct Outbox {
    tunnel_id: Arc<str>,
    queue: Arc<FrameQueue>,
}

#[derive(Debug)]
pub struct FrameQueue {
    state: Mutex<State>,
    /// Notified when a frame leaves the queue, or the reader disconnects.
    room: Notify,
    /// Notified when the reader disconnects or is given up.
    gone: Notify,
    multiplexer: Arc<Multiplexer>,
    /// Names of the tunnel: the gateway's own, and the handle once there is one.
    names: (String, OnceLock<String>),
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<PppServerFrame>,
    bytes: usize,
    sent_bytes: u64,
    /// Whether the queued frames are the last ones.
    ended: bool,
    reader_gone: bool,
    /// Whether the reader is connected but too slow; queued frames may still be read.
    given_up: bool,
    /// Whether the multiplexer has this queue on its list.
    listed: bool,
    /// Bytes sent and not yet read.
    unread: usize,
    brief: Option<Brief>,
}

/// Additional state of a tunnel that began with its work (supervisor.proto, `AllocateWorkerRequest.work`).
#[derive(Debug)]
struct Brief {
    /// Frames of the beginning; `None` once they were sent, or were made unnecessary by the end.
    opening: Option<HeldFrames>,
    /// A last message, sent when the tunnel ends, which is at once.
    last: Option<PppServerFrame>,
}

#[derive(Debug)]
struct HeldFrames {
    /// The answer to the request, under the gateway's own name.
    answer: PppServerFrame,
    rest: Vec<PppServerFrame>,
}

/// Result of the multiplexer's request for a frame.
#[derive(Debug)]
pub enum NextFrame {
    /// A frame, and whether more can be taken.
    Frame(PppServerFrame, bool),
    /// No frame now; the queue lists itself when there is one.
    Nothing,
    /// The queue has ended.
    Ended,
}

/// Reason why a frame was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The gateway read nothing in time.
    NoRoom,
    /// The gateway does not read any more, or the tunnel has ended.
    Gone,
}

impl Outbox {
    pub fn new(tunnel_id: &str, queue: Arc<FrameQueue>) -> Outbox {
        Outbox { tunnel_id: tunnel_id.into(), queue }
    }

    pub fn tunnel_id(&self) -> &str {
        &self.tunnel_id
    }

    /// Queues a frame. Waits for capacity as long as the gateway reads, and fails when it reads nothing for `patience`.
    pub async fn send(&self, mut frame: PppServerFrame, patience: Duration) -> Result<(), SendError> {
        loop {
            let room = self.queue.room.notified();
            match self.offer(frame, true)? {
                None => return Ok(()),
                Some(back) => frame = back,
            }
            tokio::time::timeout(patience, room).await.map_err(|_| SendError::NoRoom)?;
        }
    }

    /// Queues a frame if there is capacity, and returns it if not; drops it when nobody reads.
    pub fn try_send(&self, frame: PppServerFrame) -> Result<(), PppServerFrame> {
        match self.offer(frame, true) {
            Ok(Some(frame)) => Err(frame),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Queues a frame if there is capacity; otherwise drops it.
    pub fn offer_or_drop(&self, frame: PppServerFrame) {
        // Err: nobody reads.
        let _ = self.offer(frame, true);
    }

    /// Queues one of the frames that end a tunnel, regardless of capacity.
    pub fn send_last(&self, frame: PppServerFrame) {
        let mut state = self.queue.state.lock();
        if !state.ended
            && !state.reader_gone
            && let Some(frame) = state.keep_last(frame)
        {
            self.queue.push(&mut state, frame);
            self.queue.wake(&mut state, true);
        }
    }

    /// Queues a frame that reports the tunnel's beginning and is not urgent: it goes with the next one, or soon.
    pub fn send_with_next(&self, frame: PppServerFrame) {
        let frame = self.queue.state.lock().hold(frame);
        // Err: nobody reads. There is capacity: it is one of the first frames.
        frame.into_iter().for_each(|frame| drop(self.offer(frame, false)));
    }

    /// Ends the tunnel's frames after the queued ones.
    pub fn close(&self) {
        let mut state = self.queue.state.lock();
        state.ended = true;
        self.queue.wake(&mut state, true);
    }

    /// Gives up a tunnel that its gateway does not read: unsent frames are replaced by `why`, and only the tunnel's end
    /// follows.
    pub fn give_up(&self, why: PppServerFrame) {
        let mut state = self.queue.state.lock();
        if !state.ended && !state.reader_gone {
            state.given_up = true;
            self.queue.clear(&mut state);
            self.queue.push(&mut state, why);
            self.queue.wake(&mut state, true);
        }
        drop(state);
        self.queue.gone.notify_waiters();
    }

    /// Drops the queued frames, because the gateway has closed the tunnel.
    pub fn discard(&self) {
        let mut state = self.queue.state.lock();
        self.queue.clear(&mut state);
        self.queue.wake(&mut state, false);
    }

    /// Whether frames could remain here for a gateway that left without reading.
    pub fn may_stay(&self) -> bool {
        let state = self.queue.state.lock();
        !state.frames.is_empty() && state.unread.saturating_add(state.bytes) > WINDOW
    }

    /// Waits until the gateway no longer reads.
    pub async fn reader_gone(&self) {
        let is_gone = || {
            let state = self.queue.state.lock();
            state.reader_gone || state.given_up
        };
        wait_until(&self.queue.gone, is_gone).await;
    }

    /// Whether the gateway is connected and does not read.
    pub fn was_given_up(&self) -> bool {
        self.queue.state.lock().given_up
    }

    /// Returns the number of payload bytes queued so far.
    pub fn sent_bytes(&self) -> u64 {
        self.queue.state.lock().sent_bytes
    }

    /// Marks the tunnel as begun with its work; `answer` confirms this.
    pub fn begin_with_work(&self, answer: PppServerFrame) {
        let opening = Some(HeldFrames { answer, rest: Vec::new() });
        self.queue.state.lock().brief = Some(Brief { opening, last: None });
    }

    pub fn is_brief(&self) -> bool {
        self.queue.state.lock().brief.is_some()
    }

    /// Sends the frames of the tunnel's beginning when the end has not come in time. Never returns.
    pub async fn open_late(&self) {
        tokio::time::sleep(HOLD).await;
        {
            let mut state = self.queue.state.lock();
            self.queue.open(&mut state);
            self.queue.wake(&mut state, true);
        }
        std::future::pending().await
    }

    /// Ends the tunnel's frames with one that reports its cost: the last message, or, after a fault or without such a
    /// message, `closed`. Adds the sent bytes to the cost, and returns them.
    pub fn end_with_cost(
        &self,
        closed: PppServerFrame,
        end: &Result<(), Status>,
        mut cost: TunnelCost,
    ) -> u64 {
        let mut state = self.queue.state.lock();
        let last = state.brief.as_mut().and_then(|brief| brief.last.take());
        let mut frame = match last {
            Some(last) if end.is_ok() => last,
            Some(last) => {
                self.queue.push(&mut state, last);
                closed
            }
            None => closed,
        };
        let answered = matches!(frame.payload, Some(Payload::Ppp(_)));
        let held = state.brief.as_mut().filter(|_| answered).and_then(|brief| brief.opening.take());
        if held.is_some() {
            // The gateway does not know the handle.
            self.queue.own_name().clone_into(&mut frame.tunnel_id);
        }
        let is_open = !state.ended && !state.reader_gone;
        if is_open {
            // The frames of the beginning count too.
            self.queue.open(&mut state);
        }
        let sent = state.sent_bytes + frame_size(&frame) as u64;
        cost.bytes_out = sent;
        frame.closed = Some(cost);
        if is_open {
            self.queue.push(&mut state, frame);
            state.ended = true;
        }
        self.queue.wake(&mut state, true);
        sent
    }

    /// Queues the frame, or returns it when there is no capacity.
    fn offer(&self, frame: PppServerFrame, urgent: bool) -> Result<Option<PppServerFrame>, SendError> {
        let mut state = self.queue.state.lock();
        if state.reader_gone || state.given_up || state.ended {
            return Err(SendError::Gone);
        }
        let size = frame_size(&frame);
        // One frame always fits: a gateway that reads makes progress, whatever the other tunnels hold.
        let full = state.frames.len() >= MAX_FRAMES || state.bytes + size > MAX_QUEUED_BYTES;
        if full || (!state.frames.is_empty() && !self.queue.budget().has(size)) {
            return Ok(Some(frame));
        }
        self.queue.push(&mut state, frame);
        self.queue.wake(&mut state, urgent);
        Ok(None)
    }
}

/// Waits until `holds`, which may change whenever `changed` is notified. Cancel-safe.
pub async fn wait_until(changed: &Notify, holds: impl Fn() -> bool) {
    loop {
        let change = changed.notified();
        if holds() {
            return;
        }
        change.await;
    }
}

impl FrameQueue {
    /// Creates the queue of a tunnel on `multiplexer`, named `name` there.
    pub fn on(multiplexer: Arc<Multiplexer>, name: &str) -> FrameQueue {
        let names = (name.to_owned(), OnceLock::new());
        FrameQueue { state: Mutex::default(), room: Notify::new(), gone: Notify::new(), multiplexer, names }
    }

    fn budget(&self) -> &OutboxBudget {
        self.multiplexer.budget()
    }

    /// Queues a frame, after the held-back frames of the tunnel's beginning.
    fn push(&self, state: &mut State, frame: PppServerFrame) {
        self.open(state);
        self.enqueue(state, frame);
    }

    /// Sends the held-back frames of the tunnel's beginning, if there are any.
    fn open(&self, state: &mut State) {
        let opening = state.brief.as_mut().and_then(|brief| brief.opening.take());
        if let Some(HeldFrames { answer, rest }) = opening {
            // The answer is not limited by the window. Strays go first.
            self.multiplexer.send_streamless(answer, false);
            rest.into_iter().for_each(|frame| self.enqueue(state, frame));
        }
    }

    fn enqueue(&self, state: &mut State, frame: PppServerFrame) {
        let size = frame_size(&frame);
        self.budget().take(size);
        state.bytes += size;
        state.sent_bytes += size as u64;
        state.frames.push_back(frame);
    }

    fn pop(&self, state: &mut State) -> Option<PppServerFrame> {
        let frame = state.frames.pop_front()?;
        let size = frame_size(&frame);
        self.budget().give_back(size);
        state.bytes -= size;
        Some(frame)
    }

    fn clear(&self, state: &mut State) {
        self.budget().give_back(state.bytes);
        (state.frames, state.bytes) = (VecDeque::new(), 0);
    }

    /// Gives the tunnel its handle.
    pub fn set_handle(&self, handle: &str) {
        // Err: it has one already.
        let _ = self.names.1.set(handle.to_owned());
    }

    /// Returns the gateway's own name for the tunnel.
    pub fn own_name(&self) -> &str {
        &self.names.0
    }

    /// Returns the names of the tunnel.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.names.0).chain(self.names.1.get()).map(String::as_str)
    }

    /// Notifies the multiplexer, whose lock is taken within this one.
    fn wake(self: &Arc<Self>, state: &mut State, urgent: bool) {
        if state.has_news() {
            let new = !std::mem::replace(&mut state.listed, true);
            self.multiplexer.list(new.then(|| Arc::clone(self)), urgent);
        }
    }

    /// Returns the next frame. Only for the multiplexer, which has the queue on its list.
    pub fn take(&self) -> NextFrame {
        let mut state = self.state.lock();
        state.listed = false;
        if !state.has_news() {
            return NextFrame::Nothing;
        }
        let Some(frame) = self.pop(&mut state) else { return NextFrame::Ended };
        state.unread += frame_size(&frame).max(LEAST);
        state.listed = state.has_news();
        let again = state.listed;
        drop(state);
        self.room.notify_one();
        NextFrame::Frame(frame, again)
    }

    /// Records that the gateway has read another half of the window.
    pub fn extend_window(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.unread = state.unread.saturating_sub(WINDOW / 2);
        self.wake(&mut state, true);
    }

    /// Records that nobody reads any more.
    pub fn abandon(&self) {
        let mut state = self.state.lock();
        state.reader_gone = true;
        self.clear(&mut state);
        drop(state);
        self.gone.notify_waiters();
        self.room.notify_waiters();
    }
}

impl Drop for FrameQueue {
    fn drop(&mut self) {
        let bytes = self.state.get_mut().bytes;
        self.budget().give_back(bytes);
    }
}

impl State {
    /// Holds back a frame of the tunnel's beginning; returns it if the beginning has been sent.
    fn hold(&mut self, frame: PppServerFrame) -> Option<PppServerFrame> {
        match self.brief.as_mut().and_then(|brief| brief.opening.as_mut()) {
            Some(opening) => {
                opening.rest.push(frame);
                None
            }
            None => Some(frame),
        }
    }

    /// Keeps a last message for the tunnel's end, which follows at once; returns the frame to send now.
    fn keep_last(&mut self, frame: PppServerFrame) -> Option<PppServerFrame> {
        match &mut self.brief {
            Some(brief) => brief.last.replace(frame),
            None => Some(frame),
        }
    }

    /// Whether the multiplexer gets something when it asks.
    fn has_news(&self) -> bool {
        match self.frames.is_empty() {
            true => self.ended,
            // The frames of a tunnel's end are not limited by the window.
            false => self.given_up || self.unread < WINDOW,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
