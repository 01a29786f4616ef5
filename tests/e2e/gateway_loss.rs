//! The compliance sweep over the loss of its gateway: the next one goes on from the last checkpoint, a retry under
//! the same key gets the same report, and no finished branch is executed again (I-3).

use anyhow::{Context, Result, ensure};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use asp_e2e::wait::ErrorDetails;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::plugin_loss::{WATCH_EVERY, report, script, times};
use crate::plugins::{COMPLIANCE, Client, MODES, SWEEP, sweep_arguments};
use crate::policy;
use crate::trial::{Shared, trials};

/// What the processes say of the loss: the gateway of its predecessor's calls, the runtime of its tunnels.
const EXPECTED: &[&str] = &["runtime", "worker", "tunnel"];
/// The branches of the sweep.
const BRANCHES: [&str; 3] = ["SCAN_MEETINGS", "SCAN_CONTACT_CENTER", "SCAN_ADMIN"];

trials! { plugins:
    a_sweep_outlives_its_gateway_and_a_retry_gets_an_equal_report,
}

async fn a_sweep_outlives_its_gateway_and_a_retry_gets_an_equal_report(_: &Shared) -> Result<()> {
    let mut stack = Stack::start(Options { plugins: true, ..Options::repository()? }).await?;
    policy::expose(&stack, "acme", COMPLIANCE).await?;
    let (mode, protocol) = MODES[0];
    let whole = Client { stack: &stack, mode, protocol };
    let whole = whole.call(COMPLIANCE, SWEEP, &sweep_arguments(), &script()).await?;
    let wanted = report(&whole).with_details(|| format!("nothing was lost yet; {}", stack.asp.tail()))?;
    // After the first branch that has ended, and amid what has effects.
    for (mode, after) in MODES.into_iter().zip(["< log branch SCAN_ADMIN finished", "< log item"]) {
        let survived = survive(&mut stack, mode, after, &wanted).await;
        survived.with_details(|| format!("{mode:?}, lost after `{after}`; {}", stack.asp.tail()))?;
    }
    stack.stop(EXPECTED).await
}

/// Kills the gateway when a message of the worker has passed, and asks again under the same key.
async fn survive(
    stack: &mut Stack,
    (mode, protocol): (&'static str, &'static str),
    after: &str,
    wanted: &Value,
) -> Result<()> {
    let mut asking = script();
    asking["key"] = json!(format!("sweep in {mode}"));
    stack.tap.as_ref().context("the stack has a tap")?.take();
    let client = Client { stack, mode, protocol };
    let first = client.command(COMPLIANCE, SWEEP, &sweep_arguments(), &asking).await?.spawn()?;
    let tap = stack.tap.as_ref().context("the stack has a tap")?;
    // Often: the sweep waits for nobody, and is to be lost before its end.
    let passed = async {
        while !tap.has(after) {
            tokio::time::sleep(WATCH_EVERY).await;
        }
    };
    tokio::time::timeout(wait::START, passed).await.context(after.to_owned())?;
    stack.restart_asp(Signal::KILL).await?;
    drop(first);
    let client = Client { stack, mode, protocol };
    let answer = client.call(COMPLIANCE, SWEEP, &sweep_arguments(), &asking).await?;
    let found = report(&answer).with_context(|| format!("{:?}", answer.error))?;
    ensure!(found == *wanted, "another report:\n{found}\n{wanted}");
    let lines = stack.tap.as_ref().context("the stack has a tap")?.take();
    let logs: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("< log ")).collect();
    ensure!(lines.iter().filter(|line| line.starts_with("> invoke")).count() == 2, "{lines:?}");
    BRANCHES.into_iter().try_for_each(|branch| times(&logs, branch))
}
