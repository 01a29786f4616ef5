//! F61: calls at two gateways wait until another person approves. Requests are visible to the approver, in the list and at the
//! webhook, within two seconds, and a decision lets its call go on as soon.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Request};
use asp_e2e::message::{modern, rest};
use asp_e2e::push_receiver::Receiver;
use asp_e2e::spread::percentile;
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::wait;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::sheet::Sheet;

const SAMPLES: usize = 100;
/// Calls that wait at the same time; a caller may have 20 open requests.
const AT_ONCE: usize = 5;
/// Between two calls, because each decision is a write and an org may write about once a second.
const EVERY: Duration = Duration::from_millis(1_100);
const GATEWAYS: usize = 2;
/// Bound in seconds.
const P99: f64 = 2.0;
/// Between two looks at the list, so that they leave the processors to what is measured.
const PAUSE: Duration = Duration::from_millis(25);
const LIST: &str = "/api/approvals?org=acme&state=pending";

/// An admin who lists, an approver who decides, a caller.
struct People {
    api: SocketAddr,
    lists: Request,
    bob: String,
    alice: String,
    receiver: Receiver,
}

/// Seconds of one call.
struct Sample {
    until_listed: f64,
    until_notified: f64,
    /// Time since the decision at the call's result.
    until_done: f64,
}

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let receiver = Receiver::start().await?;
    let environment = vec![
        ("ASP_DATABASE_URL", postgres.url()),
        ("ASP_REDIS_URL", redis.url()),
        ("ASP_APPROVAL_WEBHOOK", receiver.url.clone()),
    ];
    let cluster = Cluster::start_in(environment, GATEWAYS).await?;
    cluster.put("/api/policy/orgs/acme/bindings?force=true", &by_finance()).await?;
    let bob = ["--admin", "--user", "bob", "--role", "org:acme", "--group", "finance", "--ttl", "2h"];
    let root = cluster.token(&["--admin", "--user", "root", "--ttl", "2h"]).await?;
    let people = People {
        api: SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin)),
        lists: rest("GET", LIST, &root, &Value::Null),
        bob: cluster.token(&bob).await?,
        alice: cluster.token(&["--org", "acme", "--user", "alice", "--ttl", "2h"]).await?,
        receiver,
    };
    let addresses = cluster.addresses();
    let people = &people;
    let gateways = &addresses;
    let due = (0..SAMPLES).scan(Instant::now(), |due, number| {
        *due += EVERY;
        Some((number, *due))
    });
    let taken = stream::iter(due).map(|(number, due)| async move {
        sleep_until(due).await;
        let gateway = gateways.iter().cycle().nth(number % GATEWAYS).context("a gateway")?;
        sample(people, *gateway, number).await
    });
    let taken: Vec<Sample> = taken.buffer_unordered(AT_ONCE).try_collect().await?;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    sheet.at_least("samples", taken.len() as f64, SAMPLES as f64);
    hold(sheet, "until a request is in the list", taken.iter().map(|one| one.until_listed))?;
    hold(sheet, "until the webhook has it", taken.iter().map(|one| one.until_notified))?;
    hold(sheet, "from the decision to the result", taken.iter().map(|one| one.until_done))
}

fn hold(sheet: &mut Sheet, what: &str, values: impl Iterator<Item = f64>) -> Result<()> {
    let values: Vec<f64> = values.collect();
    let at = |share: f64| percentile(&values, share).context("no sample");
    sheet.note(&format!("seconds {what}, p50"), at(0.5)?);
    sheet.at_most(&format!("seconds {what}, p99"), at(0.99)?, P99);
    sheet.note(&format!("seconds {what}, longest"), at(1.0)?);
    Ok(())
}

/// One call, from its beginning to its result.
async fn sample(people: &People, gateway: SocketAddr, number: usize) -> Result<Sample> {
    let message = format!("payment {number};");
    let call = echo(&people.alice, &message);
    let began = Instant::now();
    let began_at = SystemTime::now();
    let calling = tokio::spawn(async move { http1::send(gateway, &call).await?.json() });
    let open = listed(people, &message).await?;
    let until_listed = began.elapsed().as_secs_f64();
    let notice = people.receiver.until(|notice| notice.get("id") == open.get("id")).await?;
    let until_notified = notice.at.duration_since(began_at).unwrap_or_default().as_secs_f64();
    ensure!(!calling.is_finished(), "the call did not wait");
    let id = open.get("id").and_then(Value::as_str).context("an id")?;
    let path = format!("/api/approvals/{id}/decision");
    let decide = rest("POST", &path, &people.bob, &json!({"decision": "approve"}));
    let decided = Instant::now();
    let answer = http1::send(people.api, &decide).await?;
    ensure!(answer.status == 200, "{}", answer.text());
    let done = calling.await??;
    let until_done = decided.elapsed().as_secs_f64();
    let is_done = done.pointer("/result/structuredContent/message") == Some(&json!(message));
    ensure!(is_done, "no result: {done}");
    Ok(Sample { until_listed, until_notified, until_done })
}

/// Waits until the request of a call is in the list.
async fn listed(people: &People, message: &str) -> Result<Value> {
    let began = Instant::now();
    loop {
        let listed = http1::send(people.api, &people.lists).await?.json()?;
        let is_its = |one: &&Value| {
            let shown = one.get("arguments").and_then(Value::as_str);
            shown.is_some_and(|shown| shown.contains(message))
        };
        if let Some(found) = listed.as_array().into_iter().flatten().find(is_its) {
            return Ok(found.clone());
        }
        ensure!(began.elapsed() < wait::CONVERGE, "no request for {message:?}: {listed}");
        sleep(PAUSE).await;
    }
}

fn echo(token: &str, message: &str) -> Request {
    let params = json!({"name": "echo", "arguments": {"message": message}});
    modern(token, "tools/call", params, &[("mcp-name", "echo")])
}

fn by_finance() -> Value {
    json!({
        "target": {"type": "user", "idOrPattern": "*"},
        "primitive": {"name": "echo", "protocol": "*"},
        "allowed": true, "approval": true, "approvers": {"group": "finance"},
    })
}
