//! Two runtimes of one language behind one gateway: calls go to both, one is killed and one drained while they do, and a
//! task goes on at the other one. No call that may be repeated fails, and none that may not runs twice. Behind three gateways a
//! task outlives the gateway that it was asked of, and then its runtime.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::http1::{self, Request};
use asp_e2e::runtime::{Runtime, World};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::tool::{self, Build};
use asp_e2e::wait;
use asp_e2e::wait::ErrorDetails;
use futures::future::try_join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::message::modern;
use crate::policy::admin;
use crate::trial::{Shared, trials};

/// What gateway and runtimes say of a loss.
const EXPECTED: &[&str] = &["runtime", "worker", "tunnel"];
/// Clients that call one after the other: half of them what may be repeated.
const CLIENTS: usize = 8;
/// Notes that each runtime must have had before anything happens to it.
const SERVED: usize = 20;
/// Five a second: far more than are gone before a loss.
const STEPS: u64 = 30;
/// Of a task that is lost twice.
const MORE_STEPS: u64 = 60;
const PRIMITIVES: &str = "tests/fixtures/several";

trials! { several_runtimes:
    one_is_killed_and_one_drained_under_load_and_a_task_goes_on,
    a_task_outlives_its_gateway_and_its_runtime_in_a_fleet,
}

async fn one_is_killed_and_one_drained_under_load_and_a_task_goes_on(_: &Shared) -> Result<()> {
    let build = Build::own()?;
    let primitives = build.root.join(PRIMITIVES);
    let mut runtimes = [start(&primitives).await?, start(&primitives).await?];
    let environment = vec![("ASP_RUNTIMES", addresses(&runtimes))];
    let options = Options { primitives, environment, ..Options::of(build) };
    let stack = Stack::start(options).await?;
    let shown = admin(&stack, "GET", "/api/runtimes", "").await?.json()?;
    let urls: Vec<&str> =
        shown.as_array().context("a list")?.iter().filter_map(|one| one["url"].as_str()).collect();
    ensure!(urls.len() == 2 && urls[0] != urls[1], "each is shown: {shown}");
    under_load(&stack, &mut runtimes).await.with_details(|| stack.asp.tail())?;
    task(&stack, &mut runtimes).await.with_details(|| stack.asp.tail())?;
    stack.stop(EXPECTED).await?;
    for runtime in &mut runtimes {
        runtime.process.stop().await?;
    }
    Ok(())
}

async fn start(primitives: &Path) -> Result<Runtime> {
    Runtime::start(primitives, World::default()).await
}

/// As a gateway is told of them.
fn addresses(runtimes: &[Runtime]) -> String {
    let address = |runtime: &Runtime| format!("python=unix:{}", runtime.socket.display());
    runtimes.iter().map(address).collect::<Vec<_>>().join(",")
}

async fn under_load(stack: &Stack, runtimes: &mut [Runtime; 2]) -> Result<()> {
    let load =
        Load { stack, token: stack.alice().await?, next: AtomicU64::new(0), over: AtomicBool::new(false) };
    let mut noted = Vec::new();
    let happening = async {
        let ended = lose_both(runtimes, &mut noted).await;
        load.over.store(true, Ordering::Relaxed);
        ended
    };
    let (unknown, happened) = tokio::join!(load.run(), happening);
    happened?;
    let unknown: u64 = unknown?.into_iter().sum();
    ensure!(
        unknown <= (CLIENTS / 2) as u64,
        "only calls that ran where it was killed have no outcome: {unknown}"
    );
    noted.extend(runtimes.iter().flat_map(noted_by));
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    noted.into_iter().for_each(|number| *times.entry(number).or_default() += 1);
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "executed more than once: {twice:?}");
    Ok(())
}

/// Kills the first and drains the second, each when both have served. `noted` gets what those had noted.
async fn lose_both(runtimes: &mut [Runtime; 2], noted: &mut Vec<String>) -> Result<()> {
    for (place, signal) in [(0, Signal::KILL), (1, Signal::TERM)] {
        wait::until("both serve", wait::START, || async {
            runtimes.iter().all(|runtime| noted_by(runtime).len() >= SERVED).then_some(())
        })
        .await?;
        let runtime = &mut runtimes[place];
        runtime.process.signal(signal)?;
        runtime.process.wait(Duration::from_secs(30)).await?;
        noted.extend(noted_by(runtime));
        runtime.restart().await?;
    }
    wait::until("the drained one serves again", wait::START, || async {
        (noted_by(&runtimes[1]).len() >= SERVED).then_some(())
    })
    .await
}

/// The numbers in a runtime's log.
fn noted_by(runtime: &Runtime) -> Vec<String> {
    said(runtime, "noted ")
}

fn said(runtime: &Runtime, word: &str) -> Vec<String> {
    let number = |line: String| Some(line.split_once(word)?.1.split_once(';')?.0.to_owned());
    runtime.process.log().lines().into_iter().filter_map(number).collect()
}

struct Load<'a> {
    stack: &'a Stack,
    token: String,
    next: AtomicU64,
    over: AtomicBool,
}

impl Load<'_> {
    /// How many calls of each client ended without a known outcome.
    async fn run(&self) -> Result<Vec<u64>> {
        try_join_all((0..CLIENTS).map(|client| self.client(if client % 2 == 0 { "look" } else { "note" })))
            .await
    }

    async fn client(&self, name: &str) -> Result<u64> {
        let mut unknown = 0;
        while !self.over.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let answer = call(self.stack, &self.token, name, json!({"number": number})).await?;
            let result = &answer["result"];
            if name == "note" && result["_meta"]["asp/reason"] == "outcome_unknown" {
                unknown += 1;
                continue;
            }
            ensure!(result["structuredContent"]["number"] == number, "{name} {number}: {answer}");
        }
        Ok(unknown)
    }
}

async fn call(stack: &Stack, token: &str, name: &str, arguments: Value) -> Result<Value> {
    let params = json!({"name": name, "arguments": arguments});
    http1::send(stack.edge(), &message(token, name, params)).await?.json()
}

fn message(token: &str, name: &str, params: Value) -> Request {
    let mut request = modern(token, "tools/call", params, &[("mcp-name", name)]);
    request.target = "/several/mcp".into();
    request
}

/// A task whose runtime is killed in the midst of it goes on at the other one, from its last checkpoint.
async fn task(stack: &Stack, runtimes: &mut [Runtime; 2]) -> Result<()> {
    let token = stack.alice().await?;
    let calling = call(stack, &token, "steps", json!({"steps": STEPS}));
    let killing = async {
        let place = wait::until("it has gone two steps", wait::START, || async {
            runtimes.iter().position(|runtime| said(runtime, "step ").len() > 2)
        })
        .await?;
        runtimes[place].process.signal(Signal::KILL)?;
        runtimes[place].process.wait(Duration::from_secs(10)).await?;
        anyhow::Ok(place)
    };
    let (answer, place) = tokio::join!(calling, killing);
    let (answer, place) = (answer?, place?);
    let done = &answer["result"]["structuredContent"];
    ensure!(*done == all_steps(STEPS, 2), "{answer}");
    last_step(runtimes, STEPS).await?;
    let (before, after) = (said(&runtimes[place], "step "), said(&runtimes[1 - place], "step "));
    let again = after.iter().filter(|step| before.contains(step)).count();
    // The last words of what is killed may be lost with it.
    let seen = (before.len() + after.len() - again) as u64;
    ensure!(again <= 1 && (STEPS - 1..=STEPS).contains(&seen), "{before:?} {after:?}");
    runtimes[place].restart().await
}

/// Three gateways and two control planes share PostgreSQL, Redis and both runtimes.
async fn a_task_outlives_its_gateway_and_its_runtime_in_a_fleet(_: &Shared) -> Result<()> {
    let primitives = tool::root()?.join(PRIMITIVES);
    let mut runtimes = [start(&primitives).await?, start(&primitives).await?];
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let environment = vec![
        ("ASP_DATABASE_URL", postgres.url()),
        ("ASP_REDIS_URL", redis.url()),
        ("ASP_RUNTIMES", addresses(&runtimes)),
    ];
    let layout = Layout { has_second_control: true, environment, primitives, ..Layout::of(3)? };
    let mut cluster = Cluster::start_as(layout).await?;
    let played = outlive(&mut cluster, &mut runtimes).await;
    played
        .with_details(|| cluster.gateways.iter().map(|gateway| gateway.process.tail()).collect::<String>())?;
    for runtime in &mut runtimes {
        runtime.process.stop().await?;
    }
    Ok(())
}

/// It is asked of the first gateway, which is killed; then of both others under its key, at once, and its runtime is killed.
/// Both are told the same, and no step is taken twice but those that it was lost in.
async fn outlive(cluster: &mut Cluster, runtimes: &mut [Runtime; 2]) -> Result<()> {
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let params = json!({"name": "steps", "arguments": {"steps": MORE_STEPS}, "_meta": {"asp/idempotencyKey": "steps"}});
    let asking = message(&token, "steps", params);
    let first = cluster.gateways.remove(0);
    let asked = tokio::spawn({
        let asking = asking.clone();
        let at = first.address;
        async move { http1::send(at, &asking).await }
    });
    goes(runtimes, 1).await?;
    first.process.signal(Signal::KILL)?;
    ensure!(asked.await?.is_err(), "the first gateway answered before it was killed");

    let again = cluster.addresses();
    let again = try_join_all(again.iter().map(|at| told(*at, &asking)));
    let killing = async {
        let place = goes(runtimes, 2).await?;
        runtimes[place].process.signal(Signal::KILL)?;
        runtimes[place].process.wait(Duration::from_secs(10)).await?;
        anyhow::Ok(place)
    };
    let (told, killed) = tokio::join!(again, killing);
    let told = told?;
    let killed = killed?;
    let wanted = all_steps(MORE_STEPS, 3);
    ensure!(told.iter().all(|answer| answer["structuredContent"] == wanted), "{told:?}");
    ensure!(told.windows(2).all(|two| two[0] == two[1]), "both are told the same: {told:?}");
    last_step(runtimes, MORE_STEPS).await?;
    let mut steps: Vec<String> = runtimes.iter().flat_map(|runtime| said(runtime, "step ")).collect();
    steps.sort();
    let taken = steps.len();
    steps.dedup();
    // As above.
    ensure!(
        (MORE_STEPS - 1..=MORE_STEPS).contains(&(steps.len() as u64)) && taken - steps.len() <= 2,
        "{taken} steps, of these {steps:?}"
    );
    runtimes[killed].restart().await
}

/// What a task answers that has taken each of its steps.
fn all_steps(steps: u64, attempt: u64) -> Value {
    json!({"taken": (0..steps).collect::<Vec<u64>>(), "attempt": attempt})
}

/// Waits for the last step in a runtime's log, which comes by another way than the answer.
async fn last_step(runtimes: &[Runtime; 2], steps: u64) -> Result<()> {
    let last = (steps - 1).to_string();
    let is_there =
        || async { runtimes.iter().any(|runtime| said(runtime, "step ").contains(&last)).then_some(()) };
    wait::until("the last step is in a log", wait::CONVERGE, is_there).await
}

/// The runtime at which this attempt goes, once it has gone two steps.
async fn goes(runtimes: &[Runtime; 2], attempt: usize) -> Result<usize> {
    let attempt = attempt.to_string();
    let two = |runtime: &Runtime| said(runtime, "attempt ").iter().filter(|of| **of == attempt).count() >= 2;
    wait::until("it goes on", wait::START, || async { runtimes.iter().position(two) }).await
}

/// What a gateway tells of a call, asked until it does.
async fn told(at: SocketAddr, asking: &Request) -> Result<Value> {
    wait::until("the task is done", wait::START, || async {
        let answer = http1::send(at, asking).await.ok()?.json().ok()?;
        let result = answer["result"].clone();
        result["structuredContent"].is_object().then_some(result)
    })
    .await
}
