//! Any bytes as a request that comes back for a task or a call (`tasks/get`, `tasks/update`, `tasks/cancel`, a retry with
//! `inputResponses`): no panic; only what answers a question in its own kind is handed over, and a form keeps what was
//! asked and nothing else, within its bounds.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

#[allow(dead_code)]
#[path = "../../call/src/call/abilities.rs"]
mod abilities;
#[path = "../../call/src/call/question/asked.rs"]
mod asked;
#[allow(dead_code)]
#[path = "../../call/src/call/form.rs"]
mod form;
#[allow(dead_code)]
#[path = "../../../../proto/src/mcp_revision.rs"]
mod mcp_revision;
#[path = "task_request/protocols.rs"]
mod protocols;
#[path = "../../call/src/call/sampling.rs"]
mod sampling;

extern crate self as asp_call;
extern crate self as asp_proto;

mod question {
    pub use crate::asked::Ask;
}

mod call {
    pub use crate::abilities::ClientAbilities;
    pub(crate) use crate::form;

    /// The questions of one call, and what they are answered.
    pub mod question {
        use std::cell::RefCell;

        pub use crate::asked::{Answer, Ask, Question};

        pub struct Questions {
            pub asked: Vec<Question>,
            pub answered: RefCell<Vec<(String, Answer)>>,
        }

        impl Questions {
            pub fn find(&self, id: &str) -> Option<Question> {
                self.asked.iter().find(|question| question.id == id).cloned()
            }

            pub fn answer(&self, id: &str, answer: Answer) -> bool {
                let fitting = self.find(id).and_then(|question| answer.fitting(&question.ask));
                let fits = fitting.is_some();
                self.answered.borrow_mut().extend(fitting.map(|answer| (id.to_owned(), answer)));
                fits
            }
        }
    }
}

use call::question::{Answer, Ask, Question, Questions};
use mcp_revision::Revision;

static FORM: LazyLock<Value> = LazyLock::new(|| {
    json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": 3},
        "n": {"type": "integer", "minimum": 1},
        "share": {"type": "number", "maximum": 1.0},
        "yes": {"type": "boolean"},
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]},
        "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b"]}}}})
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(Value::Object(message)) = serde_json::from_slice(bytes) else { return };
    let Some(params) = message.get("params") else { return };
    let capabilities = params.get("capabilities");
    for revision in Revision::SERVED {
        let can = protocols::abilities(capabilities, revision);
        assert_eq!(can.within(revision), can, "a revision that is applied twice changes nothing");
        assert!(can.sampling || !can.answers(&Ask::Sampling(json!({}).into())));
    }
    for question in asked() {
        protocols::no_answer(&question, message.get("error"));
    }
    let Some(results) = params.get("inputResponses").and_then(Value::as_object) else { return };
    let questions = Questions { asked: asked(), answered: Vec::new().into() };
    protocols::deliver(&questions, results);
    let answered = questions.answered.borrow();
    assert!(answered.len() <= questions.asked.len(), "a question is answered once");
    for (id, answer) in answered.iter() {
        holds(&questions.find(id).unwrap(), &results[id], answer);
    }
});

fn asked() -> Vec<Question> {
    let asks = [
        ("form", Ask::Form { message: "?".into(), requested_schema: FORM.clone().into(), relayed: false }),
        ("page", Ask::Page { message: "?".into(), url: "https://pay.example.com/".into() }),
        ("model", Ask::Sampling(json!({}).into())),
        ("roots", Ask::Roots),
    ];
    asks.into_iter().map(|(id, ask)| Question { id: id.into(), ask }).collect()
}

/// Checks an answer against the message of its client.
fn holds(question: &Question, said: &Value, answer: &Answer) {
    let action = said.get("action").and_then(Value::as_str);
    match (&question.ask, answer) {
        (Ask::Form { .. }, Answer::Accepted(filled)) => {
            assert_eq!(action, Some("accept"));
            assert_eq!(form::filled(&FORM, filled).as_ref(), Some(filled), "a filled form is filled");
            let filled = filled.as_object().unwrap();
            assert!((1..=3).contains(&filled["id"].as_str().unwrap().chars().count()));
            for (name, value) in filled {
                assert!(FORM["properties"].get(name).is_some() && said["content"].get(name) == Some(value));
            }
        }
        (Ask::Page { .. }, Answer::Accepted(nothing)) => assert_eq!(nothing, &json!({})),
        (Ask::Form { .. } | Ask::Page { .. }, Answer::Declined) => assert_eq!(action, Some("decline")),
        (Ask::Form { .. } | Ask::Page { .. }, Answer::Cancelled) => assert_eq!(action, Some("cancel")),
        (Ask::Sampling(_), Answer::Sampled(told)) => assert_eq!(told, said),
        (Ask::Roots, Answer::Roots(roots)) => {
            let roots = roots.as_array().unwrap();
            assert!(roots.len() <= 1000 && roots.iter().all(|root| root["uri"].is_string()));
        }
        (ask, answer) => panic!("{answer:?} is no answer to {ask:?}"),
    }
}
