//! The answered questions of a call, for clients that attach late.
//!
//! Keeps true: questions are ordered by the time of their answers; the size is bounded, whatever a call asks and
//! however large the answers are (I-4): the earliest are dropped first and counted, never left out silently; the ids of
//! messages outlive their turns, so that a repeated message is known.

use std::collections::VecDeque;

use asp_json::{Json, Members, held};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, Ask, MESSAGE_ID, Question};

/// Maximum number of turns that are kept, and their maximum size in bytes.
const MAX_TURNS: usize = 32;
const MAX_HELD: usize = 64 * 1024;
/// Maximum size of a turn with a message and an answer, in bytes; of a larger one the message alone is kept.
const MAX_TURN: usize = MAX_HELD / 2;
/// Maximum number of ids that are kept of the messages of dropped turns.
const MAX_IDS: usize = 128;

/// A question with its answer. Other gateways read it: members are only added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Time of the answer, in Unix milliseconds.
    pub at_ms: u64,
    pub question: Question,
    pub answer: Answer,
    /// See [`super::CallerAnswer`].
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "asp_json::raw_option")]
    pub message: Option<Json>,
    /// Whether another gateway got the answer.
    #[serde(skip)]
    pub(super) is_restored: bool,
}

/// The turns of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    turns: VecDeque<Turn>,
    /// Size in bytes; not of a history that was read, which only [`History::restore`] counts.
    #[serde(skip)]
    held: usize,
    gone: u64,
    /// Ids of the messages of dropped turns, the last ones.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    ids: VecDeque<String>,
}

impl History {
    /// Returns the turns that are kept, in order.
    pub fn turns(&self) -> impl Iterator<Item = &Turn> {
        self.turns.iter()
    }

    /// Returns the number of earlier turns that were dropped.
    pub fn dropped_turns(&self) -> u64 {
        self.gone
    }

    /// Whether the message with this id belongs to a turn that was dropped.
    pub fn has_dropped(&self, message_id: &str) -> bool {
        self.ids.iter().any(|id| id == message_id)
    }

    /// Adds the turns of a record.
    pub(super) fn restore(&mut self, stored: History) {
        self.gone += stored.gone;
        stored.ids.into_iter().for_each(|id| self.keep_id(id));
        stored.turns.into_iter().for_each(|turn| self.restore_turn(turn));
    }

    /// Adds a turn of another gateway at its time, unless it is there.
    pub(super) fn restore_turn(&mut self, turn: Turn) {
        let is_it = |known: &Turn| known.question.id == turn.question.id && known.message == turn.message;
        if !self.turns.iter().any(is_it) {
            let at = self.turns.partition_point(|known| known.at_ms <= turn.at_ms);
            self.insert(at, Turn { is_restored: true, ..turn });
        }
    }

    pub(super) fn take(&mut self, turn: Turn) {
        self.insert(self.turns.len(), turn);
    }

    fn insert(&mut self, at: usize, turn: Turn) {
        let turn = turn.bounded();
        self.held += turn.held_bytes();
        self.turns.insert(at, turn);
        while self.turns.len() > MAX_TURNS || self.held > MAX_HELD {
            let Some(earliest) = self.turns.pop_front() else { return };
            self.held -= earliest.held_bytes();
            self.gone += 1;
            if let Some(id) = earliest.message_id() {
                self.keep_id(id.to_owned());
            }
        }
    }

    fn keep_id(&mut self, id: String) {
        if self.ids.len() >= MAX_IDS {
            self.ids.pop_front();
        }
        self.ids.push_back(id);
    }

    /// Returns the size of the turns and ids in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.held + self.ids.iter().map(|id| size_of::<String>() + id.len()).sum::<usize>()
    }
}

impl Turn {
    fn message_id(&self) -> Option<&str> {
        self.message.as_ref()?.get(MESSAGE_ID).and_then(Value::as_str)
    }

    /// Returns a turn that is too large without the content of its answer, which its message has.
    fn bounded(self) -> Turn {
        let has_content_twice = self.message.is_some() && matches!(self.answer, Answer::Accepted(_));
        if !has_content_twice || self.held_bytes() <= MAX_TURN {
            return self;
        }
        Turn { answer: Answer::Accepted(Members::default().to_json()), ..self }
    }

    fn held_bytes(&self) -> usize {
        // Views are always counted, so that reading one does not change the size.
        let of_json = |json: &Json| json.text().len() + held::of_value(json.view());
        let question = match &self.question.ask {
            Ask::Form { message, requested_schema, .. } => message.len() + of_json(requested_schema),
            Ask::Page { message, url } => message.len() + url.len(),
            Ask::Sampling(params) => of_json(params),
            Ask::Roots => 0,
        };
        let answer = match &self.answer {
            Answer::Accepted(said) | Answer::Sampled(said) | Answer::Roots(said) => of_json(said),
            Answer::Failed(why) => why.len(),
            Answer::Declined | Answer::Cancelled => 0,
        };
        let message = self.message.as_ref().map_or(0, of_json);
        size_of::<Turn>() + self.question.id.len() + question + answer + message
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(number: u64, text: &str) -> Turn {
        let ask = Ask::Form { message: "?".into(), requested_schema: json!({}).into(), relayed: false };
        let question = Question { id: number.to_string(), ask };
        let answer = Answer::Accepted(json!({"text": text}).into());
        Turn { at_ms: number, question, answer, message: None, is_restored: false }
    }

    fn kept(history: &History) -> Vec<u64> {
        history.turns().map(|turn| turn.at_ms).collect()
    }

    /// Invariant I-4: the bound of a call's history.
    #[test]
    fn the_last_turns_stay_and_those_that_are_gone_are_counted() {
        let mut history = History::default();
        (0..40).for_each(|number| history.take(turn(number, "short")));
        assert_eq!(kept(&history), (8..40).collect::<Vec<_>>());
        assert_eq!(history.dropped_turns(), 8);
        history.take(turn(40, &"x".repeat(MAX_HELD / 2 - 1024)));
        assert_eq!(kept(&history).last(), Some(&40));
        assert!(history.held_bytes() <= MAX_HELD && history.dropped_turns() > 30);
        history.take(turn(41, &"x".repeat(MAX_HELD)));
        assert_eq!((kept(&history), history.held_bytes(), history.dropped_turns()), (vec![], 0, 42));
    }

    #[test]
    fn a_stored_history_is_bounded_again_and_its_messages_count() {
        let mut history = History::default();
        (0..40).for_each(|number| history.take(turn(number, "short")));
        let said = Json::part(r#"{"parts":[{"text":"1.50"}]}"#);
        let short = history.held_bytes();
        history.take(Turn { message: Some(said.clone()), ..turn(40, "short") });
        assert!(history.held_bytes() > short + said.text().len());
        let text = serde_json::to_string(&history).unwrap();
        let mut restored = History::default();
        restored.restore(serde_json::from_str(&text).unwrap());
        assert_eq!((kept(&restored), restored.held_bytes()), (kept(&history), history.held_bytes()));
        assert_eq!(restored.dropped_turns(), history.dropped_turns());
        let known = restored.turns().last().unwrap().clone();
        restored.restore_turn(known);
        assert_eq!(kept(&restored), kept(&history), "it is there");
        assert_eq!(restored.turns().last().unwrap().message.as_ref().map(Json::text), Some(said.text()));
    }

    #[test]
    fn a_large_answer_is_left_out_and_its_message_is_known_beyond_its_turn() {
        let with_id = |number: u64, text: &str| {
            let message = json!({MESSAGE_ID: format!("m{number}")}).into();
            Turn { message: Some(message), ..turn(number, text) }
        };
        let mut history = History::default();
        history.take(with_id(0, &"x".repeat(MAX_HELD)));
        let answers: Vec<&Answer> = history.turns().map(|turn| &turn.answer).collect();
        assert_eq!(answers, [&Answer::Accepted(json!({}).into())]);
        let count = |all: usize| u64::try_from(all).unwrap();
        (1..count(MAX_TURNS + MAX_IDS)).for_each(|number| history.take(with_id(number, "short")));
        let text = serde_json::to_string(&history).unwrap();
        let mut restored = History::default();
        restored.restore(serde_json::from_str(&text).unwrap());
        for mut history in [history, restored] {
            assert!(history.has_dropped("m0") && history.has_dropped("m127"));
            assert!(!history.has_dropped("m128"), "its turn is kept");
            assert!(history.held_bytes() < MAX_HELD);
            history.take(with_id(count(MAX_TURNS + MAX_IDS), "short"));
            assert!(!history.has_dropped("m0") && history.has_dropped("m128"), "the number is bounded");
        }
    }

    #[test]
    fn a_turn_of_another_gateway_has_its_place_by_time() {
        let mut history = History::default();
        history.take(turn(3, "own"));
        for number in [1, 4, 1] {
            history.restore_turn(turn(number, "of another"));
        }
        assert_eq!(kept(&history), [1, 3, 4]);
        let restored: Vec<bool> = history.turns().map(|turn| turn.is_restored).collect();
        assert_eq!(restored, [true, false, true]);
    }
}
