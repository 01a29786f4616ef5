//! State of a plugin call over all its workers: everything that the next one needs to continue.
//!
//! Keeps true: an answered question is never asked again; everything here is bounded.

use std::collections::HashMap;

use asp_proto::plugin::deliver_user_input::Action;
use asp_proto::plugin::{DeliverDelegationResult, DeliverUserInput, Resume};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use prost::Message;

use super::artifacts::EmittedArtifacts;
use super::results::Chunks;

/// Maximum size in bytes of the answers that a call keeps for its next worker: they travel in one message with the
/// arguments.
pub(super) const MAX_ANSWERS: usize = 1 << 20;

/// Maximum number of answers that are noted as not saved yet; further ones stay in the call's inbox until its end.
const MAX_UNSAVED: usize = 64;

/// An answer on its way to the worker.
#[derive(Clone, Debug)]
pub(super) enum Delivery {
    Input(DeliverUserInput),
    Delegation(DeliverDelegationResult),
}

impl Delivery {
    /// Returns the key of the question that this answers.
    pub(super) fn key(&self) -> Key {
        match self {
            Delivery::Input(input) => Key::Input(input.elicitation_id.clone()),
            Delivery::Delegation(result) => Key::Delegation(result.correlation_id.clone()),
        }
    }

    /// Returns the reason why there is no answer; empty if there is one.
    pub(super) fn error(&self) -> &str {
        match self {
            Delivery::Input(input) => &input.error,
            Delivery::Delegation(result) => &result.error,
        }
    }
}

/// Key under which a worker asks something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Input(String),
    Delegation(String),
}

/// A question that is not answered yet.
pub(super) struct OpenQuestion {
    /// The last attempt that asked it.
    pub attempt: u32,
    /// Id of the question to the client; `None` if the client is not asked.
    pub question: Option<String>,
}

/// A page that a user was asked to open.
pub(super) struct Page {
    /// Id of its question.
    pub id: String,
    /// The user has agreed to open it.
    pub is_agreed: bool,
}

/// State of the call so far.
#[derive(Default)]
pub(super) struct AttemptState {
    /// Number of the running attempt, from 1; not every attempt gets a worker.
    pub attempt: u32,
    /// Number of workers that were lost after the call was delivered to them.
    pub lost: u32,
    /// Number of gateways that took the call over since its last checkpoint.
    pub taken: u32,
    /// The plugin's own id of its task.
    pub task_id: String,
    /// The plugin has announced that it saves checkpoints and resumes.
    pub checkpoints: bool,
    /// Number of the last stored checkpoint; 0 before the first.
    pub saved_seq: u64,
    /// Parts of the result so far, and how many of them a successor does not send again.
    pub chunks: Chunks,
    pub emitted: EmittedArtifacts,
    pub(super) inputs: Vec<DeliverUserInput>,
    pub(super) results: Vec<DeliverDelegationResult>,
    pub(super) answers_size: usize,
    /// Number of requests for the plugin's storage.
    pub storage_requests: u32,
    /// Number of question rounds of a read or a prompt.
    pub rounds: u32,
    /// Number of opened questions; makes their ids unique.
    pub questions: u32,
    /// Questions and delegations without an answer.
    pub open: HashMap<Key, OpenQuestion>,
    /// Ids of the questions that were open at a gateway that is gone, until they are asked again: no more than were
    /// open.
    pub reserved: HashMap<Key, String>,
    /// Ids of the questions whose answers are part of the state and not stored with it yet.
    pub unsaved: Vec<String>,
    /// Pages that a user was asked to open, by their declared ids: no more than the primitive declares.
    pub pages: HashMap<String, Page>,
    /// Answers to a read or a prompt, including that nobody answered; `None` before the first question.
    pub given: Option<Resume>,
    /// Pending answers; they outlive the worker that asked.
    pub waiting: FuturesUnordered<BoxFuture<'static, Delivery>>,
    /// Recorded answers that the running worker has not asked for yet: an earlier one did, and a worker drops an answer
    /// that it does not wait for.
    pub early: HashMap<Key, Delivery>,
}

impl AttemptState {
    /// Whether another worker can continue where this one stopped.
    pub(super) fn resumes(&self) -> bool {
        self.checkpoints || self.saved_seq > 0
    }

    /// Records a stored checkpoint: output from before it will not be sent again.
    pub(super) fn saved(&mut self, seq: u64) {
        self.saved_seq = seq;
        self.taken = 0;
        self.chunks.mark();
    }

    /// Prepares for another worker: discards the output that it will send again.
    pub(super) fn next_attempt(&mut self) {
        self.attempt += 1;
        if self.resumes() {
            self.chunks.rewind();
        } else {
            self.chunks = Chunks::default();
            self.emitted.clear();
        }
    }

    /// Whether only an earlier worker has asked this.
    pub(super) fn is_early(&self, key: &Key) -> bool {
        self.open.get(key).is_some_and(|open| open.attempt != self.attempt)
    }

    /// Records an answer. Questions that failed are asked again.
    pub(super) fn answered(&mut self, delivery: &Delivery) {
        let asked = self.open.remove(&delivery.key());
        if let Some(question) = asked.and_then(|open| open.question)
            && self.unsaved.len() < MAX_UNSAVED
        {
            self.unsaved.push(question);
        }
        if let Delivery::Input(input) = delivery {
            self.decided(input);
        }
        let size = match delivery {
            Delivery::Input(input) => input.encoded_len(),
            Delivery::Delegation(result) => result.encoded_len(),
        };
        if !delivery.error().is_empty() || self.answers_size + size > MAX_ANSWERS {
            return;
        }
        self.answers_size += size;
        match delivery {
            Delivery::Input(input) => self.inputs.push(input.clone()),
            Delivery::Delegation(result) => self.results.push(result.clone()),
        }
    }

    /// Records a user's decision about a page; only those who agree to open it are shown it.
    fn decided(&mut self, input: &DeliverUserInput) {
        if input.error.is_empty() && input.action() == Action::Accept {
            self.pages.entry(input.elicitation_id.clone()).and_modify(|page| page.is_agreed = true);
        } else {
            self.pages.remove(&input.elicitation_id);
        }
    }

    /// Returns the id of a question to the client: the one that it had at a previous gateway, or the declared id made
    /// unique.
    pub(super) fn question_id(&mut self, key: &Key, declared: &str) -> String {
        let id = self.reserved.remove(key).unwrap_or_else(|| {
            self.questions += 1;
            match self.questions {
                1 => declared.to_owned(),
                number => format!("{declared}.{number}"),
            }
        });
        if let Some(open) = self.open.get_mut(key) {
            open.question = Some(id.clone());
        }
        id
    }

    /// Whether the client is asked and has not answered yet.
    pub(super) fn asks_client(&self, key: &Key) -> bool {
        self.open.get(key).is_some_and(|open| open.question.is_some())
    }

    /// Returns the questions that wait for the client or will be asked again, and their ids.
    pub(super) fn open_ids(&self) -> impl Iterator<Item = (&Key, &String)> {
        let open = self.open.iter().filter_map(|(key, open)| Some((key, open.question.as_ref()?)));
        open.chain(&self.reserved)
    }

    /// Records answers that were given at another gateway.
    pub(super) fn remember(&mut self, inputs: Vec<DeliverUserInput>, results: Vec<DeliverDelegationResult>) {
        let inputs = inputs.into_iter().map(Delivery::Input);
        for delivery in inputs.chain(results.into_iter().map(Delivery::Delegation)) {
            self.answered(&delivery);
        }
    }

    /// Returns the state from which the next execution resumes, without the capsule; `None` if it starts from the
    /// beginning.
    pub(super) fn succession(&self) -> Option<Resume> {
        let resume = Resume { attempt: self.lost + 1, seq: self.saved_seq, ..self.answers() };
        (self.lost > 0 && self.resumes()).then_some(resume)
    }

    /// Returns the answers so far.
    pub(super) fn answers(&self) -> Resume {
        Resume {
            user_inputs: self.inputs.clone(),
            delegation_results: self.results.clone(),
            ..Resume::default()
        }
    }
}
