//! The messages of a task: the one that started it, and its questions with the messages that answered them.
//!
//! Keeps true: a client's message has the id and the parts with which it was sent; what is kept of one is bounded, and the
//! size of a longer one is shown instead of its parts; so is the number of messages that are not kept.

use asp_a2a::{Message, Part, PartContent, Role};
use asp_call::call::question::{History, Turn};
use asp_json::{Json, Members, held};

use super::ids::TaskIds;
use super::parts;

/// Maximum length of a message that is kept, in bytes, and its maximum size once it is read.
const MAX_KEPT: usize = 16 * 1024;
const MAX_READ: usize = 2 * MAX_KEPT;
/// Member of the data that replaces the parts of a longer message: its length in bytes.
const OMITTED: &str = "asp/omittedBytes";
/// Member of the data that replaces the earliest questions and their answers: the number of the questions.
const OMITTED_QUESTIONS: &str = "asp/omittedQuestions";

/// Returns a client's message as its call stores it.
pub(super) fn storable(message: &Message) -> Json {
    let whole = message.to_json();
    let length = whole.text().len();
    // The estimate is an upper bound, and mostly saves the decoding.
    let is_small =
        || held::once_read(whole.text().as_bytes()) <= MAX_READ || held::of_value(whole.view()) <= MAX_READ;
    if length <= MAX_KEPT && is_small() {
        return whole;
    }
    let parts = vec![omitted(OMITTED, u64::try_from(length).unwrap_or(u64::MAX))];
    let (message_id, role) = (message.message_id.clone(), message.role);
    Message { message_id, role, parts, ..Message::default() }.to_json()
}

fn omitted(name: &str, count: u64) -> Part {
    let omitted: Members = [(name, count)].into_iter().collect();
    PartContent::Data(omitted.to_json()).into()
}

/// Returns the last messages of a task; `length`: their maximum number, `None` for all.
pub(super) fn messages(
    ids: &TaskIds,
    opening: Option<&Json>,
    history: &History,
    length: Option<u32>,
) -> Vec<Message> {
    if length == Some(0) {
        return Vec::new();
    }
    let opening = opening.and_then(|message| of_client(ids, message));
    let dropped = Some(history.dropped_turns()).filter(|count| *count > 0);
    let gap = dropped.map(|count| ids.message("omitted", vec![omitted(OMITTED_QUESTIONS, count)]));
    let turns = history.turns().flat_map(|turn| [ids.question(&turn.question), answer(ids, turn)]);
    let mut messages: Vec<Message> = opening.into_iter().chain(gap).chain(turns).collect();
    let length = length.map_or(usize::MAX, |length| usize::try_from(length).unwrap_or(usize::MAX));
    messages.split_off(messages.len().saturating_sub(length))
}

/// A message that has answered a question, for one that is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownMessage<'h> {
    /// The same message; the id of the question that it answered.
    Same(&'h str),
    /// One whose content is not kept.
    Dropped,
}

/// Returns the message that answered a question with this id and content; `None` if none did.
pub(super) fn find_known<'h>(history: &'h History, message: &Message) -> Option<KnownMessage<'h>> {
    let same = storable(message);
    let known = history.turns().find(|turn| turn.message.as_ref() == Some(&same));
    let known = known.map(|turn| KnownMessage::Same(&turn.question.id));
    known.or_else(|| history.has_dropped(&message.message_id).then_some(KnownMessage::Dropped))
}

/// Returns a client's message that was kept.
fn of_client(ids: &TaskIds, message: &Json) -> Option<Message> {
    let message = Message::of_json(message)?;
    Some(Message { context_id: ids.context_id(), task_id: Some(ids.task.clone()), ..message })
}

/// Returns the message of an answer; of an answer that came otherwise, one with its content.
fn answer(ids: &TaskIds, turn: &Turn) -> Message {
    turn.message.as_ref().and_then(|message| of_client(ids, message)).unwrap_or_else(|| Message {
        role: Role::User,
        ..ids.message(&format!("{}/answer", turn.question.id), vec![parts::of_answer(&turn.answer)])
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids() -> TaskIds {
        TaskIds { task: "t".into(), context: "c".into() }
    }

    fn message(id: &str, text: &str) -> Message {
        Message {
            message_id: id.into(),
            role: Role::User,
            parts: vec![parts::text(text)],
            ..Message::default()
        }
    }

    /// A history with two turns: the answer of the second one came without a message.
    fn history() -> History {
        let ask = json!({"Form": {"message": "?", "requested_schema": {}}});
        let turn = |id: &str| json!({"at_ms": 1, "question": {"id": id, "ask": ask}, "answer": {"Accepted": {"n": 1}}});
        let mut first = turn("a");
        first["message"] = serde_json::from_str(message("m2", "one").to_json().text()).unwrap();
        serde_json::from_str(&json!({"turns": [first, turn("b")], "gone": 0}).to_string()).unwrap()
    }

    #[test]
    fn the_history_has_the_messages_as_they_were_sent_in_their_order() {
        let opening = storable(&Message { context_id: Some("other".into()), ..message("m1", "hi") });
        let ids_of = |length| {
            let messages = messages(&ids(), Some(&opening), &history(), length);
            messages.into_iter().map(|message| message.message_id).collect::<Vec<_>>()
        };
        let all = ["m1", "t/a", "m2", "t/b", "t/b/answer"];
        assert_eq!(ids_of(None), all);
        assert_eq!(ids_of(Some(9)), all);
        assert_eq!(ids_of(Some(2)), all[3..]);
        assert_eq!(ids_of(Some(0)), Vec::<String>::new());
        let messages = messages(&ids(), Some(&opening), &history(), None);
        assert_eq!((messages[0].parts.clone(), messages[0].role), (vec![parts::text("hi")], Role::User));
        assert_eq!(messages[2].parts, [parts::text("one")]);
        for message in messages {
            assert_eq!((message.context_id.as_deref(), message.task_id.as_deref()), (Some("c"), Some("t")));
        }
    }

    #[test]
    fn a_long_message_is_replaced_by_its_length() {
        let short = message("m", &"x".repeat(MAX_KEPT / 2));
        assert_eq!(Message::of_json(&storable(&short)), Some(short));
        let long = Message { metadata: Some(json!({"a": 1}).into()), ..message("m", &"x".repeat(MAX_KEPT)) };
        let bytes = long.to_json().text().len();
        let expected = PartContent::Data(json!({OMITTED: bytes}).into()).into();
        let kept = Message::of_json(&storable(&long)).unwrap();
        assert_eq!(kept, Message { parts: vec![expected], metadata: None, ..long });
        let zeros: Vec<u64> = vec![0; MAX_KEPT / 4];
        let parts = vec![PartContent::Data(json!({"a": zeros}).into()).into()];
        let many_values = storable(&Message { parts, ..message("m", "") });
        assert!(many_values.text().contains(OMITTED), "it is short and takes much memory");
    }

    #[test]
    fn messages_that_are_not_kept_are_counted_and_known() {
        let dropped = json!({"turns": [], "gone": 3, "ids": ["m2"]});
        let history: History = serde_json::from_value(dropped).unwrap();
        let opening = storable(&message("m1", "hi"));
        let messages = messages(&ids(), Some(&opening), &history, None);
        let names: Vec<&str> = messages.iter().map(|message| message.message_id.as_str()).collect();
        assert_eq!(names, ["m1", "t/omitted"]);
        let gap = PartContent::Data(json!({OMITTED_QUESTIONS: 3}).into());
        assert_eq!(messages[1].parts, [Part::from(gap)]);
        assert_eq!(find_known(&history, &message("m2", "any")), Some(KnownMessage::Dropped));
        assert_eq!(find_known(&history, &message("m3", "any")), None);
    }

    #[test]
    fn a_message_is_repeated_if_its_id_and_its_content_are_known() {
        let history = history();
        let known = |message: &Message| find_known(&history, message);
        assert_eq!(known(&message("m2", "one")), Some(KnownMessage::Same("a")));
        assert_eq!(known(&message("m2", "two")), None, "another message under its id");
        assert_eq!(known(&message("m3", "one")), None);
        assert_eq!(known(&message("b", "one")), None);
    }

    #[test]
    fn a_task_without_messages_has_no_history() {
        assert!(messages(&ids(), None, &History::default(), None).is_empty());
    }
}
