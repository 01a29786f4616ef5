//! The frames of a tunnel that began with its work (supervisor.proto, `AllocateWorkerRequest.work`): the frames of its
//! beginning are held back, and its last frame reports its cost.
//!
//! Keeps true: a call that is answered within `HOLD` and has sent nothing before takes one frame; every other call
//! sends all frames, in order; the cost is reported once, by the last frame.

use std::time::Duration;

use asp_proto::supervisor::ppp_server_frame::Payload;
use asp_proto::supervisor::{PppServerFrame, TunnelCost};
use tonic::Status;

use super::{FrameQueue, Outbox, State};
use crate::ppp::frame_size;

/// Time for which the beginning is held back. A gateway that cancels in this time waits as long.
const HOLD: Duration = Duration::from_millis(25);

/// Additional state of such a tunnel.
#[derive(Debug)]
pub(super) struct Brief {
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

impl Outbox {
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
}

impl FrameQueue {
    /// Sends the held-back frames of the tunnel's beginning, if there are any.
    pub(super) fn open(&self, state: &mut State) {
        let opening = state.brief.as_mut().and_then(|brief| brief.opening.take());
        if let Some(HeldFrames { answer, rest }) = opening {
            // The answer is not limited by the window. Strays go first.
            self.multiplexer.send_streamless(answer, false);
            rest.into_iter().for_each(|frame| self.enqueue(state, frame));
        }
    }
}

impl State {
    /// Holds back a frame of the tunnel's beginning; returns it if the beginning has been sent.
    pub(super) fn hold(&mut self, frame: PppServerFrame) -> Option<PppServerFrame> {
        match self.brief.as_mut().and_then(|brief| brief.opening.as_mut()) {
            Some(opening) => {
                opening.rest.push(frame);
                None
            }
            None => Some(frame),
        }
    }

    /// Keeps a last message for the tunnel's end, which follows at once; returns the frame to send now.
    pub(super) fn keep_last(&mut self, frame: PppServerFrame) -> Option<PppServerFrame> {
        match &mut self.brief {
            Some(brief) => brief.last.replace(frame),
            None => Some(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asp_proto::supervisor::tunnel_event::Type;
    use futures::{FutureExt, StreamExt};

    use super::*;
    use crate::ppp::outbox::multiplexer::multiplexer;
    use crate::ppp::{closed_frame, event_frame};

    #[tokio::test]
    async fn a_beginning_that_is_told_with_an_end_without_an_answer_counts_in_its_cost() {
        let (multiplexer, mut merged) = multiplexer(&Arc::default());
        let stream = multiplexer.open("+1").unwrap();
        let outbox = Outbox::new("one", stream.queue);
        outbox.begin_with_work(event_frame("+1", Type::TunnelReady, "stands for the answer", None));
        outbox.send_with_next(event_frame("one", Type::TunnelReady, "", None));
        outbox.send_last(event_frame("one", Type::WorkerCrashed, "", None));
        let end = Ok(());
        let told = outbox.end_with_cost(closed_frame("one", &end), &end, TunnelCost::default());
        let sent: Vec<PppServerFrame> =
            std::iter::from_fn(|| merged.next().now_or_never().flatten().and_then(Result::ok)).collect();
        let [answer, rest @ ..] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((answer.tunnel_id.as_str(), rest.len()), ("+1", 2));
        assert_eq!(told, rest.iter().map(|frame| frame_size(frame) as u64).sum::<u64>());
        assert_eq!(rest.last().unwrap().closed.unwrap().bytes_out, told);
    }
}
