//! The plugin runtime: what a call through it costs over the bare worker, how fast a process starts, how much
//! it holds.
//!
//! Keeps true: both ways meet the same plugin and the same command line, take turns in every run, and are
//! warmed before anything is measured; every answer is compared with its call.

mod bare;
mod client;
mod figures;
mod goals;
mod process;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use asp_e2e::runtime::{Runtime, World};
use asp_e2e::tool;
use tokio::task::JoinSet;

use bare::{Bare, Recipe};
use client::{Answered, Client, VERSION};
use figures::{Driven, Language, Loop, Way};

pub(crate) use figures::Plugins;
pub(crate) use goals::judge;
pub(crate) use table::render;

use crate::plan::Plan;

/// Calls in flight.
const ONE: u32 = 1;
const MANY: u32 = 16;
/// Each language, and what only its workers have at the end of an argument.
const LANGUAGES: [(&str, &str); 3] =
    [("python", "asp_plugin.worker"), ("node", "/worker.mjs"), ("java", "asp.plugin.Worker")];
/// The deepest folder of the plugins' sources.
const MAX_DEPTH: u32 = 4;

/// One language's two workers.
struct Bench {
    client: Client,
    bare: Bare,
    recipe: Recipe,
    /// The runtime's worker.
    worker: u32,
}

/// Measures every language.
pub(crate) async fn measure(plan: &Plan) -> Result<Plugins> {
    let sources = tempfile::tempdir()?;
    // Built plugins lie beside their sources: not in the repository.
    copy(&tool::root()?.join("tests/bench/plugins"), sources.path(), MAX_DEPTH)?;
    let mut found = Plugins {
        isolation_level: 0,
        calls: plan.calls,
        crowded_calls: plan.crowded_calls,
        starts: plan.starts,
        languages: Vec::new(),
    };
    for (language, argument) in LANGUAGES {
        // A runtime for each language, so that no other one's worker takes processor time.
        let runtime = Runtime::start(sources.path(), World::default()).await.context("start a runtime")?;
        let measured = measure_language(plan, &runtime, language, argument).await;
        let (level, figures) =
            measured.with_context(|| format!("{language}:\n{}", runtime.process.tail()))?;
        found.isolation_level = level;
        found.languages.push(figures);
    }
    Ok(found)
}

async fn measure_language(
    plan: &Plan,
    runtime: &Runtime,
    language: &'static str,
    argument: &str,
) -> Result<(u32, Language)> {
    let client = Client::new(&runtime.socket, &format!("echo-{language}"))?;
    let level = client.prewarm().await?;
    let root = runtime.process.id().context("the runtime runs")?;
    client.one_worker().await?;
    let (worker, argv) = process::find(root, argument)?;
    let unused = process::memory(worker)?;
    let recipe = Recipe { plugin: client.plugin().to_owned(), argv, installed: installed(runtime, &client)? };
    let mut bench = Bench { bare: Bare::start(&recipe).await?, client, recipe, worker };
    bench.settle(plan).await?;
    let mut loops = Vec::new();
    for run in 1..=plan.runs {
        eprintln!("bench: run {run}/{}: plugin in {language}", plan.runs);
        loops.extend(bench.turn(plan, run).await?);
    }
    let used = process::memory(bench.worker)?;
    eprintln!("bench: cold starts of a plugin in {language}");
    let mut figures = Language {
        language,
        loops,
        cold_ready_ms: Vec::new(),
        cold_answer_ms: Vec::new(),
        cold_bare_ms: Vec::new(),
        unused,
        used,
    };
    bench.starts(plan, &mut figures).await?;
    Ok((level, figures))
}

/// The directory of a plugin the runtime has installed.
fn installed(runtime: &Runtime, client: &Client) -> Result<PathBuf> {
    let directory = runtime.socket.parent().context("a socket lies in a directory")?;
    Ok(directory.join("plugins").join(client.plugin()).join(VERSION))
}

impl Bench {
    /// Lets both workers compile what they run often.
    async fn settle(&mut self, plan: &Plan) -> Result<()> {
        self.drive_bare("settle", plan.settling_calls, MANY).await?;
        self.drive_runtime("settle", plan.settling_calls, MANY).await?;
        Ok(())
    }

    /// Both ways with one and with many in flight; which is first changes from run to run.
    async fn turn(&mut self, plan: &Plan, run: u32) -> Result<Vec<Loop>> {
        let ways = if run.is_multiple_of(2) { [Way::Runtime, Way::Bare] } else { [Way::Bare, Way::Runtime] };
        let mut taken = Vec::new();
        for (in_flight, calls) in [(ONE, plan.calls), (MANY, plan.crowded_calls)] {
            for way in ways {
                let prefix = format!("run-{run}-{in_flight}");
                let driven = match way {
                    Way::Bare => self.drive_bare(&prefix, calls, in_flight).await,
                    Way::Runtime => self.drive_runtime(&prefix, calls, in_flight).await,
                };
                taken.push(Loop::of(run, way, in_flight, &driven?));
            }
        }
        Ok(taken)
    }

    async fn drive_bare(&mut self, prefix: &str, calls: u32, in_flight: u32) -> Result<Driven> {
        let began = Instant::now();
        let latencies = self.bare.drive(prefix, calls, in_flight).await.context("a bare worker")?;
        Ok(Driven { warm: latencies.len() as u64, latencies, elapsed: began.elapsed() })
    }

    async fn drive_runtime(&self, prefix: &str, calls: u32, in_flight: u32) -> Result<Driven> {
        let began = Instant::now();
        // As with the bare worker the last calls begin together: a caller that a stall held back leaves its share to others.
        let numbers = Arc::new(AtomicU32::new(0));
        let mut callers = JoinSet::new();
        for _ in 0..in_flight {
            callers.spawn(calls_of_one(self.client.clone(), prefix.to_owned(), numbers.clone(), calls));
        }
        let mut latencies = Vec::with_capacity(calls as usize);
        let mut warm = 0;
        while let Some(done) = callers.join_next().await {
            let (taken, hits) = done??;
            latencies.extend(taken);
            warm += hits;
        }
        Ok(Driven { latencies, warm, elapsed: began.elapsed() })
    }

    /// Fresh processes, by turns through the runtime and bare.
    async fn starts(&self, plan: &Plan, figures: &mut Language) -> Result<()> {
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
        for start in 0..plan.starts {
            // The last one's end takes processor time, and its place.
            self.client.one_worker().await?;
            let answered = self.client.call(&format!("fresh-{start}"), true).await?;
            anyhow::ensure!(!answered.warm, "a fresh process is no warm one");
            answered.closed().await;
            figures.cold_ready_ms.push(milliseconds(answered.ready));
            figures.cold_answer_ms.push(milliseconds(answered.latency));
            let bare = bare::first_answer(&self.recipe, &format!("bare-{start}")).await?;
            figures.cold_bare_ms.push(milliseconds(bare));
        }
        Ok(())
    }
}

/// A caller's calls, one after the other, until all callers have begun `calls`: their latencies, and how many met a warm
/// worker.
async fn calls_of_one(
    client: Client,
    prefix: String,
    numbers: Arc<AtomicU32>,
    calls: u32,
) -> Result<(Vec<Duration>, u64)> {
    let mut latencies = Vec::with_capacity(calls as usize);
    let mut warm = 0;
    let mut last: Option<Answered> = None;
    loop {
        let call = numbers.fetch_add(1, Ordering::Relaxed);
        if call >= calls {
            break;
        }
        let answered = client.call(&format!("{prefix}-{call}"), false).await?;
        latencies.push(answered.latency);
        warm += u64::from(answered.warm);
        if let Some(before) = last.replace(answered) {
            before.closed().await;
        }
    }
    if let Some(last) = last {
        last.closed().await;
    }
    Ok((latencies, warm))
}

fn copy(from: &Path, to: &Path, depth: u32) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            anyhow::ensure!(depth > 0, "{} is too deep", entry.path().display());
            fs::create_dir(&target)?;
            copy(&entry.path(), &target, depth - 1)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
