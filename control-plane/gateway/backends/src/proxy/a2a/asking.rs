//! Questions of an agent to its caller, and the answers for the agent.
//!
//! Owns: how a status that waits for input or for a sign-in becomes a question of the call, and an answer a message. Refuses:
//! pages that the spec does not name: an agent cannot send a user anywhere else.

use asp_a2a::{Part, PartContent, TaskState, TaskStatus};
use asp_call::call::event::cut_text;
use asp_call::call::question::{Answer, Ask};
use asp_call::call::{form, page};
use asp_json::{Json, Members};
use serde_json::{Value, json};

use super::content;
use crate::conversation::asking::MAX_FORM;

/// Members of a question's data part as this platform writes it: its id, and the schema of the answer or the page.
const QUESTION: &str = "questionId";
const SCHEMAS: [&str; 2] = ["schema", "requestedSchema"];
/// Members with the address of a page at which a user signs in.
const PAGES: [&str; 3] = ["url", "authorizationUrl", "authUrl"];
/// Metadata of an answer that accepts nothing.
const ACTION: &str = "action";
/// Field of the form for an answer in words.
const WORDS: &str = "message";
/// Answer to a page that the user has visited, or to a question without an answer in words.
const DONE: &str = "done";
/// Text of a question that has none.
const UNSAID: &str = "the agent asks for more input";

/// A question of an agent.
#[derive(Debug, PartialEq)]
pub(super) struct AgentQuestion {
    pub(super) ask: Ask,
    /// The agent's own id.
    id: Option<String>,
    /// Whether the answer is a text.
    is_in_words: bool,
}

/// The agent sends its user to a page that the spec does not name.
#[derive(Debug, PartialEq)]
pub(super) struct UndeclaredPage;

impl AgentQuestion {
    /// Reads the question of a status. The answer has the form that the agent states, or else it is a text.
    pub(super) fn read(status: &TaskStatus, pages: &[String]) -> Result<AgentQuestion, UndeclaredPage> {
        let parts: &[Part] = status.message.as_ref().map_or(&[], |message| message.parts.as_slice());
        let data = parts.iter().find_map(|part| match &part.content {
            PartContent::Data(value) if value.is_object() => Some(value),
            _ => None,
        });
        let text = content::text(parts);
        let message = cut_text(if text.is_empty() { UNSAID.to_owned() } else { text });
        let named = |name: &str| data.and_then(|data| data.get(name)?.as_str());
        let id = named(QUESTION).map(str::to_owned);
        let is_sign_in = status.state == TaskState::AuthRequired;
        if let Some(asked) = PAGES.into_iter().find_map(named).filter(|_| is_sign_in) {
            let url = pages.iter().find_map(|page| page::address(page, asked)).ok_or(UndeclaredPage)?;
            return Ok(AgentQuestion { ask: Ask::Page { message, url }, id, is_in_words: false });
        }
        let stated = data.and_then(|data| SCHEMAS.iter().find_map(|name| data.member(name)));
        let form = stated.and_then(|schema| form_of(&schema));
        let is_in_words = form.is_none();
        let requested_schema = form.unwrap_or_else(|| words(!is_sign_in));
        let ask = Ask::Form { message, requested_schema, relayed: true };
        Ok(AgentQuestion { ask, id, is_in_words })
    }

    /// Returns the text of the question.
    pub(super) fn text(&self) -> &str {
        match &self.ask {
            Ask::Form { message, .. } | Ask::Page { message, .. } => message,
            Ask::Sampling(_) | Ask::Roots => UNSAID,
        }
    }

    /// Returns content and metadata of the message with the answer.
    pub(super) fn answer(&self, answer: &Answer) -> (Part, Members) {
        let mut metadata: Members = self.id.iter().map(|id| (QUESTION, Json::from(id.as_str()))).collect();
        let content = match answer {
            Answer::Accepted(content) if self.is_in_words => {
                let text = content.get(WORDS).and_then(Value::as_str).filter(|text| !text.is_empty());
                PartContent::Text(text.unwrap_or(DONE).to_owned())
            }
            Answer::Accepted(_) if matches!(self.ask, Ask::Page { .. }) => PartContent::Text(DONE.to_owned()),
            Answer::Accepted(content) => PartContent::Data(content.clone()),
            Answer::Cancelled => refused("cancel", &mut metadata),
            Answer::Declined | Answer::Sampled(_) | Answer::Roots(_) | Answer::Failed(_) => {
                refused("decline", &mut metadata)
            }
        };
        (content.into(), metadata)
    }
}

fn refused(action: &str, metadata: &mut Members) -> PartContent {
    metadata.insert(ACTION, action);
    PartContent::Text(action.to_owned())
}

/// Returns the form of a schema, if it is one that clients can show.
fn form_of(schema: &Json) -> Option<Json> {
    if schema.text().len() > MAX_FORM {
        return None;
    }
    let plain = form::plain(schema.view().clone(), MAX_FORM).ok()?;
    form::check_relayed(&plain).ok()?;
    Some(schema.changed_to(plain))
}

/// Returns the form for an answer in words.
fn words(is_required: bool) -> Json {
    let required: &[&str] = if is_required { &[WORDS] } else { &[] };
    json!({"type": "object", "properties": {WORDS: {"type": "string"}}, "required": required}).into()
}

#[cfg(test)]
mod tests {
    use asp_a2a::Message;

    use super::*;

    fn read(state: TaskState, parts: Vec<PartContent>) -> Result<AgentQuestion, UndeclaredPage> {
        let parts = parts.into_iter().map(Part::from).collect();
        let message = Some(Message { parts, ..Message::default() });
        let pages = ["https://login.example.com/agent".to_owned()];
        AgentQuestion::read(&TaskStatus { state, message, timestamp: None }, &pages)
    }

    fn text(text: &str) -> PartContent {
        PartContent::Text(text.into())
    }

    fn data(value: Value) -> PartContent {
        PartContent::Data(value.into())
    }

    #[test]
    fn a_question_is_a_text_or_the_form_that_the_agent_states() {
        let schema =
            json!({"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]});
        let stated = vec![text("When?"), data(json!({"questionId": "q", "schema": schema}))];
        let asked = read(TaskState::InputRequired, stated).unwrap();
        assert_eq!(asked.text(), "When?");
        let Ask::Form { requested_schema, relayed: true, .. } = &asked.ask else { panic!("{asked:?}") };
        assert_eq!(*requested_schema, schema);
        let (part, metadata) = asked.answer(&Answer::Accepted(json!({"day": "today"}).into()));
        assert_eq!(part.content, data(json!({"day": "today"})));
        assert_eq!(metadata.to_json().text(), r#"{"questionId":"q"}"#);
        let (_, metadata) = asked.answer(&Answer::Declined);
        assert_eq!(metadata.to_json().text(), r#"{"questionId":"q","action":"decline"}"#);

        // A nested form is none that clients can show.
        let nested = json!({"schema": {"type": "object", "properties": {"a": {"type": "object"}}}});
        for (parts, question) in
            [(vec![text("When?")], "When?"), (vec![], UNSAID), (vec![text("When?"), data(nested)], "When?")]
        {
            let asked = read(TaskState::InputRequired, parts).unwrap();
            assert_eq!(asked.text(), question);
            let (part, metadata) = asked.answer(&Answer::Accepted(json!({"message": "today"}).into()));
            assert_eq!((part.content, metadata.is_empty()), (text("today"), true));
        }
    }

    #[test]
    fn a_user_signs_in_only_at_a_page_that_the_spec_names() {
        let at = |url: &str| read(TaskState::AuthRequired, vec![text("Sign in"), data(json!({"url": url}))]);
        let asked = at("https://login.example.com/agent/7").unwrap();
        let url = "https://login.example.com/agent/7".to_owned();
        assert_eq!(asked.ask, Ask::Page { message: "Sign in".into(), url });
        assert_eq!(asked.answer(&Answer::Accepted(json!({}).into())).0.content, text(DONE));
        assert_eq!(at("https://evil.example.com/agent/7"), Err(UndeclaredPage));
        // Without a page the user signs in elsewhere, and says so.
        let asked = read(TaskState::AuthRequired, vec![text("Sign in")]).unwrap();
        assert_eq!(asked.answer(&Answer::Accepted(json!({}).into())).0.content, text(DONE));
        // A page that is no sign-in is data of a question.
        assert!(
            read(TaskState::InputRequired, vec![data(json!({"url": "https://evil.example.com"}))]).is_ok()
        );
    }
}
