//! Module path of the parser, as in the gateway; passes on the functions that only the protocols can see.

use serde_json::{Map, Value};

use crate::call::ClientAbilities;
use crate::call::question::{Answer, Question, Questions};
use crate::mcp_revision::Revision;

#[allow(dead_code)]
#[path = "../../../protocols/src/mcp/questions.rs"]
mod questions;

pub fn abilities(capabilities: Option<&Value>, revision: Revision) -> ClientAbilities {
    questions::abilities(capabilities, revision)
}

pub fn no_answer(question: &Question, error: Option<&Value>) -> Answer {
    questions::no_answer(question, error)
}

pub fn deliver(asked: &Questions, results: &Map<String, Value>) {
    for (id, answer) in questions::answers(asked, &Value::Object(results.clone()).into()) {
        asked.answer(&id, answer);
    }
}
