//! Reading of messages by tools of the server: the router chooses the skill of a message that names none, the filler finds
//! arguments in a text.
//!
//! Owns: the calls of both, the bounds on what they get, and the notes about them in tasks. Keeps true: each is called once for
//! a message at one gateway, by an ordinary call of the message's caller; a router gets only skills that the caller may call
//! with this message (I-10), and only one of these is chosen; an argument that was found fits the skill's input schema; if a
//! reader fails in any way, the message is taken as if there were none; a reading ends with its request.

use std::sync::Arc;
use std::time::Duration;

use asp_a2a::SendRequest;
use asp_call::call::chosen;
use asp_call::call::lineage;
use asp_call::call::outcome::{Outcome, Output};
use asp_call::call::{Call, ClientAbilities, Invocation, Parent};
use asp_json::{Json, Members};
use asp_pipeline::pipeline::entitlement::entitle;
use asp_proto::snapshot::{OtherPrimitive, Protocol};
use asp_snapshot::ListedPrimitive;
use tokio::time::Instant;
use uuid::Uuid;

use super::message::{self, Input};
use super::{card, modes};
use crate::ProtocolRequest;
use crate::message_turns::MessageTurn;

/// Longest text that is read, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// Maximum length of the skills that a router chooses from, in bytes; those beyond are not offered to it.
const MAX_SKILLS: usize = 128 << 10;
/// Maximum duration of the call of a reader.
const LONGEST: Duration = Duration::from_secs(30);

/// Member of a kept message with the notes, which are metadata of its task.
const READING: &str = "asp/reading";
/// Notes: the chosen skill, and the tools that chose it and that found the arguments.
const SKILL: &str = "asp/skill";
const ROUTED_BY: &str = "asp/routedBy";
const FILLED_BY: &str = "asp/filledBy";

/// Reading of one message.
pub(super) struct Reading<'a> {
    request: &'a ProtocolRequest,
    send: &'a SendRequest,
    /// Task of the message, on whose behalf readers are called; set before a reader is called.
    pub(super) task: Uuid,
    notes: Members,
    /// Tokens in and out that models used for it.
    usage: (u64, u64),
}

/// Call of a reader; cancelled when dropped.
struct ReaderCall(Arc<Call>);

impl Drop for ReaderCall {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Whether the server has a tool that chooses the skill of a message that names none.
pub(super) fn has_router(request: &ProtocolRequest) -> bool {
    request.server.message.a2a_router.is_some()
}

/// Waits until no other request at this gateway reads the same message; `None` if no tool reads messages of this server.
pub(super) async fn enter_turn(request: &ProtocolRequest, send: &SendRequest) -> Option<MessageTurn> {
    let server = &request.server.message;
    if server.a2a_router.is_none() && server.a2a_filler.is_none() {
        return None;
    }
    let name = format!("a2a reading of {}", send.message.message_id);
    let message = chosen::id(&request.caller, &server.name, &name);
    Some(request.gateway.message_turns.enter(message).await)
}

/// Returns the notes in a kept message.
pub(super) fn notes(opening: Option<&Json>) -> Members {
    let noted = opening.filter(|opening| opening.text().contains(READING));
    let notes = noted.and_then(|opening| opening.member(READING));
    notes.map(|notes| Members::of(&notes)).unwrap_or_default()
}

impl<'a> Reading<'a> {
    pub(super) fn of(request: &'a ProtocolRequest, send: &'a SendRequest) -> Reading<'a> {
        Reading { request, send, task: Uuid::nil(), notes: Members::default(), usage: (0, 0) }
    }

    /// Returns the skill that the router chooses for an input; `None` if it chooses none of these, or there is no router.
    pub(super) async fn skill(
        &mut self,
        sent: &Json,
        skills: &[&Arc<ListedPrimitive>],
    ) -> Option<Arc<ListedPrimitive>> {
        let router = self.reader(self.request.server.message.a2a_router.as_ref())?;
        let text = sent.as_str().unwrap_or_else(|| sent.text());
        let usable = skills.iter().filter(|entry| self.is_usable(entry));
        let mut offered = Vec::new();
        let mut texts = Vec::new();
        let mut length = 0_usize;
        for entry in usable {
            let skill = card::skill(entry);
            length = length.saturating_add(skill.len());
            if length > MAX_SKILLS {
                break;
            }
            offered.push(*entry);
            texts.push(skill);
        }
        if offered.is_empty() || text.trim().is_empty() || text.len() > MAX_TEXT {
            return None;
        }
        let mut arguments = Members::default();
        arguments.insert("message", text);
        arguments.insert("skills", Json::part(format!("[{}]", texts.join(","))));
        let answer = self.ask(router, &arguments).await?;
        let id = answer.get("skill")?.as_str()?;
        let chosen = offered.into_iter().find(|entry| entry.listing.a2a_skill == id)?;
        self.notes.insert(SKILL, id);
        self.notes.insert(ROUTED_BY, router.primitive.id.as_str());
        Some(chosen.clone())
    }

    /// Returns arguments that the filler finds in the input of a skill; `None` if nothing is to be found, or was.
    pub(super) async fn arguments(&mut self, entry: &ListedPrimitive, input: &Input) -> Option<Json> {
        let filler = self.reader(self.request.server.message.a2a_filler.as_ref())?;
        let primitive = &entry.primitive;
        let Input::Text(text) = input else { return None };
        if !message::must_be_read(&primitive.input_schema, &primitive.a2a_text_argument, input)
            || text.len() > MAX_TEXT
        {
            return None;
        }
        let mut arguments = Members::default();
        arguments.insert("message", text.as_str());
        arguments.insert("skill", Json::part(card::skill(entry)));
        arguments.insert("schema", Json::part(primitive.input_schema.as_str()));
        let answer = self.ask(filler, &arguments).await?;
        let found = answer.member("arguments")?;
        let fitting = entry.input.as_ref()?.fitting(found.as_object()?);
        if fitting.is_empty() {
            return None;
        }
        self.notes.insert(FILLED_BY, filler.primitive.id.as_str());
        Some(Members::select(found.text(), |name| fitting.iter().any(|fits| fits == name)).to_json())
    }

    /// Returns a message as its call keeps it, with the notes.
    pub(super) fn noted(&self, opening: Json) -> Json {
        if self.notes.is_empty() {
            return opening;
        }
        let mut members = Members::of(&opening);
        members.insert(READING, self.notes.to_json());
        members.to_json()
    }

    /// Adds the tokens that were used for the message to those of its call.
    pub(super) fn charge(&self, call: &Call) {
        call.model_usage.add(self.usage);
    }

    fn reader(&self, named: Option<&OtherPrimitive>) -> Option<&'a Arc<ListedPrimitive>> {
        let request = self.request;
        named.and_then(|named| request.server.tool_by_id(&named.id, named.major))
    }

    /// Whether the caller may call the skill with this message.
    fn is_usable(&self, entry: &ListedPrimitive) -> bool {
        let ProtocolRequest { snapshot, server, caller, .. } = self.request;
        let SendRequest { message, configuration, .. } = self.send;
        entitle(snapshot, server, caller, entry, Protocol::A2a).is_ok()
            && modes::check_parts(&entry.media_types, &message.parts).is_ok()
            && modes::check_accepted(&entry.media_types, &configuration.accepted_output_modes).is_ok()
    }

    /// Returns the object that a reader answers with; `None` if it has none, whatever the reason.
    async fn ask(&mut self, reader: &Arc<ListedPrimitive>, arguments: &Members) -> Option<Json> {
        let request = self.request;
        let arguments = arguments.to_json();
        let bytes_in = arguments.text().len();
        let mut invocation = request.invocation(Protocol::A2a, reader, arguments);
        invocation.request.bytes_in = bytes_in;
        invocation.request.protocol_request_id = self.send.message.message_id.clone();
        invocation.request.meta = lineage::passed(self.send.metadata.as_ref());
        invocation.request.parent = Some(Parent { call: self.task, depth: 1 });
        let invocation = Invocation {
            deadline: Some(Instant::now() + LONGEST),
            // No client is attached to it, so that it cannot ask questions; this waits for its end.
            abilities: ClientAbilities { tasks: true, ..ClientAbilities::default() },
            ..invocation
        };
        let begun = request.gateway.pipeline.begin(request.snapshot.clone(), invocation);
        // The pipeline has logged why it did not begin, or failed.
        let call = ReaderCall(begun.ok()?);
        let outcome = call.0.finished().await;
        let (tokens_in, tokens_out) = call.0.model_usage.total();
        self.usage = (self.usage.0.saturating_add(tokens_in), self.usage.1.saturating_add(tokens_out));
        match outcome.as_ref() {
            Outcome::Done { output, .. } => object(output),
            Outcome::Refused(_) => None,
        }
    }
}

/// Returns the object that a tool answers with, as its value or as its text.
fn object(output: &Output) -> Option<Json> {
    let Output::Tool { content, structured, is_error: false, .. } = output else { return None };
    let of_text = || Json::parse_request(content.first()?.get("text")?.as_str()?.trim().as_bytes()).ok();
    structured.clone().or_else(of_text).filter(|answer| answer.is_object())
}

#[cfg(test)]
mod tests {
    use asp_a2a::Message;
    use serde_json::json;

    use super::*;

    #[test]
    fn notes_are_kept_with_the_message_and_a_client_writes_none() {
        let message = Message { message_id: "m".into(), ..Message::default() };
        let kept = Members::of(&message.to_json());
        let noted: Json = json!({"messageId": "m", "asp/reading": {"asp/skill": "pay"}}).into();
        assert_eq!(notes(Some(&noted)).to_json(), json!({"asp/skill": "pay"}));
        assert_eq!(Message::of_json(&noted).unwrap().message_id, "m");
        assert!(notes(Some(&kept.to_json())).is_empty() && notes(None).is_empty());
        let metadata = Some(json!({"asp/reading": {"asp/skill": "pay"}}).into());
        let forged = Message { metadata, ..message };
        assert!(notes(Some(&forged.to_json())).is_empty());
    }

    #[test]
    fn a_reader_answers_with_an_object_as_its_value_or_as_its_text() {
        let found = |output: &Output| object(output).map(|answer| answer.text().to_owned());
        let answer = Some(r#"{"skill":"pay"}"#.to_owned());
        assert_eq!(found(&Output::structured(json!({"skill": "pay"}))), answer);
        assert_eq!(found(&Output::text(" {\"skill\":\"pay\"}\n")), answer);
        assert_eq!(found(&Output::structured(json!(["pay"]))), None);
        assert_eq!(found(&Output::text("pay")), None);
        assert_eq!(found(&Output::tool_error(r#"{"skill":"pay"}"#)), None);
        assert_eq!(found(&Output::contents(Vec::new())), None);
    }
}
