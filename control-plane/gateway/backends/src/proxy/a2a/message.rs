//! Messages to an agent: the arguments of a call, and answers to the agent's questions.
//!
//! Keeps true: a call's idempotency key is the id of its first message, so that an agent may recognise a repeated one; values
//! keep their text (I-14).

use asp_a2a::{Message, Part, PartContent, Role};
use asp_call::call::Call;
use asp_json::{Json, Members, string};
use asp_proto::snapshot::ProxyA2a;

use crate::outbound::upstream::idempotency_key;

/// Metadata of a message with the id of the skill.
const SKILL: &str = "skill";

/// Returns the message that starts a task.
pub(super) fn opening(call: &Call, target: &ProxyA2a, arguments: &Json) -> Message {
    let named = [(SKILL, target.skill.as_str())].into_iter().filter(|(_, skill)| !skill.is_empty());
    let metadata: Members = named.collect();
    Message {
        message_id: idempotency_key(call),
        role: Role::User,
        parts: vec![part(&target.text_argument, arguments)],
        metadata: (!metadata.is_empty()).then(|| metadata.to_json()),
        ..Message::default()
    }
}

/// Returns the message with an answer to question number `question` of a task.
pub(super) fn answer(call: &Call, question: u32, part: Part, metadata: &Members) -> Message {
    Message {
        message_id: format!("{}/{question}", idempotency_key(call)),
        role: Role::User,
        parts: vec![part],
        metadata: (!metadata.is_empty()).then(|| metadata.to_json()),
        ..Message::default()
    }
}

/// Returns the arguments as text, if only the argument for a text is there; otherwise as data.
fn part(text_argument: &str, arguments: &Json) -> Part {
    let members = Members::of(arguments);
    let mut members = members.iter();
    let text = match (members.next(), members.next()) {
        (Some((name, value)), None) if name == text_argument => string(value.text()),
        _ => None,
    };
    match text.filter(|text| !text.is_empty()) {
        Some(text) => PartContent::Text(text.into_owned()).into(),
        None => PartContent::Data(arguments.clone()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(arguments: &str) -> PartContent {
        part("message", &Json::parse(arguments.as_bytes()).unwrap()).content
    }

    #[test]
    fn the_one_text_is_a_text_and_everything_else_is_data() {
        assert_eq!(sent(r#"{"message":"hi\n\"you\""}"#), PartContent::Text("hi\n\"you\"".into()));
        for data in
            [r#"{"message":7}"#, r#"{"message":""}"#, r#"{"text":"hi"}"#, r#"{"message":"a","n":1.50}"#, "{}"]
        {
            let PartContent::Data(sent) = sent(data) else { panic!("{data}") };
            assert_eq!(sent.text(), data);
        }
    }
}
