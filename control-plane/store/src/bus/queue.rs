//! The messages that wait for one listener of a [`Bus`](super::Bus).
//!
//! Keeps true: bounded in bytes, whatever the number of messages; a message that does not fit is refused and pushes out no
//! other.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::MAX_WAITING_BYTES;

/// Bytes that a message takes besides its content.
const ENTRY_BYTES: usize = 256;

type Waiting = (Bytes, OwnedSemaphorePermit);

/// The end of a queue that takes messages.
pub(crate) struct QueueSender {
    waiting: mpsc::UnboundedSender<Waiting>,
    /// One permit for each byte that may still wait.
    room: Arc<Semaphore>,
}

/// A queue and the stream of what is put into it.
pub(crate) fn queue() -> (QueueSender, BoxStream<'static, Bytes>) {
    // Bounded by the permits that its messages hold.
    let (sender, mut receiver) = mpsc::unbounded_channel::<Waiting>();
    let messages = futures::stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|waiting| waiting.map(|(message, _room)| message))
    });
    let room = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
    (QueueSender { waiting: sender, room }, messages.boxed())
}

impl QueueSender {
    /// Puts a message into the queue; false where it is full or nobody listens any more.
    pub(crate) fn offer(&self, message: Bytes) -> bool {
        let bytes = u32::try_from(message.len().saturating_add(ENTRY_BYTES)).unwrap_or(u32::MAX);
        match self.room.clone().try_acquire_many_owned(bytes) {
            Ok(room) => self.waiting.send((message, room)).is_ok(),
            Err(_) => false,
        }
    }

    /// Returns when nobody listens any more.
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

    /// Invariant I-4: what waits for a gateway that does not take it.
    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let (sender, mut messages) = queue();
        let largest = Bytes::from(vec![b'x'; MAX_MESSAGE]);
        let fit = (0..).take_while(|_| sender.offer(largest.clone())).count();
        assert_eq!(fit, MAX_WAITING_BYTES / (MAX_MESSAGE + ENTRY_BYTES));
        assert!(messages.next().now_or_never().flatten().is_some());
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
