//! What a tunnel still has to send to its gateway: a bounded queue that is also the response stream.
//!
//! Keeps true: at most `MAX_FRAMES` frames and `MAX_BYTES` bytes wait, besides the few frames that end a
//! tunnel; a gateway that went away is noticed.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use asp_proto::supervisor::PppServerFrame;
use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::Status;

use crate::ppp::{MAX_FRAME, frame_size};

pub const MAX_FRAMES: usize = 256;
/// Room for four of the largest messages.
pub const MAX_BYTES: usize = 4 * MAX_FRAME;

/// The sending side.
#[derive(Clone, Debug)]
pub struct Outbox {
    tunnel_id: Arc<str>,
    queue: Arc<Queue>,
}

/// The response stream.
#[derive(Debug)]
pub struct Frames(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// A frame left the queue, or the reader went away.
    room: Notify,
    /// The reader went away.
    gone: Notify,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<PppServerFrame>,
    bytes: usize,
    sent_bytes: u64,
    /// After the frames: the end, or an error.
    end: Option<Result<(), Status>>,
    reader_gone: bool,
    waker: Option<Waker>,
}

/// The frame found no room in time, or nobody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

pub fn outbox(tunnel_id: &str) -> (Outbox, Frames) {
    let queue = Arc::new(Queue::default());
    (Outbox { tunnel_id: tunnel_id.into(), queue: Arc::clone(&queue) }, Frames(queue))
}

impl Outbox {
    pub fn tunnel_id(&self) -> &str {
        &self.tunnel_id
    }

    /// Queues a frame, waiting for room at most `patience`.
    pub async fn send(&self, frame: PppServerFrame, patience: Duration) -> Result<(), NoRoom> {
        let Some(frame) = self.offer(frame)? else { return Ok(()) };
        let mut frame = frame;
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let room = self.queue.room.notified();
            match self.offer(frame)? {
                None => return Ok(()),
                Some(back) => frame = back,
            }
            tokio::time::timeout_at(deadline, room).await.map_err(|_| NoRoom)?;
        }
    }

    /// Queues a frame if there is room now.
    pub fn offer_now(&self, frame: PppServerFrame) {
        // Err: nobody reads.
        let _ = self.offer(frame);
    }

    /// Queues one of the frames that end a tunnel, room or not.
    pub fn send_last(&self, frame: PppServerFrame) {
        let mut state = self.queue.state.lock();
        if state.end.is_none() && !state.reader_gone {
            state.push(frame);
        }
    }

    /// Ends the stream after what is queued.
    pub fn close(&self, end: Result<(), Status>) {
        let mut state = self.queue.state.lock();
        if state.end.is_none() {
            state.end = Some(end);
        }
        state.wake();
    }

    /// Ends when the gateway does not read any more.
    pub async fn reader_gone(&self) {
        loop {
            let gone = self.queue.gone.notified();
            if self.queue.state.lock().reader_gone {
                return;
            }
            gone.await;
        }
    }

    /// Payload bytes that were queued so far.
    pub fn sent_bytes(&self) -> u64 {
        self.queue.state.lock().sent_bytes
    }

    /// Queues the frame, or gives it back when there is no room.
    fn offer(&self, frame: PppServerFrame) -> Result<Option<PppServerFrame>, NoRoom> {
        let mut state = self.queue.state.lock();
        if state.reader_gone || state.end.is_some() {
            return Err(NoRoom);
        }
        if state.frames.len() >= MAX_FRAMES || state.bytes + frame_size(&frame) > MAX_BYTES {
            return Ok(Some(frame));
        }
        state.push(frame);
        Ok(None)
    }
}

impl State {
    fn push(&mut self, frame: PppServerFrame) {
        let size = frame_size(&frame);
        self.bytes += size;
        self.sent_bytes += size as u64;
        self.frames.push_back(frame);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Stream for Frames {
    type Item = Result<PppServerFrame, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.state.lock();
        if let Some(frame) = state.frames.pop_front() {
            state.bytes -= frame_size(&frame);
            drop(state);
            self.0.room.notify_one();
            return Poll::Ready(Some(Ok(frame)));
        }
        match state.end.as_mut() {
            Some(end) => Poll::Ready(std::mem::replace(end, Ok(())).err().map(Err)),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.0.state.lock().reader_gone = true;
        self.0.gone.notify_waiters();
        self.0.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::supervisor::tunnel_event::Type;
    use futures::StreamExt;

    use super::*;
    use crate::ppp::event_frame;

    fn frame(text: &str) -> PppServerFrame {
        event_frame("t", Type::TunnelReady, text, None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_outbox_waits_for_room_and_then_gives_up() {
        let (outbox, mut frames) = outbox("t");
        for _ in 0..MAX_FRAMES {
            outbox.send(frame("x"), Duration::ZERO).await.unwrap();
        }
        assert_eq!(outbox.send(frame("y"), Duration::from_secs(1)).await, Err(NoRoom));
        let sender = outbox.clone();
        let waiting = tokio::spawn(async move { sender.send(frame("y"), Duration::from_secs(1)).await });
        tokio::task::yield_now().await;
        frames.next().await.unwrap().unwrap();
        assert_eq!(waiting.await.unwrap(), Ok(()));
        outbox.send_last(frame("last"));
        outbox.close(Err(Status::aborted("end")));
        assert_eq!(outbox.send(frame("late"), Duration::ZERO).await, Err(NoRoom));
        for _ in 0..=MAX_FRAMES {
            frames.next().await.unwrap().unwrap();
        }
        assert_eq!(frames.next().await.unwrap().unwrap_err().code(), tonic::Code::Aborted);
        assert!(frames.next().await.is_none());
    }

    #[tokio::test]
    async fn large_frames_are_bounded_by_bytes() {
        let (outbox, _frames) = outbox("t");
        let large = "x".repeat(MAX_FRAME - 100);
        for _ in 0..4 {
            outbox.send(frame(&large), Duration::ZERO).await.unwrap();
        }
        assert_eq!(outbox.send(frame(&large), Duration::ZERO).await, Err(NoRoom));
    }

    #[tokio::test]
    async fn a_reader_that_goes_is_noticed() {
        let (outbox, frames) = outbox("t");
        let watching = outbox.clone();
        let gone = tokio::spawn(async move { watching.reader_gone().await });
        tokio::task::yield_now().await;
        drop(frames);
        gone.await.unwrap();
        assert_eq!(outbox.send(frame("x"), Duration::ZERO).await, Err(NoRoom));
    }
}
