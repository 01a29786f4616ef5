//! Calls taken over from lost gateways, for clients that retry them.
//!
//! Owns: the bounded list of them, and the relay between such a call and a retry under its idempotency key. Keeps true:
//! a retry gets the call's events and answers its questions, and cancelling the retry cancels the call.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::call::Call;
use crate::call::follower::{Follower, FollowerItem};
use crate::call::outcome::Refusal;
use crate::call::question::{Answer, Question, put};

/// Maximum number of calls that one gateway has taken over and runs.
const MAX_CALLS: usize = 256;

/// The running calls that one gateway has taken over.
#[derive(Default)]
pub struct TakenOverCalls {
    calls: Mutex<Vec<Weak<Call>>>,
    changed: Notify,
}

impl TakenOverCalls {
    /// Returns how many more calls may be taken over.
    pub fn room(&self) -> usize {
        let mut calls = self.calls.lock();
        calls.retain(|call| call.upgrade().is_some_and(|call| call.outcome().is_none()));
        MAX_CALLS.saturating_sub(calls.len())
    }

    pub fn insert(&self, call: &Arc<Call>) {
        self.calls.lock().push(Arc::downgrade(call));
        self.changed.notify_waiters();
    }

    /// Waits until another call was taken over, at most for `longest`.
    pub async fn changed_within(&self, longest: Duration) {
        // The caller looks again either way.
        let _ = tokio::time::timeout(longest, self.changed.notified()).await;
    }

    /// Relays the events of the call that was taken over under the same claim to `follower`, and its answers back.
    /// Never ends: the ledger tells when there is a result.
    pub async fn relay(&self, follower: &Call, claim: &crate::call::ownership::LedgerClaim) -> Infallible {
        let call = loop {
            let changed = self.changed.notified();
            let same = |call: &Arc<Call>| call.ownership.claim() == Some(claim) && call.id != follower.id;
            let found = self.calls.lock().iter().filter_map(Weak::upgrade).find(same);
            match found {
                Some(call) => break call,
                None => changed.await,
            }
        };
        Relay { call, follower, answers: FuturesUnordered::new() }.run().await
    }
}

/// One retry, attached to a call that was taken over.
struct Relay<'a> {
    call: Arc<Call>,
    follower: &'a Call,
    answers: FuturesUnordered<BoxFuture<'a, (String, Result<Answer, Refusal>)>>,
}

impl Relay<'_> {
    async fn run(mut self) -> Infallible {
        let mut followed = Follower::from(self.call.clone(), 0);
        let mut more = true;
        let mut cancelled = false;
        loop {
            tokio::select! {
                shown = followed.next(), if more => match shown {
                    FollowerItem::Asked(question) => self.ask(question),
                    FollowerItem::Event(logged) => self.follower.emit(logged.event),
                    FollowerItem::Ended(_) => more = false,
                },
                Some((id, answer)) = self.answers.next(), if !self.answers.is_empty() => {
                    if let Ok(answer) = answer {
                        self.call.questions.answer(&id, answer);
                    }
                }
                () = self.follower.cancelled(), if !cancelled => {
                    cancelled = true;
                    self.call.cancel();
                }
                else => std::future::pending().await,
            }
        }
    }

    fn ask(&mut self, question: Question) {
        let id = question.id.clone();
        if !self.follower.abilities().answers(&question.ask) {
            return;
        }
        if let Ok(asked) = put(self.follower, question) {
            let follower = self.follower;
            self.answers.push(Box::pin(async move { (id, asked.answered(follower).await) }));
        }
    }
}
