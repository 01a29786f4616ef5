//! The compliance sweep over the loss of its worker and of its runtime: it goes on from its last checkpoint, its
//! report is the same, and no finished branch is executed again.
//!
//! `ASP_LOSS_POINTS` says at how many points each is killed (2); `make chaos` asks for more.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::clients::LEGACY;
use crate::plugins::{Answer, COMPLIANCE, Client, SWEEP, sweep_answers, sweep_arguments};
use crate::policy;
use crate::trial::{Shared, trials};

const POINTS: &str = "ASP_LOSS_POINTS";
pub(crate) const WATCH_EVERY: Duration = Duration::from_millis(1);
/// What the gateway and the runtime say of a loss.
const EXPECTED: &[&str] = &["runtime", "worker", "tunnel"];

#[derive(Clone, Copy, Debug)]
enum Lost {
    Worker,
    Runtime,
}

trials! { plugins:
    loss_of_worker_and_runtime_at_random_points_leaves_an_equal_report,
}

async fn loss_of_worker_and_runtime_at_random_points_leaves_an_equal_report(_: &Shared) -> Result<()> {
    let points = std::env::var(POINTS).map_or(Ok(2), |text| text.parse::<u64>()).context(POINTS)?;
    let stack = Stack::start(Options { plugins: true, ..Options::repository()? }).await?;
    policy::expose(&stack, "acme", COMPLIANCE).await?;
    let client = Client { stack: &stack, mode: "legacy", protocol: LEGACY };
    let tap = stack.tap.as_ref().context("the stack has a tap")?;
    let whole = client.call(COMPLIANCE, SWEEP, &sweep_arguments(), &script()).await?;
    let wanted = report(&whole).with_details(|| format!("nothing was lost yet; {}", stack.asp.tail()))?;
    let messages = tap.heard() as u64;
    branches(&whole)?;
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    for lost in [Lost::Worker, Lost::Runtime] {
        for _ in 0..points {
            // Knuth's MMIX generator: the points need to be spread, not unpredictable.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let after = 1 + (seed >> 33) % (messages - 1);
            let survived = survive(&client, lost, after, &wanted).await;
            survived.with_context(|| {
                format!("{lost:?} lost after {after} of {messages} messages; {}", stack.asp.tail())
            })?;
        }
    }
    stack.stop(EXPECTED).await
}

/// One loss: the report is the same and no branch ran again.
async fn survive(client: &Client<'_>, lost: Lost, after: u64, wanted: &Value) -> Result<()> {
    let answer = lose(client, lost, after).await?;
    let found = report(&answer)?;
    ensure!(found == *wanted, "another report:\n{found}\n{wanted}");
    branches(&answer)?;
    if matches!(lost, Lost::Worker) {
        // Five crashes within a minute are a quarantine; a fresh runtime has seen none.
        let runtime = client.stack.runtime.as_ref().context("the stack has a runtime")?;
        let mut runtime = runtime.lock().await;
        runtime.process.stop().await?;
        runtime.restart().await?;
    }
    Ok(())
}

/// Runs a sweep and kills what is `lost` when so many messages of the worker have passed.
async fn lose(client: &Client<'_>, lost: Lost, after: u64) -> Result<Answer> {
    let tap = client.stack.tap.as_ref().context("the stack has a tap")?;
    let runtime = client.stack.runtime.as_ref().context("the stack has a runtime")?;
    tap.take();
    let arguments = sweep_arguments();
    let script = script();
    let calling = async {
        let answer = client.call(COMPLIANCE, SWEEP, &arguments, &script).await?;
        ensure!(answer.result.is_some(), "no result: {:?}", answer.error);
        Ok(answer)
    };
    let killing = async {
        while (tap.heard() as u64) < after {
            tokio::time::sleep(WATCH_EVERY).await;
        }
        let mut runtime = runtime.lock().await;
        match lost {
            // A worker that has given its result may be gone already.
            Lost::Worker => {
                ensure!(runtime.kill_workers()? > 0 || tap.has("< completed"), "there was no worker to kill")
            }
            Lost::Runtime => {
                runtime.process.signal(Signal::KILL)?;
                runtime.process.wait(Duration::from_secs(10)).await?;
                runtime.restart().await?;
            }
        }
        anyhow::Ok(())
    };
    // A call that fails before so many messages ends the waiting for them.
    let (answer, ()) = tokio::try_join!(calling, killing)?;
    Ok(answer)
}

pub(crate) fn script() -> Value {
    json!({"answers": sweep_answers(), "sampled": "[\"national-id\"]"})
}

/// The report without what differs between two calls: its task and when it was made.
pub(crate) fn report(answer: &Answer) -> Result<Value> {
    let texts = answer.linked.iter().filter_map(|entry| entry["text"].as_str());
    let mut reports =
        texts.filter_map(|text| serde_json::from_str::<Value>(text).ok()?.get("report").cloned());
    let mut report = reports.next().with_context(|| format!("no report: {:?}", answer.result))?;
    if let Some(members) = report.as_object_mut() {
        members.remove("taskId");
        members.remove("generatedAt");
    }
    Ok(report)
}

/// The side-effect counter: a branch that said that it has ended is not begun again. The word itself is lost where
/// the worker was killed between its checkpoint and its log.
fn branches(answer: &Answer) -> Result<()> {
    let lines: Vec<&str> = answer.logs.iter().filter_map(|line| line["data"].as_str()).collect();
    for branch in ["SCAN_MEETINGS", "SCAN_CONTACT_CENTER", "SCAN_ADMIN"] {
        times(&lines, branch)?;
    }
    Ok(())
}

/// A branch ran, and not again after its end.
pub(crate) fn times(lines: &[&str], branch: &str) -> Result<()> {
    let ends = positions(lines, &format!("branch {branch} finished"));
    let begins = positions(lines, &format!("branch {branch} executed"));
    let begun_once_more = ends.first().is_some_and(|end| begins.iter().any(|begin| begin > end));
    ensure!(!begins.is_empty() && begins.len() <= 2, "{branch} ran {} times: {lines:?}", begins.len());
    ensure!(ends.len() <= 1 && !begun_once_more, "{branch} ran again after its end: {lines:?}");
    Ok(())
}

fn positions(lines: &[&str], start: &str) -> Vec<usize> {
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.starts_with(start))
        .map(|(position, _)| position)
        .collect()
}
