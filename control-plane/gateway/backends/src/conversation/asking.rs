//! Questions of a backend to the caller of its call.
//!
//! Owns: the check before a question is put, and the forms and pages that specs declare. Refuses: questions that the
//! attached client cannot answer, forms that MCP does not allow, and pages outside the declared one.

use asp_call::call::question::{self, Ask, PendingQuestion, Question};
use asp_call::call::{Call, form, page};
use asp_json::Json;
use serde_json::{Map, Value};

use crate::delegate::delegation::DelegationFault;

/// Maximum size of a form in bytes, as its backend sends it.
pub(crate) const MAX_FORM: usize = 64 << 10;

/// Reason why a question was not put to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuestionFault {
    /// The attached client cannot answer it.
    Unsupported,
    /// The call has ended, or has too many open questions.
    Full,
}

impl From<QuestionFault> for DelegationFault {
    fn from(fault: QuestionFault) -> DelegationFault {
        match fault {
            QuestionFault::Unsupported | QuestionFault::Full => DelegationFault::Unsupported,
        }
    }
}

/// Puts a question to the caller, if the attached client can answer it. Does not wait for the answer.
pub(crate) fn put(call: &Call, question: Question) -> Result<PendingQuestion, QuestionFault> {
    if !call.abilities().answers(&question.ask) {
        return Err(QuestionFault::Unsupported);
    }
    question::put(call, question).map_err(|_| QuestionFault::Full)
}

/// An elicitation that the spec of a primitive declares.
pub(crate) struct Elicitation<'a> {
    /// The declared id.
    pub id: &'a str,
    /// The constant part of its request (`Primitive.question`).
    pub spec: &'a Map<String, Value>,
}

impl Elicitation<'_> {
    /// Whether it sends the user to a page instead of showing a form.
    pub(crate) fn is_page(&self) -> bool {
        self.text("url").is_some()
    }

    /// Returns the text for the user: the first of `texts` that is not empty, or else the spec's, or else the
    /// declared id.
    pub(crate) fn message(&self, texts: &[&str]) -> String {
        let spec = self.text("message").unwrap_or_default();
        let mut all = texts.iter().copied().chain([spec, self.id]);
        all.find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    }

    /// Returns the question that sends the user to `url`, or to the spec's page if it is empty; `None` if that is not
    /// the declared page or below it.
    pub(crate) fn page(&self, message: String, url: &str) -> Option<Ask> {
        let url = page::address(self.text("url")?, url)?;
        Some(Ask::Page { message, url })
    }

    /// Returns the question with the form `schema`, or with the spec's if it is absent; `None` if MCP does not allow
    /// it.
    pub(crate) fn form(&self, message: String, schema: Option<Json>) -> Option<Ask> {
        let requested_schema = match schema {
            Some(schema) => schema,
            None => self.spec.get("requestedSchema")?.clone().into(),
        };
        form::check(&requested_schema).ok()?;
        Some(Ask::Form { message, requested_schema, relayed: false })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.spec.get(name).and_then(Value::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_question_has_the_first_text_that_says_something() {
        let declared = spec(json!({"message": "Who?"}));
        let elicitation = Elicitation { id: "name", spec: &declared };
        assert_eq!(elicitation.message(&["", "Your name?"]), "Your name?");
        assert_eq!(elicitation.message(&["", ""]), "Who?");
        assert_eq!(Elicitation { id: "name", spec: &Map::new() }.message(&[]), "name");
    }

    #[test]
    fn a_page_is_the_declared_one_or_below_it_and_a_form_is_one_of_mcp() {
        let declared = spec(json!({"message": "Pay", "url": "https://pay.example.com/cards"}));
        let elicitation = Elicitation { id: "card", spec: &declared };
        assert!(elicitation.is_page());
        let page = |url: &str| elicitation.page("Pay".into(), url).is_some();
        assert!(page("") && page("https://pay.example.com/cards/7"));
        assert!(!page("https://pay.example.com/other"));
        assert_eq!(elicitation.form("Pay".into(), None), None);

        let form = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let declared = spec(json!({"message": "Who?", "requestedSchema": form}));
        let elicitation = Elicitation { id: "name", spec: &declared };
        assert!(!elicitation.is_page() && elicitation.page("Who?".into(), "").is_none());
        let asked = |schema: Option<Json>| elicitation.form("Who?".into(), schema);
        let of_spec = Ask::Form { message: "Who?".into(), requested_schema: form.into(), relayed: false };
        assert_eq!(asked(None), Some(of_spec));
        assert_eq!(asked(Some(json!({"type": "object"}).into())), None);
    }
}
