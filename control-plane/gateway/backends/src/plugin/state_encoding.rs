//! Encoding of a call's state as bytes, for the gateway that takes the call over.
//!
//! Owns: the encoding. Keeps true: the restored state equals the stored one; an open question keeps its id at the
//! next gateway; the worker that had the call at the previous gateway counts as lost.

use asp_proto::plugin::Resume;
use prost::Message;

use super::artifacts::{EmittedArtifacts, EmittedItem};
use super::attempt_state::{AttemptState, Key};
use super::results::Chunks;

/// Stored state of a call.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Memory {
    #[prost(message, optional, tag = "1")]
    pub answers: Option<Resume>,
    #[prost(string, tag = "2")]
    pub task_id: String,
    #[prost(bool, tag = "3")]
    pub checkpoints: bool,
    #[prost(uint32, tag = "4")]
    pub lost: u32,
    /// Number of questions without the open inputs: a gateway of a version that does not read `open` counts those
    /// again.
    #[prost(uint32, tag = "5")]
    pub questions: u32,
    #[prost(string, tag = "6")]
    pub chunks: String,
    #[prost(uint64, tag = "7")]
    pub dropped: u64,
    #[prost(message, repeated, tag = "8")]
    pub emitted: Vec<EmittedItem>,
    #[prost(uint32, tag = "9")]
    pub taken: u32,
    /// Open questions: a successor asks them again, under the same ids.
    #[prost(message, repeated, tag = "10")]
    pub open: Vec<OpenId>,
}

/// The id of an open question to the client.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OpenId {
    /// The worker's key of the question.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Whether a model or the roots are asked for, and not the user.
    #[prost(bool, tag = "2")]
    pub is_delegation: bool,
    #[prost(string, tag = "3")]
    pub id: String,
}

impl OpenId {
    fn of((key, id): (&Key, &String)) -> OpenId {
        let (key, is_delegation) = match key {
            Key::Input(key) => (key, false),
            Key::Delegation(key) => (key, true),
        };
        OpenId { key: key.clone(), is_delegation, id: id.clone() }
    }

    fn reserved(self) -> (Key, String) {
        let key = if self.is_delegation { Key::Delegation(self.key) } else { Key::Input(self.key) };
        (key, self.id)
    }
}

/// Returns the number of questions to the user among these.
fn inputs(open: &[OpenId]) -> u32 {
    let inputs = open.iter().filter(|open| !open.is_delegation).count();
    u32::try_from(inputs).unwrap_or(u32::MAX)
}

impl AttemptState {
    /// Encodes the state; `marked` if a checkpoint is being stored, so that no chunk is sent again.
    pub(super) fn memory(&self, marked: bool) -> Vec<u8> {
        let (chunks, dropped) = self.chunks.saved_text(marked);
        let open: Vec<OpenId> = self.open_ids().map(OpenId::of).collect();
        let memory = Memory {
            answers: Some(self.answers()),
            task_id: self.task_id.clone(),
            checkpoints: self.checkpoints,
            lost: self.lost,
            questions: self.questions.saturating_sub(inputs(&open)),
            chunks: chunks.to_owned(),
            dropped: dropped as u64,
            emitted: self.emitted.stored_items(),
            taken: if marked { 0 } else { self.taken },
            open,
        };
        memory.encode_to_vec()
    }

    /// Restores the state of a call whose gateway is gone; `seq` is the number of its last checkpoint. A state that
    /// cannot be decoded is treated as if none had been stored.
    pub(super) fn restored(state: &[u8], seq: u64) -> AttemptState {
        let memory = Memory::decode(state).unwrap_or_default();
        let Resume { user_inputs, delegation_results, .. } = memory.answers.unwrap_or_default();
        let mut attempt_state = AttemptState {
            lost: memory.lost + 1,
            attempt: memory.lost + 1,
            taken: memory.taken + 1,
            task_id: memory.task_id,
            checkpoints: memory.checkpoints,
            saved_seq: seq,
            questions: memory.questions.saturating_add(inputs(&memory.open)),
            reserved: memory.open.into_iter().map(OpenId::reserved).collect(),
            chunks: Chunks::restored(memory.chunks, memory.dropped),
            emitted: EmittedArtifacts::restored(memory.emitted),
            ..AttemptState::default()
        };
        attempt_state.remember(user_inputs, delegation_results);
        attempt_state
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::plugin::{DeliverUserInput, ResultChunk};

    use super::*;
    use crate::plugin::attempt_state::{Delivery, OpenQuestion};

    fn chunk(text: &str) -> ResultChunk {
        ResultChunk { text: text.into(), ..ResultChunk::default() }
    }

    #[test]
    fn a_restored_state_goes_on_where_the_stored_one_stopped() {
        let mut attempt_state =
            AttemptState { checkpoints: true, task_id: "t".into(), ..AttemptState::default() };
        attempt_state.next_attempt();
        attempt_state.chunks.push(&chunk("kept "));
        let input = DeliverUserInput { elicitation_id: "name".into(), ..DeliverUserInput::default() };
        attempt_state.answered(&Delivery::Input(input.clone()));
        attempt_state.saved(3);
        attempt_state.chunks.push(&chunk("comes again"));
        let restored = AttemptState::restored(&attempt_state.memory(false), 3);
        assert_eq!(restored.chunks.saved_text(false), ("kept ", 0));
        let resume = restored.succession().unwrap();
        assert_eq!((resume.seq, resume.attempt, resume.user_inputs), (3, 2, vec![input]));
        assert_eq!((restored.task_id.as_str(), restored.resumes()), ("t", true));
        let again = AttemptState::restored(&attempt_state.memory(true), 4);
        assert_eq!(again.chunks.saved_text(false), ("kept comes again", 0));
    }

    /// Asks something, and returns the id of the question.
    fn ask(attempt_state: &mut AttemptState, key: &Key, declared: &str) -> String {
        attempt_state.open.insert(key.clone(), OpenQuestion { attempt: 1, question: None });
        attempt_state.question_id(key, declared)
    }

    #[test]
    fn an_open_question_has_the_same_id_where_its_call_goes_on() {
        let [name, size] = ["name", "size"].map(|id| Key::Input(id.into()));
        let model = Key::Delegation("d-1".into());
        let mut attempt_state = AttemptState { checkpoints: true, ..AttemptState::default() };
        assert_eq!(ask(&mut attempt_state, &name, "name"), "name");
        assert_eq!(ask(&mut attempt_state, &size, "size"), "size.2");
        assert_eq!(ask(&mut attempt_state, &model, "model"), "model.3");
        let input = DeliverUserInput { elicitation_id: "name".into(), ..DeliverUserInput::default() };
        attempt_state.answered(&Delivery::Input(input));
        // Also where a second gateway is gone before its worker has asked anything.
        let restored = AttemptState::restored(&attempt_state.memory(false), 0);
        let mut restored = AttemptState::restored(&restored.memory(false), 0);
        assert_eq!(ask(&mut restored, &model, "model"), "model.3");
        assert_eq!(ask(&mut restored, &size, "size"), "size.2");
        assert_eq!(ask(&mut restored, &name, "name"), "name.4", "another question has another id");
    }

    #[test]
    fn the_gateways_that_had_a_call_are_counted_until_it_gets_on() {
        let mut attempt_state = AttemptState { checkpoints: true, ..AttemptState::default() };
        for taken in 1..=3 {
            attempt_state = AttemptState::restored(&attempt_state.memory(false), 0);
            assert_eq!((attempt_state.taken, attempt_state.lost), (taken, taken));
        }
        assert_eq!(AttemptState::restored(&attempt_state.memory(true), 1).taken, 1);
        attempt_state.saved(1);
        assert_eq!(attempt_state.taken, 0);
    }

    #[test]
    fn a_call_of_which_nothing_was_stored_starts_again_or_not_at_all() {
        let restored = AttemptState::restored(&[], 0);
        assert!(!restored.resumes());
        assert_eq!((restored.lost, restored.succession()), (1, None));
    }
}
