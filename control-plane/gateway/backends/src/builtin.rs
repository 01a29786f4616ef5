//! Built-in primitives, by the name in a spec's `runtime.entrypoint`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use asp_call::call::Call;
use asp_call::call::event::Event;
use asp_call::call::outcome::{Output, Refusal, text_block};
use asp_call::clock::rfc3339;
use asp_call::execution::Execution;
use asp_json::{Members, integers};
use asp_proto::snapshot::Primitive;
use asp_proto::snapshot::runtime::Mode;
use asp_snapshot::artifact;
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::artifacts::Artifacts;
use crate::backend::{Backend, misplaced, mode};
use crate::delegate::Delegates;

mod a2a_conformance;
mod ask_delegate;
mod search;
mod toggle;

use toggle::Toggles;

/// The backend of built-in code.
pub struct BuiltinBackend {
    artifacts: Artifacts,
    delegates: Arc<Delegates>,
    toggles: Toggles,
}

impl BuiltinBackend {
    pub(super) fn new(artifacts: Artifacts, delegates: Arc<Delegates>) -> BuiltinBackend {
        BuiltinBackend { artifacts, delegates, toggles: Toggles::default() }
    }
}

#[async_trait]
impl Backend for BuiltinBackend {
    /// Runs the entrypoint; an unknown one is an internal error, because the registry has checked the name.
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let Some(Mode::Builtin(builtin)) = mode(&execution.call.entry.primitive) else {
            return Err(misplaced(execution));
        };
        execution.started().mark_sent();
        match builtin.entrypoint.as_str() {
            artifact::ENTRYPOINT => self.artifacts.read(execution).await,
            "a2a_conformance" => a2a_conformance::run(execution).await,
            "ask_delegate" => ask_delegate::run(execution, &self.delegates).await,
            "echo" => Ok(echo(execution)),
            "clock" => clock(),
            "count" => count(execution).await,
            "item" => Ok(item(execution)),
            "search_tools" => search::run(execution),
            "test_trigger_tool_change" => Ok(self.toggles.tool(execution)),
            "test_trigger_prompt_change" => Ok(self.toggles.prompt(execution)),
            entrypoint => Err(Refusal::Internal(format!("no builtin is called {entrypoint:?}"))),
        }
    }

    /// Hides the toggled items, including static prompts.
    fn offers(&self, _server: &str, primitive: &Primitive) -> bool {
        self.toggles.shows(&primitive.id)
    }

    fn offers_changed(&self) -> u64 {
        self.toggles.changes()
    }
}

fn echo(execution: &Execution) -> Output {
    let message = execution.arguments.member("message").unwrap_or_else(|| Value::Null.into());
    let text = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
    Output::of_tool(text_block(&text), Some(Members::from_iter([("message", message)]).to_json()), false)
}

fn clock() -> Result<Output, Refusal> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| Refusal::Internal("the clock is set to a time before 1970".into()))?;
    let epoch_ms = now.as_millis() as u64;
    Ok(Output::structured(json!({"now": rfc3339(epoch_ms), "epochMs": epoch_ms})))
}

/// Counts to `to`, one every `delayMs`, reporting progress.
async fn count(execution: &Execution) -> Result<Output, Refusal> {
    let mut arguments = execution.arguments.view().clone();
    integers(&mut arguments);
    let number = |name: &str| arguments.get(name).and_then(Value::as_u64).unwrap_or_default();
    let to = number("to");
    count_to(&execution.call, to, Duration::from_millis(number("delayMs"))).await?;
    Ok(Output::structured(json!({"counted": to})))
}

async fn count_to(call: &Call, to: u64, delay: Duration) -> Result<(), Refusal> {
    for n in 1..=to {
        tokio::select! {
            () = call.cancelled() => return Err(Refusal::Cancelled),
            () = tokio::time::sleep(delay) => {}
        }
        call.emit(Event::Progress {
            progress: (n as f64).into(),
            total: Some((to as f64).into()),
            message: Some(format!("counted {n} of {to}")),
            gauges: BTreeMap::new(),
        });
    }
    Ok(())
}

/// Returns a resource of a template: the item that its URI names.
fn item(execution: &Execution) -> Output {
    let text = |name: &str| execution.arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let body = json!({"id": text("id"), "title": format!("Item {}", text("id"))});
    Output::contents(vec![
        json!({"uri": text("uri"), "mimeType": "application/json", "text": body.to_string()}).into(),
    ])
}
