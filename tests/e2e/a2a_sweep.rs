//! The compliance sweep as a task of A2A, from the card to the signed report: each step of its sequence diagram on both wires,
//! cancels before and after a worker has the call, a stream that is lost, and a webhook; the same task of a hosted service is
//! called by `hosted_calls`, which has the service.

mod client;
pub(crate) mod hosted;
mod steps;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::agent::{COMPLETED, INPUT_REQUIRED, has_ended, state};
use asp_e2e::journal::Journal;
use asp_e2e::model::Model;
use asp_e2e::push_receiver::Receiver;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{http1, tool, wait};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use self::client::{AgentClient, Events, asks};
use crate::message::modern;
use crate::plugins::{COMPLIANCE, TOKEN, sweep_arguments};
use crate::trial::{Shared, trials};
use crate::{packages, policy, tokens};

/// Answer of the model to each delegate of the sweep.
const SAYS: &str = "[\"national-id\"]";
const CARD_KEYS: &str = "/.well-known/agent-card-jwks.json";
const GENERATION: &str = "asp/generation";

trials! { a2a_sweep:
    each_step_of_the_sequence_passes_its_wire,
    a_stream_that_was_lost_misses_nothing_once_it_is_resubscribed,
    a_webhook_gets_each_state_in_order_and_signed,
}

/// Questions of the sweep, by the start of their ids, with the names and the answers of the messages for them: the platform's
/// approval of a destructive call, and the two of the sweep.
fn answers() -> [(&'static str, &'static str, Value); 3] {
    [
        ("asp.approve", "approve", json!({"approve": true})),
        ("gather_missing_policy", "policy", json!({"legalHoldPolicyId": "LHP-42"})),
        ("approve_remediation", "remediation", json!({"approveRedaction": true, "approveQuarantine": true})),
    ]
}

async fn sweeper(stack: &Stack) -> Result<AgentClient> {
    Ok(AgentClient::new(stack.edge(), COMPLIANCE, stack.token(TOKEN).await?))
}

/// The compliance server alone, with one worker at a time and a model for its delegates.
async fn start(model: &Model) -> Result<(TempDir, Stack)> {
    let primitives = tempfile::tempdir()?;
    let folder = primitives.path().join(COMPLIANCE);
    packages::copy(&tool::root()?.join("primitives").join(COMPLIANCE), &folder)?;
    let file = folder.join("cdcsr.json");
    let mut spec: Value = serde_json::from_slice(&fs::read(&file)?)?;
    spec["runtime"]["pool"] = json!({"max": 1});
    fs::write(&file, spec.to_string())?;
    let environment = vec![("ASP_DELEGATE_URL", model.url()), ("ASP_DELEGATE_MODEL", "test".to_owned())];
    let primitives_path = primitives.path().to_owned();
    let options =
        Options { primitives: primitives_path, plugins: true, environment, ..Options::repository()? };
    let stack = Stack::start(options).await?;
    policy::expose(&stack, "acme", COMPLIANCE).await?;
    policy::expose_agent(&stack, "acme", COMPLIANCE).await?;
    Ok((primitives, stack))
}

async fn each_step_of_the_sequence_passes_its_wire(_: &Shared) -> Result<()> {
    steps::check_numbers()?;
    let model = Model::start(SAYS).await?;
    let (_primitives, stack) = start(&model).await?;
    let journal = stack.tap.as_ref().context("the stack has a tap")?.journal().clone();
    stack.write_agents_to(&journal)?;
    let client = sweeper(&stack).await?;
    client.card().await?;
    client.call("card", "GetExtendedAgentCard", &json!({})).await?;

    // It holds the worker, until it is cancelled.
    let mut held = client.start("held", &sweep_arguments(), &json!({})).await?;
    approve(&client, &mut held, "approve-held").await?;
    held.until_asked("gather_missing_policy").await?;
    let configuration = json!({"acceptedOutputModes": ["application/json"], "historyLength": 0});
    let mut sweep = client.start("sweep", &sweep_arguments(), &configuration).await?;
    approve(&client, &mut sweep, "approve").await?;
    sweep.until_phase("ADMISSION.QUEUED").await?;
    let mut early = client.start("early", &sweep_arguments(), &json!({})).await?;
    approve(&client, &mut early, "approve-early").await?;
    early.until_phase("ADMISSION.QUEUED").await?;
    client.cancel("cancel-early", &early.task).await?;
    early.end().await?;
    wait::until("the place in the queue is given up", wait::CONVERGE, || async {
        journal.has("cancel_allocation").then_some(())
    })
    .await?;
    client.cancel("cancel", &held.task).await?;
    held.end().await?;

    for (question, id, fields) in answers().into_iter().skip(1) {
        sweep.until_asked(question).await?;
        client.answer(id, &sweep.task, &fields).await?;
    }
    let ended = sweep.end().await?;
    ensure!(state(&ended) == COMPLETED, "{ended}");
    wait::until("the tunnel is closed", wait::CONVERGE, || async {
        let lines = journal.lines();
        let end = lines.iter().position(|line| line.starts_with("< completed"))?;
        lines.iter().skip(end).any(|line| line.starts_with("close")).then_some(())
    })
    .await?;
    let lines = journal.take();
    for table in [steps::WHOLE, steps::CANCELLED, steps::CANCELLED_EARLY] {
        steps::check(&lines, table)?;
    }
    let is_begun = |task: &str| lines.iter().any(|line| line.starts_with("> invoke") && line.contains(task));
    ensure!(is_begun(&sweep.task) && is_begun(&held.task), "a task has no worker");
    ensure!(!is_begun(&early.task), "a task that was cancelled in the queue had a worker");
    ensure!(!model.take().is_empty(), "the platform's model was not asked");
    read_report(&stack, &ended).await?;
    stack.stop(&[]).await
}

async fn approve(client: &AgentClient, events: &mut Events, id: &str) -> Result<()> {
    let [(question, _, fields), ..] = answers();
    events.until_asked(question).await?;
    client.answer(id, &events.task, &fields).await
}

/// Reads the signed report, as the principal that started the task.
async fn read_report(stack: &Stack, task: &Value) -> Result<()> {
    let urls = task["artifacts"].as_array().into_iter().flatten().filter_map(|artifact| {
        let part = artifact.pointer("/parts/0")?;
        if part["filename"] == "report.json" { part["url"].as_str() } else { None }
    });
    let urls: Vec<&str> = urls.collect();
    let &[url] = urls.as_slice() else { bail!("not one report: {task}") };
    let token = stack.token(TOKEN).await?;
    let mut read = modern(&token, "resources/read", json!({"uri": url}), &[("mcp-name", url)]);
    read.target = format!("/{COMPLIANCE}/mcp");
    let answer = http1::send(stack.edge(), &read).await?.json()?;
    let text = answer.pointer("/result/contents/0/text").and_then(Value::as_str);
    let report: Value = serde_json::from_str(text.with_context(|| format!("no text: {answer}"))?)?;
    let signature = &report["signature"];
    ensure!(signature["algorithm"] == "Ed25519" && signature["value"].is_string(), "{report}");
    ensure!(report["report"]["legalHoldPolicyId"] == "LHP-42", "{report}");
    ensure!(report["report"]["scoring"]["meetings"]["by"] == "llm_pii_classifier", "{report}");
    Ok(())
}

async fn a_stream_that_was_lost_misses_nothing_once_it_is_resubscribed(shared: &Shared) -> Result<()> {
    let stack = shared.plugin_stack().await?;
    let journal = Journal::default();
    stack.write_agents_to(&journal)?;
    let client = sweeper(stack).await?;
    let mut whole = client.start("whole", &sweep_arguments(), &json!({})).await?;
    let mut lost = client.follow("lost", &whole.task).await?;
    approve(&client, &mut whole, "approve").await?;
    lost.until_phase("INIT").await?;
    drop(lost);
    let [_, (question, id, fields), (last_question, last_id, last_fields)] = answers();
    whole.until_asked(question).await?;
    client.answer(id, &whole.task, &fields).await?;
    // The task works on while the client subscribes again.
    let mut again = client.follow("again", &whole.task).await?;
    whole.until_asked(last_question).await?;
    client.answer(last_id, &whole.task, &last_fields).await?;
    let ended = whole.end().await?;
    ensure!(again.end().await? == ended && state(&ended) == COMPLETED, "{ended}");
    let known = generation(&again.seen[0]["task"]).context("a task has a generation")?;
    let missed = changes(&whole.seen, known);
    ensure!(!missed.is_empty() && missed == changes(&again.seen, known), "{missed:#?}\n{:#?}", again.seen);
    let generations: Vec<u64> = changes(&whole.seen, 0).iter().filter_map(generation).collect();
    ensure!(generations.is_sorted(), "a generation falls: {generations:?}");
    steps::check(&journal.take(), steps::LOST)
}

fn generation(change: &Value) -> Option<u64> {
    change["metadata"][GENERATION].as_u64()
}

/// Returns the changes of a task after a generation, without the times at which questions were shown.
fn changes(events: &[Value], known: u64) -> Vec<Value> {
    let kinds = ["statusUpdate", "artifactUpdate"];
    let changes = events.iter().filter_map(|event| kinds.iter().find_map(|kind| event.get(kind)));
    // The whole result has no generation: it comes with the last state.
    let later = changes.filter(|change| generation(change).is_none_or(|generation| generation > known));
    let mut later: Vec<Value> = later.cloned().collect();
    for change in &mut later {
        if let Some(status) = change["status"].as_object_mut() {
            status.remove("timestamp");
        }
    }
    later
}

async fn a_webhook_gets_each_state_in_order_and_signed(shared: &Shared) -> Result<()> {
    let stack = shared.plugin_stack().await?;
    let journal = Journal::default();
    stack.write_agents_to(&journal)?;
    let client = sweeper(stack).await?;
    let receiver = Receiver::start().await?;
    let mut events = client.start("pushed", &sweep_arguments(), &json!({})).await?;
    let task = events.task.clone();
    let authentication = json!({"scheme": "Bearer", "credentials": "c-1"});
    let config = json!({"taskId": task, "id": "hook", "url": receiver.url, "token": "tok-aaa",
        "authentication": authentication});
    for (number, (question, id, fields)) in answers().into_iter().enumerate() {
        events.until_asked(question).await?;
        if number == 0 {
            client.call("hook", "CreateTaskPushNotificationConfig", &config).await?;
        }
        receiver.until(|body| asks(&body["task"], question)).await?;
        client.answer(id, &task, &fields).await?;
    }
    events.end().await?;
    receiver.until(|body| state(&body["task"]) == COMPLETED).await?;
    let (audience, _) = receiver.url.rsplit_once('/').context("a receiver has a path")?;
    let issuer = format!("http://{}", stack.edge());
    let mut sent = BTreeSet::new();
    let mut states = Vec::new();
    let mut last = 0;
    for notification in receiver.notifications() {
        let signature = notification.header("a2a-notification-signature");
        let keys = (stack.edge(), CARD_KEYS);
        let signed = tokens::judge_by(keys, signature, (audience, &issuer)).await?;
        let claims = &signed["claims"];
        ensure!(signed["header"]["typ"] == "a2a-notification+jwt" && claims["sub"] == task, "{signed}");
        ensure!(claims["request_body_sha256"] == digest(&notification.bytes), "{signed}");
        ensure!(notification.header("authorization") == "Bearer c-1", "{notification:?}");
        let token = notification.header("x-a2a-notification-token");
        journal.write(format!("webhook < {token} {}", notification.body));
        let shown = &notification.body["task"];
        if let Some(generation) = generation(shown) {
            ensure!(generation >= last, "a generation falls: {notification:?}");
            last = generation;
        }
        // The same state may come twice.
        if sent.insert(claims["jti"].to_string()) {
            states.push(state(shown).to_owned());
        }
    }
    let waiting = states.iter().filter(|state| *state == INPUT_REQUIRED).count();
    ensure!(waiting >= answers().len(), "a question was not sent: {states:?}");
    ensure!(states.iter().any(|state| state == "TASK_STATE_WORKING"), "{states:?}");
    ensure!(states.iter().position(|state| has_ended(state)) == Some(states.len() - 1), "{states:?}");
    steps::check(&journal.take(), steps::PUSHED)
}

/// Returns the SHA-256 of a body in base64url.
fn digest(body: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(body))
}
