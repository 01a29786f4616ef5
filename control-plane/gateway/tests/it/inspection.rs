//! The two inspection points: what passes, what is replaced, what is refused, and what happens when nobody can look.

use std::sync::Arc;
use std::time::Duration;

use asp_gateway::call::Call;
use asp_gateway::call::outcome::Output;
use asp_gateway::executors::plugin::runtimes::Runtimes;
use asp_gateway::inspection::{Finding, Inspection, Inspections, Inspector, InspectorFault, OnFailure};
use async_trait::async_trait;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::plugin::{until, until_async};
use crate::rest::Rest;
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Modern, token};

/// What the test's inspector does; what it was shown is kept.
pub(crate) enum Does<T> {
    Says(Finding<T>),
    Fails,
    Hangs,
}

pub(crate) struct Scripted<T> {
    pub does: Does<T>,
    pub seen: Arc<Mutex<Vec<Value>>>,
}

#[async_trait]
impl<T: Clone + serde::Serialize + Send + Sync> Inspector<T> for Scripted<T> {
    async fn inspect(&self, _call: &Call, content: &T) -> Result<Finding<T>, InspectorFault> {
        self.seen.lock().push(serde_json::to_value(content).unwrap());
        match &self.does {
            Does::Says(finding) => Ok(finding.clone()),
            Does::Fails => Err(InspectorFault("it is out of order".into())),
            Does::Hangs => std::future::pending().await,
        }
    }
}

type Seen = Arc<Mutex<Vec<Value>>>;

fn inspection<T>(does: Does<T>, on_failure: OnFailure) -> (Option<Inspection<T>>, Seen)
where
    T: Clone + serde::Serialize + Send + Sync + 'static,
{
    let seen = Seen::default();
    let inspector = Arc::new(Scripted { does, seen: seen.clone() });
    let within = Duration::from_millis(50);
    (Some(Inspection { inspector, within, max_bytes: 200, on_failure }), seen)
}

fn of_input(does: Does<Value>, on_failure: OnFailure) -> (Fixture, Seen) {
    let (input, seen) = inspection(does, on_failure);
    (Fixture::inspected(Inspections { input, output: None }), seen)
}

fn of_output(does: Does<Output>, on_failure: OnFailure) -> (Fixture, Seen) {
    let (output, seen) = inspection(does, on_failure);
    (Fixture::inspected(Inspections { input: None, output }), seen)
}

async fn echo(fixture: &Fixture, message: &str) -> Value {
    let params = json!({"name": "echo", "arguments": {"message": message}});
    Modern::new("demo", &token("alice"), "tools/call", params).send(fixture).await.json()["result"].clone()
}

fn reason(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["_meta"]["asp/reason"].as_str().unwrap()
}

fn text(text: &str) -> Output {
    Output::structured(json!({"message": text}))
}

#[tokio::test]
async fn what_passes_goes_on_as_it_is_and_the_inspector_sees_it_complete() {
    let (fixture, seen) = of_input(Does::Says(Finding::Pass), OnFailure::Closed);
    assert_eq!(echo(&fixture, "hello").await["structuredContent"]["message"], "hello");
    assert_eq!(*seen.lock(), [json!({"message": "hello"})]);
    let (fixture, seen) = of_output(Does::Says(Finding::Pass), OnFailure::Closed);
    assert_eq!(echo(&fixture, "hello").await["structuredContent"]["message"], "hello");
    assert_eq!(seen.lock()[0]["structured"]["message"], "hello");
}

#[tokio::test]
async fn what_does_not_fit_its_schema_is_never_shown() {
    let (fixture, seen) = of_input(Does::Says(Finding::Pass), OnFailure::Closed);
    let params = json!({"name": "echo", "arguments": {"message": 7}});
    let answer = Modern::new("demo", &token("alice"), "tools/call", params).send(&fixture).await.json();
    assert_eq!(reason(&answer["result"]), "invalid_params");
    assert!(seen.lock().is_empty());
}

#[tokio::test]
async fn what_is_replaced_goes_on_replaced() {
    let (fixture, _) = of_input(Does::Says(Finding::Replace(json!({"message": "***"}))), OnFailure::Open);
    assert_eq!(echo(&fixture, "s3cret").await["structuredContent"]["message"], "***");
    let (fixture, _) = of_output(Does::Says(Finding::Replace(text("***"))), OnFailure::Open);
    let result = echo(&fixture, "s3cret").await;
    assert_eq!(result["structuredContent"]["message"], "***");
    assert!(!result.to_string().contains("s3cret"), "{result}");
}

/// The original is not what the inspector wanted to go on, so that not even an open rule lets it.
#[tokio::test]
async fn a_replacement_that_does_not_fit_or_is_too_large_ends_the_call() {
    for bad in [json!({"message": 7}), json!({"message": "x".repeat(300)})] {
        let (fixture, _) = of_input(Does::Says(Finding::Replace(bad.clone())), OnFailure::Open);
        let answer = echo_whole(&fixture, "s3cret").await;
        assert!(!answer.contains("s3cret"), "{answer}");
        let output = Output::structured(bad);
        let (fixture, _) = of_output(Does::Says(Finding::Replace(output)), OnFailure::Open);
        let answer = echo_whole(&fixture, "s3cret").await;
        assert!(!answer.contains("s3cret") && answer.contains("traceId"), "{answer}");
    }
}

async fn echo_whole(fixture: &Fixture, message: &str) -> String {
    let params = json!({"name": "echo", "arguments": {"message": message}});
    Modern::new("demo", &token("alice"), "tools/call", params).send(fixture).await.text
}

#[tokio::test]
async fn what_is_refused_does_not_go_on_and_says_why() {
    let refuses = || Finding::Refuse("it names a customer".to_owned());
    let (fixture, _) = of_input(Does::Says(refuses()), OnFailure::Open);
    let result = echo(&fixture, "s3cret").await;
    assert_eq!(reason(&result), "content_refused");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("it names a customer"), "{result}");
    fixture.gateway.flush().await;
    let finish: Value = serde_json::from_str(&fixture.audit.events()[1].event).unwrap();
    assert_eq!((&finish["outcome"], &finish["reason"]), (&json!("rejected"), &json!("content_refused")));
    let finding = Finding::Refuse("it names a customer".to_owned());
    let (fixture, _) = of_output(Does::Says(finding), OnFailure::Open);
    let result = echo(&fixture, "s3cret").await;
    assert_eq!(reason(&result), "content_refused");
    assert!(!result.to_string().contains("s3cret"), "{result}");
}

#[tokio::test]
async fn where_nobody_can_look_the_rule_says_what_happens() {
    let long = "x".repeat(300);
    type Case<'a> = (fn() -> Does<Value>, fn() -> Does<Output>, &'a str);
    let does: [Case<'_>; 3] = [
        (|| Does::Fails, || Does::Fails, "s3cret"),
        (|| Does::Hangs, || Does::Hangs, "s3cret"),
        (|| Does::Says(Finding::Pass), || Does::Says(Finding::Pass), &long),
    ];
    for (input, output, message) in does {
        let (open, _) = of_input(input(), OnFailure::Open);
        assert_eq!(echo(&open, message).await["structuredContent"]["message"], message);
        let (closed, _) = of_input(input(), OnFailure::Closed);
        assert_eq!(reason(&echo(&closed, message).await), "upstream_unavailable");
        let (open, _) = of_output(output(), OnFailure::Open);
        assert_eq!(echo(&open, message).await["structuredContent"]["message"], message);
        let (closed, _) = of_output(output(), OnFailure::Closed);
        let result = echo(&closed, message).await;
        assert_eq!(reason(&result), "upstream_unavailable");
        assert!(!result.to_string().contains(message), "{result}");
    }
}

/// A call that was done is not done again because its result was withheld, and one that was barred left no effect.
#[tokio::test]
async fn a_retry_under_the_same_key_is_told_the_same() {
    let script = || {
        Script::of(|_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        })
    };
    let mut request =
        Modern::new("plugins", &token("alice"), "tools/call", json!({"name": "order", "arguments": {}}));
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    for (at_output, runs) in [(true, 1), (false, 0)] {
        let runtime = Runtime::start(script());
        let refusal = "it names a customer".to_owned();
        let inspections = match at_output {
            true => Inspections {
                input: None,
                output: inspection(Does::Says(Finding::Refuse(refusal)), OnFailure::Open).0,
            },
            false => Inspections {
                input: inspection(Does::Says(Finding::Refuse(refusal)), OnFailure::Open).0,
                output: None,
            },
        };
        let fixture = Fixture::inspected_with(runtime.runtimes(), inspections);
        for _ in 0..2 {
            let result = request.send(&fixture).await.json()["result"].clone();
            assert_eq!(reason(&result), "content_refused");
            assert!(result.to_string().contains("it names a customer"), "{result}");
        }
        assert_eq!(runtime.told.allocations.lock().len(), runs);
    }
}

/// A call of `order` under a key.
fn order() -> Modern {
    let mut request =
        Modern::new("plugins", &token("alice"), "tools/call", json!({"name": "order", "arguments": {}}));
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    request
}

fn completes() -> Runtime {
    Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }))
}

/// Nobody says "at the moment" of what stays so for a day.
#[tokio::test]
async fn an_output_that_could_not_be_inspected_is_never_shown_where_the_call_cannot_be_repeated() {
    let misfit = || Does::Says(Finding::Replace(Output::structured(json!({"ok": "no"}))));
    type Case = (fn() -> Does<Output>, &'static str);
    let does: [Case; 3] = [
        (|| Does::Fails, "could not be inspected when the call was done"),
        (|| Does::Hangs, "could not be inspected when the call was done"),
        (misfit, "does not fit the schema"),
    ];
    for (does, why) in does {
        let runtime = completes();
        let inspections = Inspections { input: None, output: inspection(does(), OnFailure::Closed).0 };
        let fixture = Fixture::inspected_with(runtime.runtimes(), inspections);
        for _ in 0..2 {
            let result = order().send(&fixture).await.json()["result"].clone();
            assert_eq!(reason(&result), "content_refused");
            assert!(result.to_string().contains(why), "{result}");
        }
        assert_eq!(runtime.told.allocations.lock().len(), 1);
    }
}

#[tokio::test]
async fn a_cancel_while_an_output_is_inspected_is_no_fault_of_the_inspector() {
    let (output, seen) = inspection(Does::Hangs, OnFailure::Closed);
    let output = output.map(|inspection| Inspection { within: Duration::from_secs(60), ..inspection });
    let fixture = Fixture::inspected(Inspections { input: None, output });
    let echoing = tokio::spawn({
        let fixture = fixture.clone();
        async move { echo_whole(&fixture, "s3cret").await }
    });
    until("it is inspected", || !seen.lock().is_empty()).await;
    fixture.gateway.pipeline.internals().registry.running().pop().unwrap().cancel();
    let answer = echoing.await.unwrap();
    assert!(answer.contains("cancelled") && !answer.contains("inspect"), "{answer}");
}

/// An inspector with a fault of its own, once it may.
struct Panicking(Arc<Notify>);

#[async_trait]
impl Inspector<Output> for Panicking {
    async fn inspect(&self, _call: &Call, _content: &Output) -> Result<Finding<Output>, InspectorFault> {
        self.0.notified().await;
        std::panic::resume_unwind(Box::new("a fault of ours"))
    }
}

#[tokio::test]
async fn a_call_whose_task_panics_is_stored_as_unknown() {
    let may = Arc::new(Notify::new());
    let output = Inspection {
        inspector: Arc::new(Panicking(may.clone())),
        within: Duration::from_secs(60),
        max_bytes: 1000,
        on_failure: OnFailure::Closed,
    };
    let fixture = Fixture::inspected(Inspections { input: None, output: Some(output) });
    fixture.gateway.pipeline.internals().active.renew().await.unwrap();
    let call = Rest::of(&fixture, "policy.once", "1");
    let put = call.put(&json!({})).await;
    assert_eq!((put.status, &put.json()["status"]), (StatusCode::CREATED, &json!("running")), "{}", put.text);
    may.notify_one();
    let other = fixture.beside(Runtimes::none());
    let elsewhere = call.on(&other);
    until_async("its end is stored", async || elsewhere.get().await.json()["status"] == "failed").await;
    assert_eq!(elsewhere.get().await.json()["error"]["code"], "outcome_unknown");
}
