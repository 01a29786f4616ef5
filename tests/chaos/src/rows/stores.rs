//! F33: under load, Redis and then PostgreSQL are killed and come back. What only reads goes on; what needs the database is
//! refused by its reason while that is away; both are used again soon.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::message::{modern, rest};
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::wait;
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;

use crate::sheet::Sheet;

/// Clients of each kind, and how long each rests between two calls.
const CLIENTS: usize = 4;
const REST: Duration = Duration::from_millis(50);
/// How long a store is away, and how soon it must be used again.
const AWAY: Duration = Duration::from_secs(5);
const RECOVERED_WITHIN: f64 = 5.0;
/// How long the load goes on before and after.
const WELL: Duration = Duration::from_secs(3);

/// What went wrong, and when.
#[derive(Clone)]
struct Failure {
    at: Instant,
    of: Kind,
    said: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Needs neither store.
    Reads,
    /// Its record is in the database.
    Kept,
}

#[derive(Clone)]
struct Load {
    edge: SocketAddr,
    token: String,
    over: Arc<AtomicBool>,
    failures: Arc<Mutex<Vec<Failure>>>,
}

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let mut postgres = Postgres::start().await?;
    let mut redis = Redis::start().await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
    let cluster = Cluster::start_in(environment, 2).await?;
    limit(&cluster).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice", "--ttl", "1h"]).await?;
    let load = Load { edge: cluster.envoy.address, token, over: Arc::default(), failures: Arc::default() };
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(load.clone().reads());
        clients.spawn(load.clone().keeps(number));
    }
    tokio::time::sleep(WELL).await;
    redis.process.signal(Signal::KILL)?;
    redis.process.wait(wait::CONVERGE).await?;
    tokio::time::sleep(AWAY).await;
    redis.start_again().await?;
    let back = Instant::now();
    for gateway in &cluster.gateways {
        gateway.process.logged("all gateways together again").await?;
    }
    sheet.at_most("seconds until Redis is used again", back.elapsed().as_secs_f64(), RECOVERED_WITHIN);
    tokio::time::sleep(WELL).await;
    let killed = Instant::now();
    postgres.process.signal(Signal::QUIT)?;
    postgres.process.wait(wait::CONVERGE).await?;
    tokio::time::sleep(AWAY).await;
    postgres.start_again().await?;
    let back = Instant::now();
    tokio::time::sleep(2 * AWAY).await;
    load.over.store(true, Ordering::Release);
    let mut calls = 0;
    while let Some(made) = clients.join_next().await {
        calls += made?;
    }
    judge(sheet, calls, &load.failures.lock(), (killed, back));
    Ok(())
}

/// So that Redis is asked about each call.
async fn limit(cluster: &Cluster) -> Result<()> {
    let policy =
        json!([{"selector": {"user": "alice"}, "policy": {"capacity": 1_000_000, "refill": "1000/s"}}]);
    cluster.put("/api/ratelimits/orgs/acme", &policy).await
}

fn judge(sheet: &mut Sheet, calls: usize, failures: &[Failure], (killed, back): (Instant, Instant)) {
    let of = |kind: Kind| failures.iter().filter(move |failure| failure.of == kind);
    let refused = |failure: &&Failure| {
        failure.at >= killed && failure.said.contains("503") && failure.said.contains("upstream_unavailable")
    };
    let strange: Vec<&Failure> = of(Kind::Kept).filter(|failure| !refused(failure)).collect();
    let last = of(Kind::Kept).map(|failure| failure.at.saturating_duration_since(back)).max();
    let last = last.unwrap_or_default().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.at_least("calls", calls as f64, 1.0);
        sheet.at_most("calls that only read and failed", of(Kind::Reads).count() as f64, 0.0);
        sheet.note("calls with a record that were refused", of(Kind::Kept).count() as f64);
        sheet.at_most("of those, not by their reason while PostgreSQL was away", strange.len() as f64, 0.0);
        sheet.at_most("seconds until PostgreSQL is used again", last, RECOVERED_WITHIN);
    }
    for failure in of(Kind::Reads).chain(strange).take(3) {
        sheet.fault(format!("{:?}: {}", failure.of, failure.said));
    }
}

impl Load {
    async fn reads(self) -> usize {
        let params = json!({"name": "echo", "arguments": {"message": "m"}});
        let request = modern(&self.token, "tools/call", params, &[("mcp-name", "echo")]);
        self.calls(Kind::Reads, |_| request.clone(), |answer| answer.text().contains("\"isError\":false"))
            .await
    }

    async fn keeps(self, client: usize) -> usize {
        let put = |number| {
            let path = format!("/demo/rest/tools/clock/calls/{client}-{number}");
            rest("PUT", &path, &self.token, &json!({}))
        };
        self.calls(Kind::Kept, put, |answer| answer.status < 300).await
    }

    async fn calls(
        &self,
        of: Kind,
        make: impl Fn(usize) -> Request,
        is_good: impl Fn(&Response) -> bool,
    ) -> usize {
        let mut number = 0;
        while !self.over.load(Ordering::Acquire) {
            let answer = http1::send(self.edge, &make(number)).await;
            let said = match answer {
                Ok(answer) if is_good(&answer) => None,
                Ok(answer) => Some(format!("{} {}", answer.status, answer.text())),
                Err(error) => Some(format!("{error:#}")),
            };
            if let Some(said) = said {
                self.failures.lock().push(Failure { at: Instant::now(), of, said });
            }
            number += 1;
            tokio::time::sleep(REST).await;
        }
        number
    }
}
