//! Inputs for a call at another gateway: answers, cancels, and reports that all clients have left.
//!
//! Owns: sealing them, storing them in the inbox of their call, and applying them to the calls that run here. Keeps
//! true: a stored input is applied by the gateway that runs the call, or by the one that takes it over, as soon as its
//! question is open there (I-13); an answer is removed once it is stored with the call, or once no gateway can continue
//! the call; a cancel is removed at the end of the call; of several answers to one question, the first one counts; a
//! gateway that has lost a call neither applies nor removes its inputs.

use std::sync::Arc;
use std::time::Duration;

use asp_json::Json;
use asp_store::bus::MAX_MESSAGE;
use asp_store::inbox::{EntryName, Inbox, InboxError, InboxId, Put};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::shared_events::Rows;
use crate::call::Call;
use crate::call::authority::Departure;
use crate::call::event::Event;
use crate::call::event::log::LoggedEvent;
use crate::call::question::{Answer, CallerAnswer, Questions, is_repeated_on_takeover};
use crate::call::remote::InputFault;
use crate::digest;
use crate::outage_log::OutageLog;
use crate::seal::{Purpose, Sealer};

/// Lifetime of an inbox beyond its call's time.
const KEEP: Duration = Duration::from_secs(60);
/// Delay before a store that does not answer is asked again, plus up to as much at random.
const RETRY: Duration = Duration::from_millis(500);
/// Interval at which each running call's inbox is read even without notification: a message of the bus may be lost
/// unnoticed.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of inboxes that are read at once, when a store or a bus is back.
const AT_ONCE: usize = 8;

/// The inboxes of calls, shared by gateways.
pub struct Inboxes {
    inbox: Arc<dyn Inbox>,
    sealer: Arc<Sealer>,
    outage: OutageLog,
    turns: Semaphore,
}

/// An input for a call from another gateway. Other gateways read it: variants and members are only added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CallerInput {
    Answer {
        question: String,
        answer: Answer,
        #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "asp_json::raw_option")]
        message: Option<Json>,
    },
    Cancel,
    /// No client follows the call any more at this gateway, which does not run it.
    Left {
        gateway: [u8; 16],
        departure: Departure,
    },
}

/// An entry that was read and is still stored.
struct InboxEntry {
    name: EntryName,
    input: CallerInput,
    /// Whether this gateway has applied it. A later question of a hosted service may have the same id, and clients may
    /// come and leave again.
    is_applied: bool,
}

impl CallerInput {
    /// Returns one name per question, one for all cancels, and one per gateway whose clients have left.
    fn name(&self) -> EntryName {
        match self {
            CallerInput::Answer { question, .. } => digest::shortened(&["answer", question.as_str()]),
            CallerInput::Cancel => digest::shortened(&["cancel"]),
            CallerInput::Left { gateway, .. } => {
                digest::shortened(&["left", Uuid::from_bytes(*gateway).to_string().as_str()])
            }
        }
    }
}

impl InboxEntry {
    /// Applies it once to a call that runs here. Returns whether it may be removed: a gateway that takes the call over
    /// asks questions again whose answers were not stored, and must find those answers.
    fn apply(&mut self, call: &Call) -> bool {
        let (question, answer) = match &self.input {
            CallerInput::Answer { question, answer, message } => {
                (question, CallerAnswer { answer: answer.clone(), message: message.clone() })
            }
            CallerInput::Cancel => {
                call.cancel();
                return false;
            }
            CallerInput::Left { departure, .. } => {
                if !std::mem::replace(&mut self.is_applied, true) {
                    call.authority.apply_remote_departure(*departure);
                }
                return true;
            }
        };
        if !self.is_applied {
            let was_open = call.questions.find(question).is_some();
            self.is_applied =
                call.questions.answer(question, answer) || call.questions.has_answered(question);
            if was_open && !self.is_applied {
                // An answer that does not fit would keep out the one that does.
                return true;
            }
        }
        is_done(&call.questions, question, (self.is_applied, call.ownership.resumes.is_set()))
    }
}

/// Whether the answer to a question may be removed. `resumes`: whether the stored records suffice to continue the call.
fn is_done(questions: &Questions, question: &str, (is_applied, resumes): (bool, bool)) -> bool {
    questions.is_saved(question) || (is_applied && !is_repeated_on_takeover(question, resumes))
}

impl Inboxes {
    pub fn new(inbox: Arc<dyn Inbox>, sealer: Arc<Sealer>) -> Inboxes {
        Inboxes { inbox, sealer, outage: OutageLog::default(), turns: Semaphore::new(AT_ONCE) }
    }

    /// Stores an input for the call of an org; `left` is the remaining time of the call. False if there is another
    /// answer to the same question, which may have been applied: this one has no effect.
    pub async fn put(
        &self,
        (org, call): (&str, Uuid),
        left: Duration,
        input: &CallerInput,
    ) -> Result<bool, InputFault> {
        let name = input.name();
        let plain = serde_json::to_vec(input).map_err(|_| InputFault::Unavailable)?;
        // The gateway of the call may get it only over the bus, together with the name of the call.
        if plain.len() > MAX_MESSAGE - 1024 {
            return Err(InputFault::TooLarge);
        }
        let sealed = self.sealer.seal_bytes(Purpose::Inbox, &place(call, name), &plain);
        let sealed = Bytes::from(sealed.map_err(|_| InputFault::Unavailable)?);
        let put = self.inbox.put(id(org, call), name, sealed, left.saturating_add(KEEP)).await;
        match self.noted(put) {
            Some(Put::Stored) => Ok(true),
            Some(Put::Exists) => self.has((org, call), name, input).await,
            Some(Put::Full) => Err(InputFault::Full),
            None => Err(InputFault::Unavailable),
        }
    }

    /// Whether the entry of this name has the same content; sealed bytes differ each time. An entry that is gone was
    /// applied.
    async fn has(
        &self,
        (org, call): (&str, Uuid),
        name: EntryName,
        input: &CallerInput,
    ) -> Result<bool, InputFault> {
        let read = self.inbox.read(id(org, call)).await;
        let entries = self.noted(read).ok_or(InputFault::Unavailable)?;
        let entry = entries.into_iter().find(|(other, _)| *other == name);
        Ok(entry.and_then(|(name, sealed)| self.open(call, name, &sealed)).as_ref() == Some(input))
    }

    /// Applies stored inputs to the call whenever there may be new ones, until it ends.
    pub(super) fn begin(self: &Arc<Self>, call: &Arc<Call>, rows: Arc<dyn Rows>) {
        let inboxes = self.clone();
        let call = call.clone();
        tokio::spawn(async move { inboxes.follow(&call, rows.as_ref()).await });
    }

    async fn follow(&self, call: &Call, rows: &dyn Rows) {
        let mut events = call.events.reader_from(call.events.next_number());
        let mut saves = call.questions.saves();
        let mut entries: Vec<InboxEntry> = Vec::new();
        loop {
            tokio::select! {
                () = call.ownership.nudged() => match self.read(call).await {
                    Some(mut read) => {
                        for entry in &mut read {
                            let is_same = |known: &InboxEntry| known.name == entry.name && known.input == entry.input;
                            entry.is_applied = entries.iter().any(|known| known.is_applied && is_same(known));
                        }
                        entries = read;
                    }
                    None => {
                        tokio::time::sleep(RETRY + RETRY.mul_f64(rand::random())).await;
                        call.ownership.nudge();
                    }
                },
                event = events.next(), if !entries.is_empty() => match event {
                    Some(LoggedEvent { event: Event::Asked { .. }, .. }) => {}
                    Some(_) => continue,
                    None => break,
                },
                _ = saves.changed(), if !entries.is_empty() => {}
                () = tokio::time::sleep(LOOK_EVERY) => call.ownership.nudge(),
                _ = call.finished() => break,
            }
            // If another gateway continues the call, the entries are for that one.
            if !entries.is_empty() && rows.is_ours(call).await {
                self.apply(call, &mut entries).await;
            }
        }
        // The remaining entries are obsolete, unless another gateway continues the call.
        if !entries.is_empty() && rows.is_ours(call).await {
            let names: Vec<EntryName> = entries.iter().map(|entry| entry.name).collect();
            self.remove(call, &names).await;
        }
    }

    /// Applies the entries whose questions are open, and removes those that are done. An entry that cannot be removed
    /// remains; when it is read again, it is not applied again.
    async fn apply(&self, call: &Call, entries: &mut Vec<InboxEntry>) {
        let mut done = Vec::new();
        for entry in entries.iter_mut() {
            if entry.apply(call) {
                done.push(entry.name);
            }
        }
        if !done.is_empty() && self.remove(call, &done).await {
            entries.retain(|entry| !done.contains(&entry.name));
        }
    }

    async fn read(&self, call: &Call) -> Option<Vec<InboxEntry>> {
        // An error means that the semaphore is closed, which never happens.
        let _turn = self.turns.acquire().await.ok();
        let entries = self.noted(self.inbox.read(id(&call.caller.org, call.id)).await)?;
        let open = |(name, sealed): (EntryName, Bytes)| {
            let input = self.open(call.id, name, &sealed);
            if input.is_none() {
                tracing::warn!(call = %call.id, trace = %call.trace, "input in the inbox of a call cannot be read; the gateway that stored it has another ASP_SEAL_KEY or another version");
            }
            Some(InboxEntry { name, input: input?, is_applied: false })
        };
        Some(entries.into_iter().filter_map(open).collect())
    }

    fn open(&self, call: Uuid, name: EntryName, sealed: &Bytes) -> Option<CallerInput> {
        let plain = self.sealer.open_bytes(Purpose::Inbox, &place(call, name), sealed)?;
        serde_json::from_slice(&plain).ok()
    }

    /// Removes entries, best effort: an entry that remains is applied to no other question, and expires with the inbox.
    /// False if the store did not confirm the removal.
    async fn remove(&self, call: &Call, names: &[EntryName]) -> bool {
        self.noted(self.inbox.remove(id(&call.caller.org, call.id), names).await).is_some()
    }

    /// Passes an answer of the store on; an outage is logged once, until the store answers again.
    fn noted<T>(&self, answer: Result<T, InboxError>) -> Option<T> {
        self.outage.noted(answer, |error| {
            tracing::warn!(%error, "inboxes of calls are unavailable; until they are back, callers can answer and cancel a call only at the gateway that runs it");
        })
    }
}

fn id(org: &str, call: Uuid) -> InboxId {
    InboxId { org: digest::shortened(&[org]), call: call.into_bytes() }
}

/// Returns the context of a seal, which opens only in the inbox of its call and under its name.
fn place(call: Uuid, name: EntryName) -> Vec<u8> {
    [call.as_bytes().as_slice(), &name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant I-13.
    #[test]
    fn an_answer_stays_until_it_is_stored_if_the_next_gateway_would_ask_again() {
        let questions = Questions::default();
        assert!(is_done(&questions, "q", (true, false)) && !is_done(&questions, "q", (false, false)));
        for (question, resumes) in [("q", true), ("asp.arguments.1", false)] {
            assert!(!is_done(&questions, question, (true, resumes)), "{question}");
            questions.note_saved(question.to_owned());
            assert!(is_done(&questions, question, (true, resumes)), "{question}");
        }
    }
}
