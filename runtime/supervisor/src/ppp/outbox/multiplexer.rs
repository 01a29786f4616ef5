//! The multiplexer: one response stream that many tunnels of a gateway share, with the table of their streams and the
//! order in which they send.
//!
//! Keeps true: tunnels with frames to send take turns frame by frame, and a tunnel that may not send now is skipped; a
//! frame that nobody waits for goes with the next urgent one, or after `LINGER`, since each write costs as much as a
//! call's own work; no frame is dropped: at most `MAX_STREAMS` tunnels wait, and while `MAX_STRAYS` answers wait,
//! nothing more is read that would need an answer; when the stream breaks, every tunnel on it is notified.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use asp_proto::supervisor::PppServerFrame;
use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::budget::OutboxBudget;
use crate::ppp::TunnelInbox;
use crate::ppp::outbox::{FrameQueue, NextFrame, wait_until};

/// Maximum number of tunnels of one connection.
const MAX_STREAMS: usize = 10_000;
/// Longest delay of frames that nobody waits for.
const LINGER: Duration = Duration::from_millis(2);
/// Maximum number of answers outside the tunnels' own frames: if a gateway does not read them, its frames are not read
/// either.
const MAX_STRAYS: usize = 10_000;

#[derive(Debug, Default)]
pub struct Multiplexer {
    state: Mutex<State>,
    /// Cancelled when the gateway no longer reads.
    gone: CancellationToken,
    /// Notified when the last stream was removed.
    emptied: Notify,
    /// Notified when there is capacity for another answer.
    room: Notify,
    budget: Arc<OutboxBudget>,
}

/// One tunnel's stream in the connection, looked up by one of its names.
#[derive(Clone, Debug)]
pub struct TunnelStream {
    pub inbox: Arc<TunnelInbox>,
    pub queue: Arc<FrameQueue>,
}

#[derive(Debug, Default)]
struct State {
    /// Streams by the tunnel's handle, and by the gateway's own name for it.
    streams: HashMap<String, TunnelStream>,
    /// The queues that have something to send.
    ready: VecDeque<Arc<FrameQueue>>,
    strays: VecDeque<PppServerFrame>,
    waker: Option<Waker>,
    /// Whether one of the frames is urgent.
    urgent: bool,
    /// End of the stream after the queued frames: success or an error.
    end: Option<Result<(), Status>>,
    gone: bool,
}

/// The response stream.
#[derive(Debug)]
pub struct MergedStream {
    multiplexer: Arc<Multiplexer>,
    /// Timer after which frames that nobody waits for are sent; `None` when there are none.
    linger: Option<Pin<Box<Sleep>>>,
}

/// Error: the connection has no capacity for the tunnel, or has one of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoStream;

/// Creates a connection whose tunnels stay within `budget`.
pub fn multiplexer(budget: &Arc<OutboxBudget>) -> (Arc<Multiplexer>, MergedStream) {
    let multiplexer = Arc::new(Multiplexer { budget: Arc::clone(budget), ..Multiplexer::default() });
    (Arc::clone(&multiplexer), MergedStream { multiplexer, linger: None })
}

impl Multiplexer {
    pub(super) fn budget(&self) -> &Arc<OutboxBudget> {
        &self.budget
    }

    /// Opens the stream of a tunnel that has no handle yet, only the gateway's own name.
    pub fn open(self: &Arc<Self>, name: &str) -> Result<TunnelStream, NoStream> {
        let queue = Arc::new(FrameQueue::on(Arc::clone(self), name));
        self.add(name, TunnelStream { inbox: Arc::default(), queue })
    }

    /// Adds the handle of a tunnel.
    pub fn name(&self, handle: &str, stream: &TunnelStream) -> Result<(), NoStream> {
        stream.queue.set_handle(handle);
        self.add(handle, stream.clone()).map(drop)
    }

    fn add(&self, name: &str, stream: TunnelStream) -> Result<TunnelStream, NoStream> {
        let mut state = self.state.lock();
        // Each tunnel may have two names.
        let full = state.streams.len() >= 2 * MAX_STREAMS;
        if full || state.gone || state.end.is_some() || state.streams.contains_key(name) {
            return Err(NoStream);
        }
        state.streams.insert(name.to_owned(), stream.clone());
        Ok(stream)
    }

    pub fn stream(&self, name: &str) -> Option<TunnelStream> {
        self.state.lock().streams.get(name).cloned()
    }

    /// Removes a stream that sends nothing more.
    pub fn forget(&self, queue: &FrameQueue) {
        let mut state = self.state.lock();
        for name in queue.names() {
            state.streams.remove(name);
        }
        let last = state.streams.is_empty();
        drop(state);
        if last {
            self.emptied.notify_waiters();
        }
    }

    /// Waits until no tunnel is left.
    pub async fn wait_until_empty(&self) {
        wait_until(&self.emptied, || self.state.lock().streams.is_empty()).await;
    }

    /// Waits until another message may be read that is answered here. Messages already read may add as many answers as
    /// there are tunnels.
    pub async fn wait_for_capacity(&self) {
        wait_until(&self.room, || self.state.lock().strays.len() < MAX_STRAYS).await;
    }

    /// Sends a frame that belongs to no stream; at once if it is `urgent`.
    pub fn send_streamless(&self, frame: PppServerFrame, urgent: bool) {
        let mut state = self.state.lock();
        if !state.gone {
            state.strays.push_back(frame);
            state.wake(urgent);
        }
    }

    /// Wakes the stream because a queue has something to send; `queue` is given if it is not on the list yet.
    pub(super) fn list(&self, queue: Option<Arc<FrameQueue>>, urgent: bool) {
        let mut state = self.state.lock();
        if !state.gone {
            state.ready.extend(queue);
            state.wake(urgent);
        }
    }

    /// Records that the gateway sends no more.
    pub fn half_close(&self) {
        let streams: Vec<TunnelStream> = self.state.lock().streams.values().cloned().collect();
        streams.iter().for_each(|stream| stream.inbox.close());
    }

    /// Ends the stream after the queued frames; no new tunnel is accepted.
    pub fn end(&self, end: Result<(), Status>) {
        let mut state = self.state.lock();
        state.end.get_or_insert(end);
        state.wake(true);
    }

    /// Waits until the gateway no longer reads.
    pub async fn wait_for_close(&self) {
        self.gone.cancelled().await;
    }

    fn abandon(&self) {
        let (streams, ready) = {
            let mut state = self.state.lock();
            state.gone = true;
            (std::mem::take(&mut state.streams), std::mem::take(&mut state.ready))
        };
        // Outside the lock: a queue's lock is taken before this one.
        for stream in streams.values() {
            stream.queue.abandon();
        }
        drop(ready);
        self.gone.cancel();
    }
}

impl State {
    fn wake(&mut self, urgent: bool) {
        self.urgent |= urgent;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl MergedStream {
    /// Whether something is to be sent now. Otherwise the task is woken when it is.
    fn is_due(&mut self, context: &mut Context<'_>) -> bool {
        let nothing = {
            let mut state = self.multiplexer.state.lock();
            let nothing = state.strays.is_empty() && state.ready.is_empty();
            if (state.urgent && !nothing) || state.end.is_some() {
                return true;
            }
            state.urgent = false;
            state.waker = Some(context.waker().clone());
            nothing
        };
        if nothing {
            return false;
        }
        let linger = self.linger.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let due = linger.as_mut().poll(context).is_ready();
        if due {
            // Frames that arrive in the meantime are sent too.
            self.linger = None;
            self.multiplexer.state.lock().urgent = true;
        }
        due
    }
}

impl Stream for MergedStream {
    type Item = Result<PppServerFrame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.is_due(context) {
            let queue = {
                let mut state = self.multiplexer.state.lock();
                if let Some(frame) = state.strays.pop_front() {
                    if state.strays.len() + 1 == MAX_STRAYS {
                        self.multiplexer.room.notify_waiters();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                match (state.ready.pop_front(), &mut state.end) {
                    (Some(queue), _) => queue,
                    (None, Some(end)) => {
                        return Poll::Ready(std::mem::replace(end, Ok(())).err().map(Err));
                    }
                    (None, None) => continue,
                }
            };
            match queue.take() {
                NextFrame::Nothing => {}
                NextFrame::Ended => self.multiplexer.forget(&queue),
                NextFrame::Frame(frame, again) => {
                    if again {
                        self.multiplexer.state.lock().ready.push_back(queue);
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for MergedStream {
    fn drop(&mut self) {
        self.multiplexer.abandon();
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::supervisor::tunnel_event::Type;
    use futures::{FutureExt, StreamExt};

    use super::*;
    use crate::ppp::event_frame;
    use crate::ppp::outbox::{Outbox, SendError, WINDOW};

    fn frame(id: &str, text: &str) -> PppServerFrame {
        event_frame(id, Type::TunnelReady, text, None)
    }

    fn stream(multiplexer: &Arc<Multiplexer>, id: &str) -> (TunnelStream, Outbox) {
        let stream = multiplexer.open(id).unwrap();
        let outbox = Outbox::new(id, Arc::clone(&stream.queue));
        (stream, outbox)
    }

    fn now(merged: &mut MergedStream) -> Option<String> {
        merged.next().now_or_never().map(|frame| frame.unwrap().unwrap().tunnel_id)
    }

    #[tokio::test]
    async fn tunnels_take_turns() {
        let (multiplexer, mut merged) = multiplexer(&Arc::default());
        let (_a, one) = stream(&multiplexer, "a");
        let (_b, two) = stream(&multiplexer, "b");
        for _ in 0..3 {
            one.offer_or_drop(frame("a", ""));
        }
        two.offer_or_drop(frame("b", ""));
        let order: Vec<_> = std::iter::from_fn(|| now(&mut merged)).collect();
        assert_eq!(order, ["a", "b", "a", "a"]);
        multiplexer.send_streamless(frame("c", ""), true);
        assert_eq!(now(&mut merged).as_deref(), Some("c"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_that_is_not_read_holds_up_itself_alone() {
        let (multiplexer, mut merged) = multiplexer(&Arc::default());
        let (slow_stream, slow) = stream(&multiplexer, "slow");
        let (_stream, other) = stream(&multiplexer, "other");
        let text = "x".repeat(WINDOW / 4);
        for _ in 0..6 {
            slow.offer_or_drop(frame("slow", &text));
        }
        for _ in 0..4 {
            assert_eq!(now(&mut merged).as_deref(), Some("slow"));
        }
        assert_eq!(now(&mut merged), None, "its window is used up");
        other.offer_or_drop(frame("other", ""));
        assert_eq!(now(&mut merged).as_deref(), Some("other"));
        let mut refused = Ok(());
        while refused.is_ok() {
            refused = slow.send(frame("slow", &text), Duration::from_secs(1)).await;
        }
        assert_eq!(refused, Err(SendError::NoRoom));
        slow_stream.queue.extend_window();
        assert_eq!(now(&mut merged).as_deref(), Some("slow"), "and goes on when it is read");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_goes_with_the_next_frame_or_soon() {
        let (multiplexer, mut merged) = multiplexer(&Arc::default());
        let (_stream, outbox) = stream(&multiplexer, "a");
        outbox.send_with_next(frame("a", ""));
        multiplexer.send_streamless(frame("b", ""), false);
        assert_eq!(now(&mut merged), None);
        outbox.offer_or_drop(frame("a", ""));
        let order: Vec<_> = std::iter::from_fn(|| now(&mut merged)).collect();
        assert_eq!(order, ["b", "a", "a"], "one write for all");
        outbox.send_with_next(frame("a", ""));
        assert_eq!(now(&mut merged), None);
        let before = tokio::time::Instant::now();
        assert!(merged.next().await.is_some(), "nothing else came");
        assert!(before.elapsed() <= LINGER + Duration::from_millis(1));
    }

    #[tokio::test]
    async fn behind_as_many_answers_as_may_wait_a_tunnel_still_tells_of_its_beginning_and_its_end() {
        let (multiplexer, mut merged) = multiplexer(&Arc::default());
        let begun = multiplexer.open("+1").unwrap();
        multiplexer.name("one", &begun).unwrap();
        let outbox = Outbox::new("one", Arc::clone(&begun.queue));
        outbox.begin_with_work(frame("+1", "place"));
        assert!(multiplexer.wait_for_capacity().now_or_never().is_some());
        (0..MAX_STRAYS).for_each(|_| multiplexer.send_streamless(frame("?", "refused"), false));
        assert!(multiplexer.wait_for_capacity().now_or_never().is_none(), "nothing more is read");
        outbox.offer_or_drop(frame("one", "result"));
        let order: Vec<_> = std::iter::from_fn(|| now(&mut merged)).collect();
        assert_eq!(order.get(MAX_STRAYS..), Some(&["+1".to_owned(), "one".to_owned()][..]));
        assert!(multiplexer.wait_for_capacity().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_gateway_that_reads_its_answers_is_read_on() {
        let (multiplexer, mut merged) = multiplexer(&Arc::default());
        (0..=MAX_STRAYS).for_each(|_| multiplexer.send_streamless(frame("?", "refused"), true));
        let mut waits = std::pin::pin!(multiplexer.wait_for_capacity());
        assert!(waits.as_mut().now_or_never().is_none());
        now(&mut merged);
        assert!(waits.as_mut().now_or_never().is_none());
        now(&mut merged);
        assert!(waits.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_closed_tunnel_sends_nothing_more() {
        let (multiplexer, mut merged) = multiplexer(&Arc::default());
        let (_stream, outbox) = stream(&multiplexer, "a");
        outbox.offer_or_drop(frame("a", ""));
        outbox.close();
        outbox.discard();
        assert_eq!(now(&mut merged), None);
        multiplexer.end(Err(Status::aborted("over")));
        assert_eq!(merged.next().await.unwrap().unwrap_err().code(), tonic::Code::Aborted);
        assert!(merged.next().await.is_none());
        assert_eq!(multiplexer.open("b").unwrap_err(), NoStream);
    }

    #[tokio::test]
    async fn all_tunnels_hear_that_the_gateway_is_gone() {
        let (multiplexer, merged) = multiplexer(&Arc::default());
        let (_stream, outbox) = stream(&multiplexer, "a");
        assert_eq!(multiplexer.open("a").unwrap_err(), NoStream, "a name is used once");
        drop(merged);
        outbox.reader_gone().await;
        multiplexer.wait_for_close().await;
        assert_eq!(outbox.send(frame("a", ""), Duration::ZERO).await, Err(SendError::Gone));
        assert_eq!(multiplexer.open("b").unwrap_err(), NoStream);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_tunnel_that_is_not_read_is_told_beyond_its_window() {
        let (multiplexer, mut merged) = multiplexer(&Arc::default());
        let (_stream, outbox) = stream(&multiplexer, "slow");
        let text = "x".repeat(WINDOW / 4);
        for _ in 0..6 {
            outbox.offer_or_drop(frame("slow", &text));
        }
        while now(&mut merged).is_some() {}
        outbox.give_up(frame("slow", "too slow"));
        outbox.send_last(frame("slow", "closed"));
        outbox.close();
        let order: Vec<_> = std::iter::from_fn(|| now(&mut merged)).collect();
        assert_eq!(order, ["slow", "slow"]);
        assert!(multiplexer.stream("slow").is_none(), "and the tunnel is over");
    }
}
