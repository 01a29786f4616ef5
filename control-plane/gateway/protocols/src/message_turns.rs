//! Turns of requests with the same message, so that tools read it once.
//!
//! Keeps true: a message has one request at a time that reads it and looks for its task; one that no request has is forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

/// Messages that requests at this gateway read or are about to read.
#[derive(Default)]
pub struct MessageTurns(Mutex<HashMap<Uuid, Arc<tokio::sync::Mutex<()>>>>);

/// Turn of one request, which ends on drop.
pub(crate) type MessageTurn = OwnedMutexGuard<()>;

impl MessageTurns {
    /// Waits until no other request has the message.
    pub(crate) async fn enter(&self, message: Uuid) -> MessageTurn {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(message).or_default())
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_has_one_request_at_a_time_and_is_forgotten() {
        let turns = MessageTurns::default();
        let enter = async |message: u128| {
            let entering = turns.enter(Uuid::from_u128(message));
            tokio::time::timeout(Duration::from_secs(1), entering).await.ok()
        };
        let first = enter(1).await.unwrap();
        assert!(enter(1).await.is_none());
        assert!(enter(2).await.is_some());
        drop(first);
        assert!(enter(1).await.is_some());
        assert!(enter(3).await.is_some());
        assert_eq!(turns.0.lock().len(), 1);
    }
}
