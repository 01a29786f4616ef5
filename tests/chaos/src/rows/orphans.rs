//! F12: the runtime is killed with calls in its workers, the worst among them. Nothing of them stays.
//!
//! There are no neighbours in this row: their runtime is the one that dies.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::death::millis;
use crate::bed::Bed;
use crate::hostile::{HOSTILE, Language, call};
use crate::plugins::{GOOD, RELEASE};
use crate::processes;
use crate::sheet::Sheet;
use tokio::time::sleep;

const WITHIN: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);
/// Until the fork bomb has all it gets.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let mut bed = Bed::start(|plugins| Language::Python.install(plugins, (4, 1))).await?;
    bed.warm(HOSTILE, RELEASE, 4).await?;
    let mut running = Vec::new();
    for mode in ["ignore_cancel", "busy", "stop", "fork_bomb"] {
        let started = call(json!({ "mode": mode })).start(&bed.client).await?;
        let mut call = started.map_err(|reason| anyhow::anyhow!("refused: {reason}"))?;
        if mode == "stop" {
            // It may stop before its first word has left it.
            let stopped = processes::stops(&processes::of_worker(bed.pid(), &call.worker)?, PATIENCE).await;
            ensure!(stopped, "the worker that stops itself goes on");
        } else {
            call.begun().await?;
        }
        running.push(call);
    }
    sleep(SETTLE).await;
    let all = processes::below(bed.pid());
    let good = processes::below_of_plugin(bed.pid(), GOOD).len();
    #[expect(clippy::cast_precision_loss, reason = "a number of processes")]
    {
        // A bomb, three workers and the neighbours' two, with their launchers.
        sheet.at_least("processes before", all.len() as f64, 64.0);
        sheet.at_least("of them the good plugin's", good as f64, 2.0);
    }
    bed.kill()?;
    match processes::gone(&all, PATIENCE).await {
        Ok(took) => sheet.at_most("the last orphan ended after, ms", millis(took), millis(WITHIN)),
        Err(left) => sheet.fault(format!("{left} orphans after {} s", PATIENCE.as_secs())),
    }
    drop(running);
    Ok(())
}
