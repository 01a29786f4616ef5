//! Scripted answers, in place of a user and of models.
//!
//! Owns their syntax: `its_id=JSON` on a command line, and `answers` in an example. Keeps true: a question without an answer
//! is answered with `unsupported`.

use std::collections::BTreeMap;

use anyhow::bail;
use asp_proto::plugin::{
    DelegationRequested, DeliverDelegationResult, DeliverUserInput, ElicitationRequested, Json,
    deliver_user_input::Action,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Reason for which no one answered (plugin.proto).
const UNSUPPORTED: &str = "unsupported";

/// Answers by the id of an elicitation or delegate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Answers(BTreeMap<String, Value>);

/// Parses `its_id=JSON` from a command line.
pub fn parse(given: &str) -> Result<(String, Value), String> {
    let (id, answer) = given.split_once('=').ok_or("write its_id=JSON")?;
    let answer = serde_json::from_str(answer)
        .map_err(|error| format!("`{answer}` is not JSON ({error}); put a text in quotes: {id}='\"yes\"'"))?;
    Ok((id.to_owned(), answer))
}

impl Answers {
    /// Later answers to the same id replace earlier ones.
    pub fn new(given: &[(String, Value)]) -> Answers {
        Answers(given.iter().cloned().collect())
    }

    /// Returns the answer of a user's client: an object accepts with these fields; the words `decline` and `cancel` do that.
    pub(super) fn to_user(&self, asked: &ElicitationRequested) -> anyhow::Result<DeliverUserInput> {
        let mut answer = DeliverUserInput {
            request_id: asked.request_id.clone(),
            task_id: asked.task_id.clone(),
            elicitation_id: asked.elicitation_id.clone(),
            ..DeliverUserInput::default()
        };
        match self.0.get(&asked.elicitation_id) {
            None => answer.error = UNSUPPORTED.to_owned(),
            Some(fields @ Value::Object(_)) => answer.fields = Some(encoded(fields)),
            Some(word) if word == "decline" => answer.action = Action::Decline.into(),
            Some(word) if word == "cancel" => answer.action = Action::Cancel.into(),
            Some(other) => bail!(
                "the answer to {} is {other}: write an object of its fields, \"decline\" or \"cancel\"",
                asked.elicitation_id
            ),
        }
        Ok(answer)
    }

    /// Returns the answer of a delegate as the platform delivers it: `text`, also `json` if the text is JSON, and `content` in
    /// a conversation.
    pub(super) fn to_delegation(&self, asked: &DelegationRequested) -> DeliverDelegationResult {
        let mut answer = DeliverDelegationResult {
            request_id: asked.request_id.clone(),
            task_id: asked.task_id.clone(),
            correlation_id: asked.correlation_id.clone(),
            ..DeliverDelegationResult::default()
        };
        let Some(said) = self.0.get(&asked.delegate_id) else {
            answer.error = UNSUPPORTED.to_owned();
            return answer;
        };
        let text = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
        let mut result = Map::new();
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            result.insert("json".into(), value);
        }
        if asked.conversation.is_some() {
            result.insert("content".into(), json!([{"type": "text", "text": text}]));
        }
        result.insert("text".into(), text.into());
        answer.result = Some(encoded(&Value::Object(result)));
        answer
    }
}

fn encoded(value: &Value) -> Json {
    Json { value: value.to_string().into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(given: &[&str]) -> Answers {
        Answers::new(&given.iter().map(|given| parse(given).unwrap()).collect::<Vec<_>>())
    }

    fn question(id: &str) -> ElicitationRequested {
        ElicitationRequested { elicitation_id: id.into(), ..ElicitationRequested::default() }
    }

    fn read(json: Option<Json>) -> Value {
        json.map(|json| serde_json::from_slice(&json.value).unwrap()).unwrap_or_default()
    }

    #[test]
    fn an_object_accepts_two_words_do_not_and_no_answer_is_nobody() {
        let answers = answers(&[r#"city={"name": "Oslo"}"#, r#"no="decline""#, r#"away="cancel""#, "bad=3"]);
        let said = |id: &str| answers.to_user(&question(id)).unwrap();
        assert_eq!(read(said("city").fields), json!({"name": "Oslo"}));
        let actions = ["city", "no", "away"].map(|id| said(id).action());
        assert_eq!(actions, [Action::Accept, Action::Decline, Action::Cancel]);
        assert_eq!(said("other").error, "unsupported");
        assert!(answers.to_user(&question("bad")).unwrap_err().to_string().contains("answer to bad is 3"));
    }

    #[test]
    fn a_delegate_says_text_and_its_json_where_it_is_some() {
        let answers = answers(&[r#"topic="billing""#, r#"tones=["calm"]"#]);
        let said = |id: &str| {
            let asked = DelegationRequested { delegate_id: id.into(), ..DelegationRequested::default() };
            answers.to_delegation(&asked)
        };
        assert_eq!(read(said("topic").result), json!({"text": "billing"}));
        assert_eq!(read(said("tones").result), json!({"text": "[\"calm\"]", "json": ["calm"]}));
        assert_eq!(said("other").error, "unsupported");
        let conversation = Some(encoded(&json!({"messages": []})));
        let asked = DelegationRequested {
            delegate_id: "topic".into(),
            conversation,
            ..DelegationRequested::default()
        };
        let content = json!([{"type": "text", "text": "billing"}]);
        let result = read(answers.to_delegation(&asked).result);
        assert_eq!(result, json!({"text": "billing", "content": content}));
    }

    #[test]
    fn what_is_no_answer_says_how_one_is_written() {
        assert_eq!(parse("city").unwrap_err(), "write its_id=JSON");
        assert!(parse("city=Oslo").unwrap_err().contains("city='\"yes\"'"));
    }
}
