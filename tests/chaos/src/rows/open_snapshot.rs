//! F45: a transaction that has read every table stays open, as a backup's does, beside 250 calls a second, which are 500 audit
//! events a second. What it keeps from being cleared away grows all the while; no call is refused.
//!
//! Audit events that the machine's calls are too slow for are appended by the store's own code. At the end a table is locked, so
//! that a refusal is known to be seen.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::history::History;
use asp_e2e::http1::{self, Connection, Request, Response};
use asp_e2e::message::modern;
use asp_e2e::spread::percentile;
use asp_e2e::stores::Postgres;
use asp_e2e::works::Works;
use asp_e2e::{tool, wait};
use asp_store::audit::{AuditLog, CallEvent};
use asp_store::postgres::PostgresAudit;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep};

use crate::sheet::Sheet;

const GATEWAYS: usize = 2;
/// Clients, each with a connection of its own, and the time between two calls of one: 250 calls a second together.
const CLIENTS: u32 = 32;
const PERIOD: Duration = Duration::from_millis(128);
/// Audit events a second; a call has two.
const EVENTS: u64 = 500;
/// The least of them that the log has to have: its last events come a moment after their calls.
const LEAST_EVENTS: f64 = 475.0;
/// Every such call changes something, under a key.
const KEYED: u64 = 10;
/// More than a row of this length leaves.
const AUDIT_BYTES: u64 = 8 << 30;
const REFUSALS_SHOWN: usize = 3;

pub(crate) async fn run(length: Duration, sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let works = Works::start(&History::default()).await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_UPSTREAMS", works.upstream())];
    let primitives = tool::root()?.join("tests/fixtures/works");
    let cluster = Cluster::start_as(Layout { environment, primitives, ..Layout::of(GATEWAYS)? }).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice", "--ttl", "12h"]).await?;
    for at in cluster.addresses() {
        let probe = request(&token, "probe", false);
        let probe = &probe;
        let serves = || async move { http1::send(at, probe).await.ok().filter(|one| refusal(one).is_none()) };
        wait::until("a gateway serves", wait::START, serves).await?;
    }
    let store = asp_store::postgres::Postgres::connect(&postgres.url(), 2).await?;
    let snapshot = postgres.open_snapshot().await?;
    let before = logged(&postgres).await?;
    let load = Load::start(&cluster.addresses(), &token, store.audit(AUDIT_BYTES));
    sleep(length).await;
    let (length, counts) = load.stop().await?;
    let events = logged(&postgres).await?.saturating_sub(before);
    let age = postgres.snapshot_age().await?;
    report(length, &counts, sheet)?;
    #[expect(clippy::cast_precision_loss, reason = "numbers of events and transactions")]
    {
        sheet.at_least("audit events a second", events as f64 / length.as_secs_f64(), LEAST_EVENTS);
        sheet.at_least("transactions since the snapshot", age as f64, 1.0);
    }
    postgres.end_holders().await?;
    drop(snapshot);
    let _lock = postgres.lock_table("ledger").await?;
    let gateway = *cluster.addresses().first().context("a gateway")?;
    let locked = http1::send(gateway, &request(&token, "locked", true)).await?;
    let seen = if refusal(&locked).is_some() { "refused" } else { "served" };
    sheet.expect("a call under a key whose table is locked", seen, "refused");
    store.close().await;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
fn report(length: Duration, counts: &Counts, sheet: &mut Sheet) -> Result<()> {
    let calls = counts.latencies.len() as f64;
    sheet.note("seconds", length.as_secs_f64());
    sheet.note("calls a second", calls / length.as_secs_f64());
    sheet.at_least("calls", calls, 1.0);
    sheet.at_most("refused calls", counts.refusals as f64, 0.0);
    sheet.note("audit events that the store's code appended", counts.appended as f64);
    sheet.at_most("such appends that failed", counts.failed_appends as f64, 0.0);
    let tenth = length / 10;
    let p99 = |is_in: &dyn Fn(Duration) -> bool| {
        let within = counts.latencies.iter().filter(|(at, _)| is_in(*at));
        percentile(&within.map(|(_, taken)| taken.as_secs_f64() * 1_000.0).collect::<Vec<_>>(), 0.99)
    };
    sheet.note("p99 in the first tenth, ms", p99(&|at| at < tenth).context("no call in the first tenth")?);
    let last = p99(&|at| at >= length.saturating_sub(tenth));
    sheet.note("p99 in the last tenth, ms", last.context("no call in the last tenth")?);
    for refusal in &counts.shown {
        sheet.fault(refusal.clone());
    }
    Ok(())
}

/// Number of audit events that the log had.
async fn logged(postgres: &Postgres) -> Result<u64> {
    let last = postgres.ask("SELECT COUNT(*) FROM all_call_events").await?;
    last.parse().with_context(|| format!("{last:?} is no number of events"))
}

/// Outcomes of the calls and of the appended events.
#[derive(Default)]
struct Counts {
    /// Begin and length of every call.
    latencies: Vec<(Duration, Duration)>,
    refusals: u64,
    /// The first of them.
    shown: Vec<String>,
    appended: u64,
    failed_appends: u64,
}

struct Running {
    began: Instant,
    is_over: AtomicBool,
    served: AtomicU64,
    counts: Mutex<Counts>,
}

/// Calls that go on until they are stopped.
struct Load {
    running: Arc<Running>,
    tasks: JoinSet<()>,
}

impl Load {
    fn start(gateways: &[SocketAddr], token: &str, audit: PostgresAudit) -> Load {
        let running = Arc::new(Running {
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            served: AtomicU64::new(0),
            counts: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for (number, at) in (0..CLIENTS).zip(gateways.iter().cycle()) {
            tasks.spawn(Arc::clone(&running).call(*at, token.to_owned(), number));
        }
        tasks.spawn(Arc::clone(&running).top_up(audit));
        Load { running, tasks }
    }

    /// Ends the calls, and returns their length and their outcomes.
    async fn stop(mut self) -> Result<(Duration, Counts)> {
        self.running.is_over.store(true, Ordering::Release);
        let length = self.running.began.elapsed();
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        let counts = std::mem::take(&mut *self.running.counts.lock());
        Ok((length, counts))
    }
}

impl Running {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// One client, which begins at a moment of its own.
    async fn call(self: Arc<Running>, at: SocketAddr, token: String, number: u32) {
        let mut connection = Connection::to(at);
        let mut ticks = interval_at(self.began + PERIOD * number / CLIENTS, PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for call in 0_u64.. {
            ticks.tick().await;
            if self.is_over() {
                return;
            }
            let request = request(&token, &format!("{number}-{call}"), call % KEYED == 0);
            let began = self.began.elapsed();
            let refusal = match connection.send(&request).await {
                Ok(answer) => refusal(&answer),
                Err(error) => Some(format!("{error:#}")),
            };
            self.count(began, refusal);
        }
    }

    fn count(&self, began: Duration, refusal: Option<String>) {
        let mut counts = self.counts.lock();
        counts.latencies.push((began, self.began.elapsed().saturating_sub(began)));
        let Some(refusal) = refusal else {
            self.served.fetch_add(1, Ordering::AcqRel);
            return;
        };
        counts.refusals += 1;
        if counts.shown.len() < REFUSALS_SHOWN {
            counts.shown.push(format!("{:.1} s: {refusal}", began.as_secs_f64()));
        }
    }

    /// Appends the events that the calls are behind by.
    async fn top_up(self: Arc<Running>, audit: PostgresAudit) {
        let mut ticks = interval(Duration::from_secs(1));
        while !self.is_over() {
            ticks.tick().await;
            let due = self.began.elapsed().as_secs() * EVENTS;
            let there = self.served.load(Ordering::Acquire) * 2 + self.counts.lock().appended;
            let events: Vec<CallEvent> = (there..due).map(event).collect();
            if events.is_empty() {
                continue;
            }
            let appended = audit.append(&events).await;
            let mut counts = self.counts.lock();
            match appended {
                Ok(()) => counts.appended += due - there,
                Err(error) => {
                    counts.failed_appends += 1;
                    if counts.shown.len() < REFUSALS_SHOWN {
                        counts.shown.push(format!("append: {error}"));
                    }
                }
            }
        }
    }
}

/// An event about as large as a gateway's.
fn event(number: u64) -> CallEvent {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = json!({"event": "call.finished", "number": number, "detail": "x".repeat(400)});
    CallEvent {
        at_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
        org: "acme".to_owned(),
        event: text.to_string(),
    }
}

fn request(token: &str, thing: &str, is_keyed: bool) -> Request {
    let name = if is_keyed { "once" } else { "look" };
    let meta = if is_keyed { json!({"asp/idempotencyKey": thing}) } else { json!({}) };
    let arguments = json!({"thing": thing, "isHeld": false, "pauseMs": 0});
    let params = json!({"name": name, "arguments": arguments, "_meta": meta});
    let mut request = modern(token, "tools/call", params, &[("mcp-name", name)]);
    request.target = "/works/mcp".to_owned();
    request
}

/// Returns the answer unless it is the result.
fn refusal(answer: &Response) -> Option<String> {
    let is_served = answer.status == 200 && answer.text().contains("\"structuredContent\"");
    (!is_served).then(|| format!("{} {}", answer.status, answer.text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &str) -> Response {
        Response { status, body: body.as_bytes().to_vec(), ..Response::default() }
    }

    #[test]
    fn whatever_is_no_result_is_a_refusal() {
        assert!(refusal(&answered(200, r#"{"result":{"structuredContent":{"thing":"1"}}}"#)).is_none());
        assert!(refusal(&answered(503, r#"{"structuredContent":1}"#)).is_some());
        let failed = r#"{"result":{"isError":true,"_meta":{"asp/reason":"upstream_unavailable"}}}"#;
        assert!(refusal(&answered(200, failed)).is_some());
    }

    #[test]
    fn one_refused_call_is_a_miss() {
        let mut counts = Counts { latencies: vec![(Duration::ZERO, Duration::ZERO); 2], ..Counts::default() };
        counts.latencies[1].0 = Duration::from_secs(10);
        let mut sheet = Sheet::default();
        report(Duration::from_secs(10), &counts, &mut sheet).unwrap();
        assert!(!sheet.missed());
        counts.refusals = 1;
        report(Duration::from_secs(10), &counts, &mut sheet).unwrap();
        assert!(sheet.missed());
    }
}
