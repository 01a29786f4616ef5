//! Questions of a call to its caller, and their answers, as data independent of sender and recipient. JSON keeps its
//! text (I-14). Other gateways read them: variants and members are only added.

use asp_json::{Json, Members};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::call::form;

/// A question to the caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Unique within the call, and never reused in it.
    pub id: String,
    pub ask: Ask,
}

/// Content of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// A form for the user (MCP `elicitation/create`); the schema is MCP's restricted one, a flat object.
    Form {
        message: String,
        #[serde(serialize_with = "asp_json::raw_value")]
        requested_schema: Json,
        /// Whether the asker checks the answer itself, such as an upstream: it gets the answer unchanged.
        #[serde(default)]
        relayed: bool,
    },
    /// A page for the user to visit (mode `url`); the client does not see what happens there.
    Page { message: String, url: String },
    /// A request to the client's model: the parameters of MCP's `sampling/createMessage`.
    Sampling(#[serde(serialize_with = "asp_json::raw_value")] Json),
    /// The directories and files that the client lets a server work on (MCP `roots/list`).
    Roots,
}

/// The caller's answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// A filled form; nothing for a page, which the user agreed to visit.
    Accepted(#[serde(serialize_with = "asp_json::raw_value")] Json),
    Declined,
    Cancelled,
    /// The model's response: an MCP `CreateMessageResult`.
    Sampled(#[serde(serialize_with = "asp_json::raw_value")] Json),
    /// The client's roots: an array of MCP `Root`s.
    Roots(#[serde(serialize_with = "asp_json::raw_value")] Json),
    /// Error text of a client that could not ask its model or list its roots.
    Failed(String),
}

/// Member of a client's message, as its protocol keeps it, with the id that the client gave it.
pub const MESSAGE_ID: &str = "messageId";

/// An answer, with the client's message that has it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallerAnswer {
    pub answer: Answer,
    /// The message as its protocol keeps it, bounded and with its id as [`MESSAGE_ID`]; `None` if the protocol keeps none.
    pub message: Option<Json>,
}

impl From<Answer> for CallerAnswer {
    fn from(answer: Answer) -> CallerAnswer {
        CallerAnswer { answer, message: None }
    }
}

impl Answer {
    /// Returns the answer in the form for the asker; `None` if it does not fit the question.
    pub fn fitting(self, ask: &Ask) -> Option<Answer> {
        match (ask, self) {
            (Ask::Form { requested_schema, relayed: true, .. }, Answer::Accepted(content)) => {
                Some(Answer::Accepted(form::without_empty_fields(requested_schema, &content)))
            }
            (Ask::Form { relayed: true, .. }, answer @ Answer::Failed(_)) => Some(answer),
            (Ask::Form { requested_schema, .. }, Answer::Accepted(content)) => {
                form::filled(requested_schema, &content).map(Answer::Accepted)
            }
            (Ask::Page { .. }, Answer::Accepted(_)) => Some(Answer::Accepted(json!({}).into())),
            (Ask::Form { .. } | Ask::Page { .. }, answer @ (Answer::Declined | Answer::Cancelled)) => {
                Some(answer)
            }
            (Ask::Sampling(_), answer @ (Answer::Sampled(_) | Answer::Failed(_)))
            | (Ask::Roots, answer @ (Answer::Roots(_) | Answer::Failed(_))) => Some(answer),
            _ => None,
        }
    }

    /// Returns MCP's result of the request that the question was; the error is the client's own text if it has no
    /// result. The result for a page reports only that the user agreed.
    pub fn into_result(self, ask: &Ask) -> Result<Json, String> {
        let action = |name: &str| Json::from(json!({"action": name}));
        let of = |members: Vec<(&str, Json)>| Members::from_iter(members).to_json();
        Ok(match self {
            Answer::Accepted(_) if matches!(ask, Ask::Page { .. }) => action("accept"),
            Answer::Accepted(content) => of(vec![("action", "accept".into()), ("content", content)]),
            Answer::Declined => action("decline"),
            Answer::Cancelled => action("cancel"),
            Answer::Sampled(result) => result,
            Answer::Roots(roots) => of(vec![("roots", roots)]),
            Answer::Failed(why) => return Err(why),
        })
    }
}
