//! Liveness of a worker: pings that it has not answered, and unsolicited pongs.
//!
//! Keeps true: a pong counts only with the nonce of an open ping. Nonces are random, so that a worker that does not
//! read its stream cannot guess the answer; one that sends unsolicited pongs violates the protocol.

use std::collections::VecDeque;
use std::time::Duration;

use asp_platform::secret::random_hex;

use crate::cause::Cause;

/// Interval between two pings.
pub const PING_EVERY: Duration = Duration::from_secs(1);
/// Number of open pings at which the worker counts as wedged.
pub const MISSED_PINGS: usize = 3;
/// Number of unsolicited pongs that are tolerated; one is forgotten with each ping.
const EXTRA_PONGS: u32 = 16;

/// The pings of one worker.
#[derive(Debug, Default)]
pub struct Heartbeat {
    /// Nonces of unanswered pings, oldest first.
    open: VecDeque<String>,
    extra: u32,
}

impl Heartbeat {
    /// Returns the nonce of the next ping, which is due every `PING_EVERY`. `Err`: too many are unanswered.
    pub fn next_ping(&mut self) -> Result<String, Cause> {
        if self.open.len() >= MISSED_PINGS {
            return Err(Cause::Wedged);
        }
        self.extra = self.extra.saturating_sub(1);
        let nonce = random_hex::<8>();
        self.open.push_back(nonce.clone());
        Ok(nonce)
    }

    /// Whether the worker is responsive: at most the latest ping is open.
    pub fn is_responsive(&self) -> bool {
        self.open.len() <= 1
    }

    /// Handles a pong. It also answers the pings before its own, because a worker reads them in order.
    pub fn handle_pong(&mut self, nonce: &str) -> Result<(), Cause> {
        if let Some(at) = self.open.iter().position(|open| open == nonce) {
            self.open.drain(..=at);
            return Ok(());
        }
        self.extra += 1;
        if self.extra > EXTRA_PONGS {
            return Err(Cause::Protocol("pongs without a ping"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_answers_late_lives_and_one_that_guesses_does_not() {
        let mut late = Heartbeat::default();
        let mut before = late.next_ping().unwrap();
        for _ in 0..100 {
            let next = late.next_ping().unwrap();
            late.handle_pong(&before).unwrap();
            before = next;
        }
        let mut guesses = Heartbeat::default();
        for number in 0..MISSED_PINGS {
            guesses.next_ping().unwrap();
            guesses.handle_pong(&number.to_string()).unwrap();
        }
        assert_eq!(guesses.next_ping(), Err(Cause::Wedged));
    }

    #[test]
    fn the_answer_to_a_ping_counts_once() {
        let mut heart = Heartbeat::default();
        let nonce = heart.next_ping().unwrap();
        heart.handle_pong(&nonce).unwrap();
        for _ in 0..EXTRA_PONGS {
            heart.handle_pong(&nonce).unwrap();
        }
        assert!(matches!(heart.handle_pong(&nonce), Err(Cause::Protocol(_))));
    }
}
