//! Revocations by a topic of a real Kafka: enforced at edge and gateway, once however often an event comes, with what is no
//! event parked; a control plane or a broker that is killed loses none (I-6, I-12, I-13).

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Request};
use asp_e2e::kafka::Kafka;
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{tool, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::message::modern;
use crate::policy::{admin, becomes, sha256};
use crate::trial::{Shared, trials};

const TOPIC: &str = "asp.revocations";
const GROUP: &str = "asp-control";
/// Holds the lock of all writes of a SQLite file until it is ended.
const HOLD: &str = "import sqlite3, sys, time\n\
    held = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n\
    held.execute('BEGIN IMMEDIATE')\n\
    print('held', flush=True)\n\
    time.sleep(86400)\n";

trials! { kafka:
    events_revoke_at_edge_and_gateway_once_and_others_are_parked,
    a_control_plane_killed_before_its_offset_is_committed_changes_nothing_twice,
    a_broker_that_is_away_is_reported_and_read_on_when_it_is_back,
}

/// A stack that reads a topic.
async fn start() -> Result<(Kafka, Stack)> {
    let kafka = Kafka::start(TOPIC).await?;
    let environment =
        vec![("ASP_KAFKA_BROKERS", kafka.address.to_string()), ("ASP_KAFKA_ORGS", "acme,team-*".to_owned())];
    let stack = Stack::start(Options { environment, ..Options::repository()? }).await?;
    Ok((kafka, stack))
}

fn list(token: &str) -> Request {
    modern(token, "tools/list", json!({}), &[])
}

async fn token(stack: &Stack, org: &str, user: &str) -> Result<String> {
    stack.token(&["--org", org, "--user", user]).await
}

/// Edge and gateway both let the token in, or both refuse it.
async fn at_both(stack: &Stack, token: &str, status: u16, reason: Option<&str>) -> Result<()> {
    for door in [stack.edge(), stack.gateway()] {
        becomes(door, list(token), status, reason).await?;
    }
    Ok(())
}

/// The topic as the control plane reports it.
async fn topic(stack: &Stack) -> Result<Value> {
    Ok(admin(stack, "GET", "/api/snapshot", "").await?.json()?["kafka"].clone())
}

/// Waits until the control plane has counted so many messages of an outcome.
async fn counted(stack: &Stack, outcome: &str, count: u64) -> Result<()> {
    let reached = || async { topic(stack).await.ok().filter(|topic| topic[outcome] == count) };
    // A group that has lost a member waits ten seconds for it.
    wait::until(&format!("{count} {outcome}"), wait::START, reached)
        .await
        .map(drop)
        .with_details(|| stack.asp.tail())
}

async fn revocations(stack: &Stack) -> Result<Vec<Value>> {
    let listed = admin(stack, "GET", "/api/revocations", "").await?.json()?;
    listed.as_array().cloned().context("a list")
}

async fn asp(stack: &Stack, arguments: &[&str]) -> Result<String> {
    let token = stack.token(&["--admin", "--user", "root"]).await?;
    let mut command = Command::new(tool::asp()?);
    command.args(arguments).kill_on_drop(true);
    command.env("ASP_ADMIN_URL", format!("http://{}", stack.admin())).env("ASP_ADMIN_TOKEN", token);
    let output = command.output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

async fn events_revoke_at_edge_and_gateway_once_and_others_are_parked(_: &Shared) -> Result<()> {
    let (kafka, stack) = start().await?;
    let [bob, other, carol] = [
        token(&stack, "acme", "bob").await?,
        token(&stack, "acme", "dave").await?,
        token(&stack, "globex", "carol").await?,
    ];
    for token in [&bob, &other, &carol] {
        at_both(&stack, token, 200, None).await?;
    }
    let of_bob =
        json!({"event": "e-1", "type": "user", "org": "acme", "id": "bob", "reason": "left"}).to_string();
    kafka.send(TOPIC, &of_bob).await?;
    counted(&stack, "revoked", 1).await?;
    at_both(&stack, &bob, 401, Some("token_revoked")).await?;
    at_both(&stack, &other, 200, None).await?;
    let of_other = json!({"type": "wcit", "org": "acme", "id": sha256(&other)}).to_string();
    kafka.send(TOPIC, &of_other).await?;
    at_both(&stack, &other, 401, Some("token_revoked")).await?;

    // A repetition, an org that the topic may not revoke in, and what is no event.
    kafka.send(TOPIC, &of_bob).await?;
    let of_carol = json!({"type": "user", "org": "globex", "id": "carol"}).to_string();
    kafka.send(TOPIC, &of_carol).await?;
    let last = kafka.send(TOPIC, &format!("{{\"token\": \"{carol}\"")).await?;
    for (outcome, count) in [("revoked", 2), ("repeated", 1), ("parked", 2)] {
        counted(&stack, outcome, count).await?;
    }
    at_both(&stack, &carol, 200, None).await?;
    ensure!(revocations(&stack).await?.len() == 2, "one for each event");
    wait::until("every offset is committed", wait::CONVERGE, || async {
        kafka.committed(GROUP, TOPIC).await.ok().filter(|committed| *committed == last + 1)
    })
    .await?;
    let parked = asp(&stack, &["kafka", "parked"]).await?;
    ensure!(parked.contains("ASP_KAFKA_ORGS") && parked.contains(&format!("{TOPIC}:0:{last}")), "{parked}");
    ensure!(!parked.contains(&carol), "no token is kept: {parked}");
    ensure!(asp(&stack, &["status"]).await?.contains(&format!("topic {TOPIC} read since")), "asp status");
    asp(&stack, &["kafka", "drop", &format!("{TOPIC}:0:{last}")]).await?;
    ensure!(asp(&stack, &["kafka", "parked"]).await?.lines().count() == 1, "one is left");
    let metrics = http1::get(stack.admin(), "/metrics", &[]).await?.text();
    for line in ["asp_kafka_connected 1", "asp_kafka_messages_total{outcome=\"parked\"} 2"] {
        ensure!(metrics.lines().any(|known| known == line), "{line}: {metrics}");
    }
    stack.stop(&[]).await
}

async fn a_control_plane_killed_before_its_offset_is_committed_changes_nothing_twice(
    _: &Shared,
) -> Result<()> {
    let (mut kafka, mut stack) = start().await?;
    let bob = token(&stack, "acme", "bob").await?;
    // The message is read, and cannot be stored before the broker is gone: its offset is never committed.
    let mut command = Command::new(tool::python()?);
    command.args(["-c", HOLD]).arg(stack.state.path().join("asp.db"));
    let holder = Process::start("holder", command)?;
    holder.logged("held").await?;
    let of_bob = json!({"event": "e-1", "type": "user", "org": "acme", "id": "bob"}).to_string();
    kafka.send(TOPIC, &of_bob).await?;
    wait::until("the message waits for the store", wait::START, || async {
        stack.asp.log().contains("holds up later ones").then_some(())
    })
    .await
    .with_details(|| stack.asp.tail())?;
    kafka.process.signal(Signal::KILL)?;
    kafka.process.wait(wait::START).await?;
    drop(holder);
    at_both(&stack, &bob, 401, Some("token_revoked")).await?;
    // An admin lets bob in again, which the repetition must not undo.
    let revoked = revocations(&stack).await?;
    let id = revoked.first().and_then(|one| one["revocation"].as_str()).context("bob's revocation")?;
    admin(&stack, "DELETE", &format!("/api/revocations/{id}"), "").await?;
    stack.restart_asp(Signal::KILL).await?;
    kafka.start_again().await?;
    counted(&stack, "repeated", 1).await?;
    ensure!(revocations(&stack).await?.is_empty(), "it stays lifted");
    at_both(&stack, &bob, 200, None).await?;
    // What comes after it is read.
    kafka.send(TOPIC, &json!({"type": "org", "id": "acme"}).to_string()).await?;
    at_both(&stack, &bob, 401, Some("token_revoked")).await?;
    stack.stop(&[]).await
}

async fn a_broker_that_is_away_is_reported_and_read_on_when_it_is_back(_: &Shared) -> Result<()> {
    let (mut kafka, stack) = start().await?;
    let bob = token(&stack, "acme", "bob").await?;
    let connected = |wanted: bool| {
        let stack = &stack;
        wait::until("the state of the topic", wait::CONVERGE, move || async move {
            topic(stack).await.ok().filter(|topic| topic["connected"] == wanted)
        })
    };
    connected(true).await?;
    let warned = || {
        let lines = stack.asp.log().lines();
        lines.iter().filter(|line| line.contains("revocations of the topic cannot be read")).count()
    };
    let before = warned();
    kafka.process.signal(Signal::KILL)?;
    kafka.process.wait(wait::START).await?;
    let lost = connected(false).await?;
    ensure!(lost["fault"].as_str().is_some_and(|fault| !fault.is_empty()), "{lost}");
    let ready = http1::get(stack.admin(), "/readyz", &[]).await?;
    ensure!(ready.status == 200 && ready.text().contains("Kafka"), "{}", ready.text());
    // Nothing else suffers.
    at_both(&stack, &bob, 200, None).await?;
    kafka.start_again().await?;
    connected(true).await?;
    ensure!(warned() == before + 1, "it warns once");
    kafka.send(TOPIC, &json!({"type": "user", "org": "acme", "id": "bob"}).to_string()).await?;
    counted(&stack, "revoked", 1).await?;
    at_both(&stack, &bob, 401, Some("token_revoked")).await?;
    stack.stop(&[]).await
}
