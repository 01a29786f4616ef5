//! Queue of the messages for one listener of a [`Bus`](super::Bus).
//!
//! Keeps true: bounded in bytes, for any number of messages; a message that does not fit is rejected without evicting
//! another, and the listener learns that it missed one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::{BusEvent, MAX_WAITING_BYTES};

/// Bytes charged for a message in addition to its content.
const ENTRY_BYTES: usize = 256;

type QueuedEvent = (BusEvent<Bytes>, OwnedSemaphorePermit);

/// Sending end of a queue.
pub(crate) struct QueueSender {
    waiting: mpsc::UnboundedSender<QueuedEvent>,
    /// One permit per free byte.
    room: Arc<Semaphore>,
    /// Whether a message was rejected since the last gap that the listener received.
    has_gap: Arc<AtomicBool>,
}

/// Returns the two ends of a queue.
pub(crate) fn queue() -> (QueueSender, BoxStream<'static, BusEvent<Bytes>>) {
    // Bounded by the permits that its messages hold.
    let (sender, mut receiver) = mpsc::unbounded_channel::<QueuedEvent>();
    let has_gap = Arc::new(AtomicBool::new(false));
    let gap = has_gap.clone();
    let messages = futures::stream::poll_fn(move |context| {
        // The flag is set only while messages wait, so their wake-up brings the listener here.
        if gap.swap(false, Ordering::AcqRel) {
            return Poll::Ready(Some(BusEvent::Gap));
        }
        receiver.poll_recv(context).map(|waiting| waiting.map(|(heard, _room)| heard))
    });
    let room = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
    (QueueSender { waiting: sender, room, has_gap }, messages.boxed())
}

impl QueueSender {
    /// Enqueues a message; returns false if the queue is full or nobody listens any more.
    pub(crate) fn offer(&self, message: Bytes) -> bool {
        let bytes = message.len();
        self.enqueue(BusEvent::Message(message), bytes)
    }

    /// Reports to the listener that messages may have been lost.
    #[cfg(feature = "redis")]
    pub(crate) fn gap(&self) {
        // If it does not fit, the flag reports the same.
        self.enqueue(BusEvent::Gap, 0);
    }

    fn enqueue(&self, heard: BusEvent<Bytes>, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes.saturating_add(ENTRY_BYTES)).unwrap_or(u32::MAX);
        match self.room.clone().try_acquire_many_owned(bytes) {
            Ok(room) => self.waiting.send((heard, room)).is_ok(),
            Err(_) => {
                self.has_gap.store(true, Ordering::Release);
                false
            }
        }
    }

    /// Waits until nobody listens any more.
    #[cfg(feature = "redis")]
    pub(crate) async fn closed(&self) {
        self.waiting.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::bus::MAX_MESSAGE;

    /// Invariant I-4 for messages that a gateway does not read.
    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let (sender, mut messages) = queue();
        let largest = Bytes::from(vec![b'x'; MAX_MESSAGE]);
        let fit = (0..).take_while(|_| sender.offer(largest.clone())).count();
        assert_eq!(fit, MAX_WAITING_BYTES / (MAX_MESSAGE + ENTRY_BYTES));
        let mut next = || messages.next().now_or_never().flatten();
        assert_eq!(next(), Some(BusEvent::Gap), "one did not fit");
        assert_eq!(next(), Some(BusEvent::Message(largest.clone())), "it pushed out no other");
        assert!(sender.offer(largest.clone()), "what was taken makes room");
        assert!(!sender.offer(largest));
    }

    #[test]
    fn empty_messages_take_room_too_and_small_ones_are_many() {
        let (sender, _messages) = queue();
        let fit = (0..).take_while(|_| sender.offer(Bytes::new())).count();
        assert_eq!(fit, MAX_WAITING_BYTES / ENTRY_BYTES);
    }

    #[test]
    fn a_queue_that_nobody_listens_to_takes_nothing() {
        let (sender, messages) = queue();
        drop(messages);
        assert!(!sender.offer(Bytes::from_static(b"lost")));
    }
}
