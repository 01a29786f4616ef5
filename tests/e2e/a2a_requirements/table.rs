//! The tables of requirements, as `tests/vectors/a2a/README.md` explains them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// A table, with the number of its suite's ids.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) ids: usize,
    text: &'static str,
}

pub(super) static SUITES: [Suite; 4] = [
    Suite { name: "tck_1.0", ids: 129, text: include_str!("../../vectors/a2a/tck-1.0.json") },
    Suite { name: "tck_0.3", ids: 96, text: include_str!("../../vectors/a2a/tck-0.3.json") },
    Suite { name: "acts", ids: 65, text: include_str!("../../vectors/a2a/acts.json") },
    Suite { name: "interop", ids: 25, text: include_str!("../../vectors/a2a/interop.json") },
];

impl Suite {
    pub(super) fn rows(&self) -> Vec<Row> {
        serde_json::from_str(self.text).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// Matchers by path.
pub(super) type Expectation = BTreeMap<String, Value>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Binding {
    JsonRpc,
    Rest,
    Grpc,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Must,
    Should,
    May,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) level: Level,
    #[serde(default = "both")]
    pub(super) on: Vec<Binding>,
    pub(super) issue: Option<String>,
    pub(super) untested: Option<String>,
    pub(super) check: Option<String>,
    #[serde(default)]
    pub(super) steps: Vec<Step>,
}

fn both() -> Vec<Binding> {
    vec![Binding::JsonRpc, Binding::Rest]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operation {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    PushCreate,
    PushGet,
    PushList,
    PushDelete,
    Extended,
    Card,
    Rpc,
    Http,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sender {
    #[default]
    Alice,
    Bob,
    Other,
    None,
    Wrong,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    #[serde(rename = "do")]
    pub(super) operation: Operation,
    #[serde(rename = "as", default)]
    pub(super) prefix: String,
    pub(super) text: Option<String>,
    pub(super) parts: Option<Value>,
    pub(super) task: Option<Value>,
    pub(super) context: Option<Value>,
    #[serde(default)]
    pub(super) message: Map<String, Value>,
    pub(super) config: Option<Value>,
    #[serde(default)]
    pub(super) extra: Map<String, Value>,
    pub(super) params: Option<Value>,
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) path: String,
    pub(super) body: Option<Value>,
    #[serde(default)]
    pub(super) token: Sender,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Option<String>>,
    pub(super) status: Option<u16>,
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) expect: Expectation,
    #[serde(default)]
    pub(super) head: Expectation,
    pub(super) events: Option<Events>,
    pub(super) wire: Option<String>,
    #[serde(default)]
    pub(super) until: Expectation,
    #[serde(default)]
    pub(super) save: BTreeMap<String, String>,
}

impl Step {
    /// Returns a step that sends one text.
    pub(super) fn say(operation: Operation, text: &str, task: Option<&str>) -> Step {
        let step = serde_json::json!({"do": "send", "text": text, "task": task});
        let step: Step = serde_json::from_value(step).expect("a step");
        Step { operation, ..step }
    }

    /// Returns a step with nothing but parameters.
    pub(super) fn of(operation: Operation, params: Value) -> Step {
        let step = serde_json::json!({"do": "get", "params": params});
        let step: Step = serde_json::from_value(step).expect("a step");
        Step { operation, ..step }
    }

    /// Whether an answer can be wrong: every operation but a raw request must succeed or fail as the step says.
    pub(super) fn is_checked(&self) -> bool {
        let is_raw = matches!(self.operation, Operation::Rpc | Operation::Http);
        !is_raw || self.status.is_some() || !self.expect.is_empty() || self.events.is_some()
    }
}

/// Expected events of a stream.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Events {
    pub(super) min: usize,
    pub(super) count: Option<usize>,
    pub(super) first: Expectation,
    pub(super) last: Expectation,
    /// Expectations of at least one event.
    pub(super) some: Expectation,
    pub(super) each: Expectation,
    /// Whether every state is one of A2A's, and none comes before an earlier one.
    pub(super) states: bool,
}
