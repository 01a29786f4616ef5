//! Following a call in any protocol: from any event to its end.
//!
//! Keeps true: a follower gets every question that is still open, even if the bounded log has dropped its event, and
//! the dropped events that still matter; it gets nothing once the call was withdrawn from its caller; the outcome
//! comes last, and once.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::log::{EventReader, FoldedLog, LoggedEvent};
use super::event::{Event, LogLevel};
use super::outcome::{Outcome, Refusal, Withdrawal};
use super::question::{History, Question};
use super::{Call, State};

/// Snapshot of a call, complete for a client that sees the call for the first time.
#[derive(Debug)]
pub struct CallSnapshot {
    pub state: State,
    /// Events so far that still matter: progress, the last statuses and the artifacts, ordered by number.
    pub shown: Vec<LoggedEvent>,
    /// The open questions, in order.
    pub questions: Vec<Question>,
    /// Questions that were answered, with their answers.
    pub history: History,
    pub outcome: Option<Arc<Outcome>>,
    /// First event to follow from, so that nothing is missed or repeated.
    pub next_event: u64,
    /// Generation of the call with the events before that.
    pub generation: u64,
}

impl CallSnapshot {
    pub fn of(call: &Call) -> CallSnapshot {
        // Read first: an outcome that comes later is reported by the events from `next_event` on.
        let outcome = call.outcome();
        let state = outcome.as_ref().map_or_else(|| call.state(), |outcome| outcome.state());
        call.questions.read(|questions, history| {
            let FoldedLog { events: shown, next: next_event, generation } = call.events.folded();
            CallSnapshot { state, shown, questions, history, outcome, next_event, generation }
        })
    }
}

/// One item for a follower.
#[derive(Debug)]
pub enum FollowerItem {
    /// An event that is not a question.
    Event(LoggedEvent),
    /// A question; the call waits for the answer.
    Asked(Question),
    /// The end of the call; nothing follows.
    Ended(Arc<Outcome>),
}

/// A follower of one call.
pub struct Follower {
    call: Arc<Call>,
    reader: EventReader,
    /// Open questions whose events the log has dropped, with their numbers.
    missed: VecDeque<(u64, Question)>,
    held: Option<LoggedEvent>,
    /// Generation of the call with the last item.
    generation: u64,
}

impl Follower {
    /// Follows from event number `first`, or from the oldest that is kept.
    pub fn from(call: Arc<Call>, first: u64) -> Follower {
        let reader = call.events.reader_from(first);
        Follower { call, reader, missed: VecDeque::new(), held: None, generation: 0 }
    }

    /// Returns the number of the first event that was not delivered.
    pub fn position(&self) -> u64 {
        self.held.as_ref().map_or(self.reader.position(), |held| held.number)
    }

    /// Returns the generation of the call with the event or question that was delivered last; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of the first event or question that was not delivered: a client that continues from here gets
    /// everything that is left, and nothing twice.
    pub fn next_unshown(&self) -> u64 {
        self.missed.front().map_or(self.position(), |(number, _)| *number)
    }

    /// Returns the oldest event that the log had when it was last read.
    pub fn first_retained(&self) -> u64 {
        self.reader.first_retained()
    }

    /// Returns the highest level of the log messages that were lost, if it is `lowest` or above; reported once.
    pub fn lost_logs(&mut self, lowest: LogLevel) -> Option<LogLevel> {
        self.reader.lost_logs(lowest)
    }

    /// Waits for the next item. Cancel-safe: nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> FollowerItem {
        loop {
            // Nothing is delivered under a dead token, not even what was read before.
            if let Some(why) = self.call.withdrawal() {
                return withdrawal_item(why);
            }
            if let Some((_, question)) = self.missed.pop_front() {
                // It may have been answered since.
                match self.call.questions.find(&question.id) {
                    Some(question) => return FollowerItem::Asked(question),
                    None => continue,
                }
            }
            let logged = match self.held.take() {
                Some(held) => Some(held),
                None => match self.read().await {
                    Ok(logged) => logged,
                    Err(withdrawn) => return withdrawn,
                },
            };
            if let Some(logged) = &logged {
                // Questions whose events are gone come before it.
                self.generation = logged.generation.saturating_sub(u64::from(!self.missed.is_empty()));
            }
            match logged {
                None => return FollowerItem::Ended(self.call.finished().await),
                Some(_) if !self.missed.is_empty() => self.held = logged,
                Some(LoggedEvent { event: Event::Asked { id }, .. }) => {
                    // A late reader finds it answered or expired.
                    if let Some(question) = self.call.questions.find(&id) {
                        return FollowerItem::Asked(question);
                    }
                }
                Some(logged) => return FollowerItem::Event(logged),
            }
        }
    }

    /// Reads the next event, and fills `missed` with open questions before it whose events the log has dropped.
    async fn read(&mut self) -> Result<Option<LoggedEvent>, FollowerItem> {
        let expected = self.reader.position();
        let logged = tokio::select! {
            biased;
            why = self.call.wait_for_withdrawal() => return Err(withdrawal_item(why)),
            logged = self.reader.next() => logged,
        };
        if let Some(logged) = &logged
            && logged.number > expected
        {
            self.missed = self.call.questions.open_within(expected..logged.number).into();
        }
        Ok(logged)
    }
}

fn withdrawal_item(why: Withdrawal) -> FollowerItem {
    FollowerItem::Ended(Arc::new(Outcome::Refused(Refusal::Withdrawn(why))))
}
