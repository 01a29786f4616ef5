//! What a call has come to, as bytes, for whoever goes on with the call on another gateway.
//!
//! Owns: the encoding. Keeps true: what was restored is what was stored; the worker that had the call on the
//! gateway that is gone counts as lost.

use asp_proto::plugin::Resume;
use prost::Message;

use super::artifacts::{Emitted, EmittedItem};
use super::attempt_state::AttemptState;
use super::results::Chunks;

/// What a call has come to.
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
    /// Without those that are open: a successor asks them again, under the same ids.
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
}

impl AttemptState {
    /// The state as bytes; `marked` where a checkpoint is being stored, so that no chunk comes again.
    pub(super) fn memory(&self, marked: bool) -> Vec<u8> {
        let (chunks, dropped) = self.chunks.kept(marked);
        let memory = Memory {
            answers: Some(self.answers()),
            task_id: self.task_id.clone(),
            checkpoints: self.checkpoints,
            lost: self.lost,
            questions: self.questions.saturating_sub(self.open_inputs()),
            chunks: chunks.to_owned(),
            dropped: dropped as u64,
            emitted: self.emitted.kept(),
            taken: if marked { 0 } else { self.taken },
        };
        memory.encode_to_vec()
    }

    /// The state of a call whose gateway is gone; `seq` is the number of its last checkpoint. What cannot be
    /// read is as if nothing had been stored.
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
            questions: memory.questions,
            chunks: Chunks::restored(memory.chunks, memory.dropped),
            emitted: Emitted::restored(memory.emitted),
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
    use crate::executors::plugin::attempt_state::Delivery;

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
        assert_eq!(restored.chunks.kept(false), ("kept ", 0));
        let resume = restored.succession().unwrap();
        assert_eq!((resume.seq, resume.attempt, resume.user_inputs), (3, 2, vec![input]));
        assert_eq!((restored.task_id.as_str(), restored.resumes()), ("t", true));
        let again = AttemptState::restored(&attempt_state.memory(true), 4);
        assert_eq!(again.chunks.kept(false), ("kept comes again", 0));
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
