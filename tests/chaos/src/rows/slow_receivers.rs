//! F48: a hundred receivers of push notifications answer nothing, while their tasks end. Those of another org get theirs as soon
//! as without them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use asp_e2e::agent::{Agent, COMPLETED, message};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::push_receiver::Receiver;
use asp_e2e::spread::percentile;
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::sheet::Sheet;

const GATEWAYS: usize = 3;
const SLOW: usize = 100;
/// Tasks of each slow receiver: more than it can be sent while the row runs.
const TASKS_OF_SLOW: usize = 10;
/// Time between two tasks of the others, and how long they go on.
const PERIOD: Duration = Duration::from_millis(40);
const LENGTH: Duration = Duration::from_secs(20);
/// Times the quiet 99th percentile of the others' deliveries.
const GROWTH: f64 = 1.2;
/// Milliseconds that shorter times count as, because a sender gathers for 20 of them.
const LEAST_MS: f64 = 50.0;

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
    let cluster = Cluster::start_as(Layout { environment, ..Layout::of(GATEWAYS)? }).await?;
    let places = cluster.addresses();
    let [slow, others] = [agent(&cluster, "slow").await?, agent(&cluster, "others").await?];
    for at in &places {
        let serves = || async { others.send(*at, &task(None)).await.ok() };
        wait::until("a gateway starts tasks", wait::START, serves).await?;
    }
    let quiet = delays(&others, &places).await?;
    let mut silent = Vec::new();
    for _ in 0..SLOW {
        silent.push(Receiver::start_silent().await?);
    }
    burden(&slow, &places, &silent).await?;
    let during = delays(&others, &places).await?;
    let reached = silent.iter().filter(|receiver| !receiver.notifications().is_empty()).count();
    let at = |values: &[f64], share| percentile(values, share).context("nothing was delivered");
    for (name, values) in [("quiet", &quiet), ("during", &during)] {
        sheet.note(&format!("others' deliveries {name}, p50, ms"), at(values, 0.5)?);
        sheet.note(&format!("others' deliveries {name}, p99, ms"), at(values, 0.99)?);
    }
    let grown = at(&during, 0.99)?.max(LEAST_MS) / at(&quiet, 0.99)?.max(LEAST_MS);
    sheet.at_most("p99 of others' deliveries, times the quiet one", grown, GROWTH);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.at_least("slow receivers that were sent something", reached as f64, SLOW as f64);
    }
    Ok(())
}

async fn agent(cluster: &Cluster, org: &str) -> Result<Agent> {
    let token = cluster.token(&["--org", org, "--user", "alice", "--ttl", "12h"]).await?;
    Ok(Agent::of("a2a-conformance", token))
}

/// The parameters of a message whose task ends at once.
fn task(receiver: Option<&str>) -> Value {
    let message = message(json!([{"text": "tck-complete-task"}]), None);
    let configuration = receiver.map(|url| json!({"taskPushNotificationConfig": {"url": url}}));
    json!({"message": message, "configuration": configuration.unwrap_or_else(|| json!({}))})
}

/// Ends tasks of the slow receivers.
async fn burden(agent: &Agent, places: &[SocketAddr], silent: &[Receiver]) -> Result<()> {
    for _ in 0..TASKS_OF_SLOW {
        for (receiver, at) in silent.iter().zip(places.iter().cycle()) {
            agent.send(*at, &task(Some(&receiver.url))).await?;
        }
    }
    Ok(())
}

/// Ends tasks at a steady rate; returns the times from their ends to the receipt, in milliseconds.
async fn delays(agent: &Agent, places: &[SocketAddr]) -> Result<Vec<f64>> {
    let receiver = Receiver::start().await?;
    let mut tasks = JoinSet::new();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let count = LENGTH.as_millis() / PERIOD.as_millis();
    for (_, at) in (0..count).zip(places.iter().copied().cycle()) {
        ticks.tick().await;
        let agent = agent.clone();
        let params = task(Some(&receiver.url));
        tasks.spawn(async move { agent.send(at, &params).await });
    }
    let mut sent = 0;
    while let Some(answered) = tasks.join_next().await {
        answered??;
        sent += 1;
    }
    let ends = || {
        let notifications = receiver.notifications().into_iter();
        let is_end =
            |body: &Value| body.pointer("/task/status/state").and_then(Value::as_str) == Some(COMPLETED);
        notifications.filter(|one| is_end(&one.body)).filter_map(|one| one.delay_ms()).collect::<Vec<f64>>()
    };
    let arrived = || async { Some(ends()).filter(|ends| ends.len() >= sent) };
    wait::until("all deliveries", wait::START, arrived).await
}
