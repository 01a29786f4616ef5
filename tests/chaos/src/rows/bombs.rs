//! F10: a plugin takes all there is of one thing. It gets its share and no more, and the neighbours theirs.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::death::millis;
use crate::bed::Bed;
use crate::call::{End, Running};
use crate::hostile::{HOSTILE, Language, call};
use crate::neighbours::Neighbours;
use crate::plugins::{DISK, FILES, LOG_RATE, PIDS, RELEASE};
use crate::processes::{self, Known};
use crate::sheet::Sheet;

/// How long a bomb goes on before its deadline, which it ignores.
const GOES_ON: Duration = Duration::from_secs(4);
const DEAD_WITHIN_MS: f64 = 3000.0;
const AFTER_DEADLINE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(20);
const SAMPLE: Duration = Duration::from_millis(50);
/// A look at sixty processes is work too, on the processors of the neighbours.
const SAMPLE_FORKS: Duration = Duration::from_secs(1);
const NEIGHBOURS: f64 = 2.0;
const FLOOD_SECONDS: u32 = 4;
const MIB: f64 = 1_048_576.0;
#[expect(clippy::cast_precision_loss, reason = "a small bound")]
const DISK_MIB: f64 = DISK as f64 / MIB;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Bomb {
    Forks,
    Files,
    Disk,
    Logs,
}

pub(crate) const ALL: [Bomb; 4] = [Bomb::Forks, Bomb::Files, Bomb::Disk, Bomb::Logs];

impl Bomb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Bomb::Forks => "fork bomb",
            Bomb::Files => "open files",
            Bomb::Disk => "disk fill",
            Bomb::Logs => "log flood",
        }
    }

    fn arguments(self) -> Value {
        match self {
            Bomb::Forks => json!({"mode": "fork_bomb"}),
            Bomb::Files => json!({"mode": "fds"}),
            Bomb::Disk => json!({"mode": "disk"}),
            Bomb::Logs => json!({"mode": "log_flood", "seconds": FLOOD_SECONDS}),
        }
    }
}

pub(crate) async fn run(bomb: Bomb, sheet: &mut Sheet) -> Result<()> {
    let bed = Bed::start(|plugins| Language::Python.install(plugins, (1, 1))).await?;
    bed.warm(HOSTILE, RELEASE, 1).await?;
    let mut neighbours = Neighbours::start(&bed).await?;
    neighbours.fault_begins();
    match bomb {
        Bomb::Forks => forks(&bed, sheet).await?,
        Bomb::Files | Bomb::Disk => filled(&bed, bomb, sheet).await?,
        Bomb::Logs => flooded(&bed, sheet).await?,
    }
    neighbours.finish(sheet, Some(NEIGHBOURS)).await
}

async fn begin(bed: &Bed, bomb: Bomb) -> Result<Running> {
    let mut request = call(bomb.arguments());
    if matches!(bomb, Bomb::Forks) {
        request.deadline = GOES_ON;
    }
    let mut running =
        request.start(&bed.client).await?.map_err(|reason| anyhow::anyhow!("refused: {reason}"))?;
    running.begun().await?;
    Ok(running)
}

async fn forks(bed: &Bed, sheet: &mut Sheet) -> Result<()> {
    let mut running = begin(bed, Bomb::Forks).await?;
    let worker = running.worker.clone();
    let mut most = 0;
    let mut known = Vec::<Known>::new();
    let end = loop {
        let end = timeout(SAMPLE_FORKS, running.end()).await;
        let runtime = bed.pid();
        let worker = worker.clone();
        // Err: it has just been killed.
        if let Ok(processes) = spawn_blocking(move || processes::of_worker(runtime, &worker)).await? {
            most = most.max(processes::threads(&processes));
            known.extend(processes.into_iter().filter(|one| !known.contains(one)).collect::<Vec<_>>());
        }
        if let Ok(end) = end {
            break end?;
        }
    };
    let ended = Instant::now();
    sheet.note(&format!("ends that were {:?}", end.text()), 1.0);
    #[expect(clippy::cast_precision_loss, reason = "a number of processes")]
    {
        sheet.at_most("processes and threads at most", most as f64, f64::from(PIDS));
        sheet.at_least("processes seen", known.len() as f64, f64::from(PIDS) / 2.0);
    }
    match processes::gone(&known, AFTER_DEADLINE).await {
        Ok(_) => sheet.at_most("all dead after the kill, ms", millis(ended.elapsed()), DEAD_WITHIN_MS),
        Err(left) => {
            #[expect(clippy::cast_precision_loss, reason = "a number of processes")]
            sheet.at_most("processes left 3 s after the call's end", left as f64, 0.0);
            // The call's end killed nothing; a kill has to.
            dead_after_kill(bed, sheet).await?;
        }
    }
    Ok(())
}

async fn filled(bed: &Bed, bomb: Bomb, sheet: &mut Sheet) -> Result<()> {
    let (name, figure, most_allowed) = match bomb {
        Bomb::Files => ("opened", "files it could open", f64::from(FILES)),
        _ => ("written", "MiB it could write", DISK_MIB),
    };
    let began = Instant::now();
    let mut most = 0.0_f64;
    let mut rounds = 0.0;
    // It is over in a moment: again and again, for as long as the other bombs go on.
    while began.elapsed() < GOES_ON {
        let end = begin(bed, bomb).await?.end().await?;
        let End::Completed(found) = end else {
            sheet.fault(format!("the call's end is {:?}", end.text()));
            return Ok(());
        };
        if found.get("error").and_then(Value::as_str).unwrap_or_default().is_empty() {
            sheet.fault("nothing refused it");
        }
        let got = found.get(name).and_then(Value::as_f64).context("the bomb says how much it got")?;
        most = most.max(if matches!(bomb, Bomb::Disk) { got / MIB } else { got });
        rounds += 1.0;
    }
    sheet.at_most(figure, most, most_allowed);
    sheet.note("rounds", rounds);
    dead_after_kill(bed, sheet).await
}

async fn flooded(bed: &Bed, sheet: &mut Sheet) -> Result<()> {
    let before = bed.log().len();
    let mut running = begin(bed, Bomb::Logs).await?;
    let end = running.end().await?;
    let took = running.elapsed();
    let End::Completed(found) = end else {
        sheet.fault(format!("the call's end is {:?}", end.text()));
        return Ok(());
    };
    let sent = found.get("sent").and_then(Value::as_f64).context("the flood says what it sent")?;
    dead_after_kill(bed, sheet).await?;
    let log = bed.log();
    let (kept, dropped) = counted(log.get(before..).unwrap_or_default());
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    // Two streams, each with its rate, and the second that a bucket holds at the start.
    let allowed = (LOG_RATE * 2) as f64 * (took.as_secs_f64() + 2.0);
    sheet.note("flooded, MiB/s", sent / took.as_secs_f64() / MIB);
    sheet.at_most("kept of it, share of the allowed", kept / allowed, 1.0);
    sheet.note("bytes dropped, as counted by the runtime", dropped);
    // What was neither kept nor counted vanished without a word: a tenth allows for what was in the pipes.
    sheet.at_least("kept or counted, share of the flood", (kept + dropped) / sent, 0.9);
    Ok(())
}

/// The bytes of worker log lines, and those the runtime says it dropped.
fn counted(log: &str) -> (f64, f64) {
    let mut kept = 0.0;
    let mut dropped = 0.0;
    for line in log.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let fields = line.get("fields").unwrap_or(&line);
        if let Some(count) = fields.get("dropped").and_then(Value::as_f64) {
            dropped += count;
        } else if let Some(text) = fields.get("line").and_then(Value::as_str) {
            #[expect(clippy::cast_precision_loss, reason = "a line is short")]
            {
                kept += text.len() as f64;
            }
        }
    }
    (kept, dropped)
}

/// The bomb's worker is killed by a drain that is not graceful.
async fn dead_after_kill(bed: &Bed, sheet: &mut Sheet) -> Result<()> {
    let worker = processes::below_of_plugin(bed.pid(), HOSTILE);
    if worker.is_empty() {
        sheet.fault("the worker is not there to be killed");
        return Ok(());
    }
    let killed = Instant::now();
    bed.drain(HOSTILE, RELEASE, None).await?;
    match processes::gone(&worker, PATIENCE).await {
        Ok(_) => sheet.at_most("all dead after the kill, ms", millis(killed.elapsed()), DEAD_WITHIN_MS),
        Err(left) => sheet.fault(format!("{left} processes of the bomb are left")),
    }
    // The runtime reads the ends of the pipes in its own time.
    sleep(SAMPLE).await;
    Ok(())
}
