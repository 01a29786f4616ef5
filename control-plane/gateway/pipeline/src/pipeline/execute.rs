//! Stages 8 and 9, and the end of a call: runs it on its backend, bounded by the deadline and the caller's cancel; then
//! `structuredContent` fits the output schema; then its outcome is stored and reported.
//!
//! Keeps true: a call runs at most once; a call that was handed over and then lost ends as `outcome_unknown`, unless
//! repeating it is harmless; a cancelled backend has `BACKEND_STOPS_WITHIN` before it is dropped. A value that does not
//! fit is never in `structuredContent`, even in errors, because clients check it there (MCP tools, output schema). A
//! result of another service that does not fit becomes a tool error that names place and rule, and contains the answer of
//! the service (I-14); any other result that does not fit is withheld. Of several gateways that had a call, one reports its
//! end; a call that no caller cancelled does not end as cancelled; an outcome is stored before it is reported, if the store
//! answers; a call whose task vanished is stored as unknown.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::outcome::{Outcome, Output, Refusal, after_handover, text_block};
use asp_call::call::{Call, State};
use asp_call::execution::{Backends, Execution};
use asp_call::telemetry::audit;
use asp_call::telemetry::metrics::Stage;
use asp_json::Json;
use asp_proto::grace::BACKEND_STOPS_WITHIN;
use asp_snapshot::ListedPrimitive;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::ledger::HeldKey;
use super::{CallTask, Pipeline};

/// Remaining time below which a call is refused instead of started (ADR 6).
const LEAST_TIME: Duration = Duration::from_millis(50);

/// Message to the caller of a call that its gateway stopped, and that may be repeated.
const STOPPED: &str = "the gateway stopped before the call had ended: call again";

/// Runs a call; the error is the reason why the backend produced no output.
pub async fn execute(backends: &dyn Backends, execution: Execution) -> Result<Output, Refusal> {
    let call = execution.call.clone();
    if call.deadline().saturating_duration_since(Instant::now()) < LEAST_TIME {
        return Err(Refusal::Deadline);
    }
    if call.is_cancelled() {
        return Err(Refusal::Cancelled);
    }
    call.enter(State::Working);
    let mut running = backends.run(execution);
    let stopped = tokio::select! {
        // A result that is ready at once needs no timer.
        biased;
        result = &mut running => return result,
        () = call.cancelled() => Refusal::Cancelled,
        () = tokio::time::sleep_until(call.deadline()) => {
            call.cancel();
            Refusal::Deadline
        }
    };
    let ended = tokio::time::timeout(BACKEND_STOPS_WITHIN, &mut running).await;
    // Before its mark is read: a call that was never sent may be repeated.
    drop(running);
    match ended {
        // It finished after all: the result is valid and is not discarded.
        Ok(Ok(output)) => Ok(output),
        Ok(Err(_)) | Err(_) => Err(after_handover(&call, stopped)),
    }
}

/// Returns the output for the caller, given what a backend produced.
fn fitted(call: &Call, mut output: Output) -> Result<Output, Refusal> {
    let entry = &call.entry;
    let Err(Refusal::InvalidOutput { pointer, message }) = check(entry, &output) else {
        settle_error(entry, &mut output);
        return Ok(output);
    };
    if !entry.is_forwarded() {
        return Err(Refusal::InvalidOutput { pointer, message });
    }
    call.note_failure_cause(format_args!(
        "the service's result does not fit the output schema: {pointer} {message}"
    ));
    Ok(with_misfit(output, &pointer, &message))
}

/// Checks a tool's result. A tool error needs no structured result and is not checked.
fn check(entry: &ListedPrimitive, output: &Output) -> Result<(), Refusal> {
    let (Some(schema), Output::Tool { structured, is_error: false, .. }) = (&entry.output, output) else {
        return Ok(());
    };
    let Some(value) = structured else {
        return Err(Refusal::InvalidOutput {
            pointer: String::new(),
            message: "a structured result is required".into(),
        });
    };
    schema
        .check(value)
        .map_err(|misfit| Refusal::InvalidOutput { pointer: misfit.pointer, message: misfit.message })
}

/// Removes the structured value of a tool error if it does not fit the schema; that of another service becomes text.
fn settle_error(entry: &ListedPrimitive, output: &mut Output) {
    let (Some(schema), Output::Tool { content, structured, is_error: true, .. }) = (&entry.output, output)
    else {
        return;
    };
    if let Some(value) = structured.take_if(|value| schema.check(value).is_err())
        && entry.is_forwarded()
    {
        keep_as_text(content, &value);
    }
}

/// Returns the result as a tool error: first the place and the rule, then the answer of the service.
fn with_misfit(output: Output, pointer: &str, message: &str) -> Output {
    let Output::Tool { mut content, structured, meta, more, .. } = output else { return output };
    if let Some(value) = &structured {
        keep_as_text(&mut content, value);
    }
    let place = match pointer {
        "" => message.to_owned(),
        pointer => format!("{pointer}: {message}"),
    };
    let note = format!(
        "the call was completed, but its result does not match its output schema ({place}); the service's answer follows"
    );
    content.insert(0, text_block(&note).into());
    Output::Tool { content, structured: None, is_error: true, meta, more }
}

/// Appends a value's JSON text, unless a block has it already.
fn keep_as_text(content: &mut Vec<Json>, value: &Json) {
    let is_said = content.iter().any(|block| block.get("text").and_then(Value::as_str) == Some(value.text()));
    if !is_said {
        content.push(text_block(value.text()).into());
    }
}

/// Returns the local outcome of a call that another gateway continues. Clients that can return never see it. The others
/// are told to repeat the call only if nothing runs twice: a retry under a key gets the answer of the call that has it.
pub(super) fn passed_on(call: &Call) -> Outcome {
    call.ownership.continued.set();
    let again = Refusal::Upstream("another gateway continues this call".into());
    Outcome::Refused(if call.idempotency_key.is_some() { again } else { call.unanswered(again) })
}

impl CallTask {
    /// Returns the output, once it fits the schema.
    pub(super) fn checked(&self, output: Output) -> Result<Output, Refusal> {
        let started = Instant::now();
        // There is an output after all; only what is wrong with it counts from here on.
        self.call.forget_failure_cause();
        let fitted = fitted(&self.call, output);
        self.pipeline.metrics.stage(&self.call, Stage::Output, started);
        fitted
    }

    /// Refuses a call whose start is not recorded. If its org has no capacity in the log, its end is not recorded
    /// either: refused calls would use up what is left for others.
    pub(super) async fn refuse_unrecorded(&self) {
        let refusal =
            Refusal::Upstream("nothing was done: the audit log accepts no events at the moment".into());
        if self.pipeline.audit.has_room(&self.call.caller.org) {
            return self.conclude(Err(refusal)).await;
        }
        let outcome = self.settled(Err(refusal)).await;
        self.pipeline.audit.count_missed(1);
        self.pipeline.close(&self.call, outcome);
    }

    /// Sets the outcome of the call.
    pub(crate) async fn conclude(&self, result: Result<(Output, bool), Refusal>) {
        let outcome = self.settled(result).await;
        if self.pipeline.leaves_end(&self.call) {
            return self.pipeline.close(&self.call, outcome);
        }
        let waiting = self.pipeline.audit.offer(audit::finished(&self.call, &outcome));
        if let Outcome::Done { output, .. } = &outcome {
            let text = || serde_json::to_string(output).unwrap_or_default();
            self.pipeline.audit.capture(&self.call, "result", text);
        }
        self.pipeline.close(&self.call, outcome);
        if let Some(event) = waiting {
            // The caller has its answer. Only this call's permit waits, so that new calls arrive as slowly as the log
            // accepts them; events that it does not accept in time are counted there.
            let _ = self.pipeline.audit.record_end(event).await;
        }
    }

    async fn settled(&self, result: Result<(Output, bool), Refusal>) -> Outcome {
        self.pipeline.settled(&self.call, result).await
    }

    /// Stores the call's end under its key, if this gateway decides it.
    pub(crate) async fn settle(
        &self,
        held: HeldKey,
        result: &Result<Output, Refusal>,
    ) -> Result<(), Refusal> {
        let active = &self.pipeline.active;
        if !active.is_ours(&self.call).await {
            return Ok(());
        }
        let settled = held.settle(&self.call, result).await;
        if settled.is_err() {
            // Another gateway may have taken the call while the store did not answer: it decides the end.
            active.is_ours(&self.call).await;
        }
        settled
    }
}

impl Drop for CallTask {
    fn drop(&mut self) {
        if self.call.outcome().is_some() {
            return;
        }
        let (pipeline, call) = (self.pipeline.clone(), self.call.clone());
        let Ok(runtime) = Handle::try_current() else {
            // The process is about to end.
            return pipeline.end(&call, Outcome::unknown());
        };
        runtime.spawn(async move {
            let outcome = pipeline.settled(&call, Err(Refusal::OutcomeUnknown)).await;
            pipeline.end(&call, outcome);
        });
    }
}

impl Pipeline {
    /// Returns the outcome of a call, stored for other gateways that are asked for it.
    async fn settled(self: &Arc<Self>, call: &Arc<Call>, result: Result<(Output, bool), Refusal>) -> Outcome {
        let mut outcome = match result {
            _ if call.ownership.passed_on.is_set() => passed_on(call),
            result => match (call.withdrawal(), result) {
                // If it had a key, the result is in the ledger; this caller does not get it.
                (Some(why), _) => Outcome::Refused(Refusal::Withdrawn(why)),
                (None, Ok((output, replayed))) => Outcome::Done { output, replayed },
                (None, Err(Refusal::Cancelled)) if self.has_stopped(call) => {
                    let why = Refusal::Upstream(STOPPED.into());
                    Outcome::Refused(after_handover(call, why))
                }
                (None, Err(refusal)) => Outcome::Refused(refusal),
            },
        };
        // Stored before it is reported, so that a client gets the same answer at another gateway.
        if !self.active.end(call, &outcome).await {
            outcome = passed_on(call);
        }
        outcome
    }

    /// Whether no caller cancelled the call: its gateway has stopped.
    pub(super) fn has_stopped(&self, call: &Call) -> bool {
        self.calls.have_stopped() && !call.is_cancel_requested()
    }
}

#[cfg(test)]
mod tests {
    use asp_json::Members;
    use serde_json::json;

    use super::*;

    fn texts(content: &[Json]) -> Vec<&str> {
        content.iter().filter_map(|block| block["text"].as_str()).collect()
    }

    #[test]
    fn a_result_that_does_not_fit_keeps_its_content_and_its_value_as_text() {
        let value = Json::parse(br#"{"n":1.50}"#).unwrap();
        let rest = ["it is three", r#"{"n":1.50}"#];
        for (said, kept) in [(&rest[..1], &rest[..]), (&rest[1..], &rest[1..]), (&rest[..0], &rest[1..])] {
            let content = said.iter().map(|text| Json::from(text_block(text))).collect();
            let meta = Members::from_iter([("a/b", json!(1))]);
            let output = Output::Tool {
                content,
                structured: Some(value.clone()),
                is_error: false,
                meta: meta.clone(),
                more: meta.clone(),
            };
            let Output::Tool { content, structured: None, is_error: true, meta: kept_meta, more } =
                with_misfit(output, "/n", "is no integer")
            else {
                panic!("{said:?}")
            };
            let texts = texts(&content);
            assert!(texts[0].contains("the call was completed") && texts[0].contains("(/n: is no integer)"));
            assert_eq!(&texts[1..], kept, "{said:?}");
            assert_eq!((&kept_meta, &more), (&meta, &meta));
        }
    }
}
