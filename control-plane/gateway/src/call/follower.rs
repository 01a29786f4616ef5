//! One way to follow a call, for every face: from any event on, to its end.
//!
//! Keeps true: whoever follows is put every question that is open when its turn comes, also one whose event the bounded
//! log has dropped, and is shown of what it has dropped what still matters; nothing is shown once the call was taken away from its caller; the outcome comes last, and once.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::log::{EventReader, FoldedLog, Logged};
use super::event::{Event, LogLevel};
use super::outcome::{Outcome, Refusal, Withdrawal};
use super::question::{History, Question};
use super::{Call, State};

/// Where a call stands: all that somebody needs who sees it for the first time.
#[derive(Debug)]
pub struct Standing {
    pub state: State,
    /// What it has shown and still matters: progress, the last statuses, artifacts, in their order.
    pub shown: Vec<Logged>,
    /// The open questions, in their order.
    pub questions: Vec<Question>,
    /// What it has asked and was answered.
    pub history: History,
    pub outcome: Option<Arc<Outcome>>,
    /// Who follows from this event on misses nothing and is shown nothing twice.
    pub next_event: u64,
}

impl Standing {
    pub fn of(call: &Call) -> Standing {
        // Before the rest: what ends meanwhile is told from this event on.
        let outcome = call.outcome();
        let state = outcome.as_ref().map_or_else(|| call.state(), |outcome| outcome.state());
        call.questions.read(|questions, history| {
            let FoldedLog { events: shown, next: next_event } = call.events.folded();
            Standing { state, shown, questions, history, outcome, next_event }
        })
    }
}

/// What a follower is shown.
#[derive(Debug)]
pub enum Shown {
    /// Something happened; never a question.
    Event(Logged),
    /// The call waits for an answer.
    Asked(Question),
    /// The call has ended; nothing comes after.
    Ended(Arc<Outcome>),
}

/// Follows one call.
pub struct Follower {
    call: Arc<Call>,
    reader: EventReader,
    /// Questions whose events the log has dropped, and what comes after them.
    missed: VecDeque<(u64, Question)>,
    held: Option<Logged>,
}

impl Follower {
    /// From event number `first`, or from the oldest that is kept.
    pub fn from(call: Arc<Call>, first: u64) -> Follower {
        let reader = call.events.reader_from(first);
        Follower { call, reader, missed: VecDeque::new(), held: None }
    }

    /// The number of the first event that was not shown.
    pub fn position(&self) -> u64 {
        self.held.as_ref().map_or(self.reader.position(), |held| held.number)
    }

    /// The same, of questions too: who comes back from here is shown all that is left, and nothing twice.
    pub fn next_unshown(&self) -> u64 {
        self.missed.front().map_or(self.position(), |(number, _)| *number)
    }

    /// The oldest event that the log had when it was read last.
    pub fn kept_from(&self) -> u64 {
        self.reader.kept_from()
    }

    /// The highest level of the log messages that are gone unseen, where that is `lowest` or above; said once.
    pub fn lost_logs(&mut self, lowest: LogLevel) -> Option<LogLevel> {
        self.reader.lost_logs(lowest)
    }

    /// What is shown next. May be dropped at any time; nothing is lost.
    pub async fn next(&mut self) -> Shown {
        loop {
            // Nothing more goes out under a dead token, not even what was read before.
            if let Some(why) = self.call.withdrawal() {
                return withdrawn(why);
            }
            if let Some((_, question)) = self.missed.pop_front() {
                // By now it may have its answer.
                match self.call.questions.find(&question.id) {
                    Some(question) => return Shown::Asked(question),
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
            match logged {
                None => return Shown::Ended(self.call.finished().await),
                Some(_) if !self.missed.is_empty() => self.held = logged,
                Some(Logged { event: Event::Asked { id }, .. }) => {
                    // Whoever reads late finds it answered or expired.
                    if let Some(question) = self.call.questions.find(&id) {
                        return Shown::Asked(question);
                    }
                }
                Some(logged) => return Shown::Event(logged),
            }
        }
    }

    /// The next event, and into `missed` what was asked before it and is gone from the log.
    async fn read(&mut self) -> Result<Option<Logged>, Shown> {
        let expected = self.reader.position();
        let logged = tokio::select! {
            biased;
            why = self.call.withdrawn() => return Err(withdrawn(why)),
            logged = self.reader.next() => logged,
        };
        if let Some(logged) = &logged
            && logged.number > expected
        {
            self.missed = self.call.questions.asked_within(expected..logged.number).into();
        }
        Ok(logged)
    }
}

fn withdrawn(why: Withdrawal) -> Shown {
    Shown::Ended(Arc::new(Outcome::Refused(Refusal::Withdrawn(why))))
}
