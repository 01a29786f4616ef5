//! What a plugin call has come to, over all the workers it had: what the next one needs to go on.
//!
//! Keeps true: an answer that was given once is never asked for again; everything here is bounded.

use std::collections::HashMap;

use asp_proto::plugin::deliver_user_input::Action;
use asp_proto::plugin::{DeliverDelegationResult, DeliverUserInput, Resume};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use prost::Message;

use super::artifacts::Emitted;
use super::results::Chunks;

/// Most bytes of answers a call keeps for its next worker: they travel in one message with the arguments.
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
    /// What it answers.
    pub(super) fn key(&self) -> Key {
        match self {
            Delivery::Input(input) => Key::Input(input.elicitation_id.clone()),
            Delivery::Delegation(result) => Key::Delegation(result.correlation_id.clone()),
        }
    }

    /// Why there is no answer; empty when there is one.
    pub(super) fn error(&self) -> &str {
        match self {
            Delivery::Input(input) => &input.error,
            Delivery::Delegation(result) => &result.error,
        }
    }
}

/// How a worker names what it asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Input(String),
    Delegation(String),
}

/// Something that is asked and not answered.
pub(super) struct OpenQuestion {
    /// The attempt that asked last.
    pub attempt: u32,
    /// Id of the question to the client; `None` if the client is not asked.
    pub question: Option<String>,
}

/// A page that a user was asked to see.
pub(super) struct Page {
    /// Its question's.
    pub id: String,
    /// The user has said yes.
    pub is_agreed: bool,
}

/// The call so far.
#[derive(Default)]
pub(super) struct AttemptState {
    /// Which attempt is running, from 1; not every one finds a worker.
    pub attempt: u32,
    /// How many workers were given the call and lost.
    pub lost: u32,
    /// How many gateways took the call over since its last checkpoint.
    pub taken: u32,
    /// The plugin's own id of its task.
    pub task_id: String,
    /// The plugin says that it saves checkpoints and resumes.
    pub checkpoints: bool,
    /// The number of the last stored checkpoint; 0 before the first.
    pub saved_seq: u64,
    /// The parts of the result so far, and how many of them a successor does not send again.
    pub chunks: Chunks,
    pub emitted: Emitted,
    pub(super) inputs: Vec<DeliverUserInput>,
    pub(super) results: Vec<DeliverDelegationResult>,
    pub(super) answers_size: usize,
    /// How often a read or a prompt has asked.
    pub rounds: u32,
    /// How many questions were opened; makes their ids unique.
    pub questions: u32,
    /// Questions and delegations that are not answered.
    pub open: HashMap<Key, OpenQuestion>,
    /// Ids of the questions that were open at a gateway that is gone, until they are asked again: no more than were open.
    pub reserved: HashMap<Key, String>,
    /// Ids of the questions whose answers are part of the state, and not stored with it yet.
    pub unsaved: Vec<String>,
    /// The pages that a user was asked to see, by their declared ids: no more than the primitive declares.
    pub pages: HashMap<String, Page>,
    /// What was answered to a read or a prompt, also that nobody did; `None` before it asked.
    pub given: Option<Resume>,
    /// The waits for the answers; they outlive the worker that asked.
    pub waiting: FuturesUnordered<BoxFuture<'static, Delivery>>,
}

impl AttemptState {
    /// Whether another worker can go on where this one stopped.
    pub(super) fn resumes(&self) -> bool {
        self.checkpoints || self.saved_seq > 0
    }

    /// A checkpoint is stored: what came before it will not come again.
    pub(super) fn saved(&mut self, seq: u64) {
        self.saved_seq = seq;
        self.taken = 0;
        self.chunks.mark();
    }

    /// Another worker begins: what it will send again is forgotten.
    pub(super) fn next_attempt(&mut self) {
        self.attempt += 1;
        if self.resumes() {
            self.chunks.rewind();
        } else {
            self.chunks = Chunks::default();
            self.emitted.clear();
        }
    }

    /// Takes note of an answer. Those that failed are asked for again.
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

    /// A page is shown to nobody but those who agree to see it.
    fn decided(&mut self, input: &DeliverUserInput) {
        if input.error.is_empty() && input.action() == Action::Accept {
            self.pages.entry(input.elicitation_id.clone()).and_modify(|page| page.is_agreed = true);
        } else {
            self.pages.remove(&input.elicitation_id);
        }
    }

    /// Returns the id of a question to the client: the one under which a former gateway had it open, else the declared one,
    /// made unique.
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

    /// Whether the client is asked, and its answer is not there yet.
    pub(super) fn asks_client(&self, key: &Key) -> bool {
        self.open.get(key).is_some_and(|open| open.question.is_some())
    }

    /// The questions that wait for the client or are to be asked again, and their ids.
    pub(super) fn open_ids(&self) -> impl Iterator<Item = (&Key, &String)> {
        let open = self.open.iter().filter_map(|(key, open)| Some((key, open.question.as_ref()?)));
        open.chain(&self.reserved)
    }

    /// Takes note of answers that were given on another gateway.
    pub(super) fn remember(&mut self, inputs: Vec<DeliverUserInput>, results: Vec<DeliverDelegationResult>) {
        let inputs = inputs.into_iter().map(Delivery::Input);
        for delivery in inputs.chain(results.into_iter().map(Delivery::Delegation)) {
            self.answered(&delivery);
        }
    }

    /// What the next execution goes on with, its capsule aside; `None` when it starts from the beginning.
    pub(super) fn succession(&self) -> Option<Resume> {
        let resume = Resume { attempt: self.lost + 1, seq: self.saved_seq, ..self.answers() };
        (self.lost > 0 && self.resumes()).then_some(resume)
    }

    /// The answers that were given so far.
    pub(super) fn answers(&self) -> Resume {
        Resume {
            user_inputs: self.inputs.clone(),
            delegation_results: self.results.clone(),
            ..Resume::default()
        }
    }
}
