//! F41: PostgreSQL is away for longer than a lease, or its clock is stepped by more than one, each way, while calls run and tasks
//! wait at three gateways. All leases lapse, and no gateway is gone: none of them loses a call, nobody is told that an outcome is
//! unknown, and every lease is back soon.
//!
//! The clock is PostgreSQL's alone: a library gives its processes another time of day than the machine's. All of it takes less
//! than the minute that a gateway bears the silence of a service, which holds the calls meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use asp_e2e::caller::{Caller, Came, Tool, Work};
use asp_e2e::fleet::Fleet;
use asp_e2e::history::{What, judge};
use asp_e2e::stores::Postgres;
use asp_e2e::wait;
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::sheet::Sheet;

/// Gateways of a fleet.
const GATEWAYS: u8 = 3;
/// Calls whose clients wait for the answer.
const CALLS: usize = 300;
/// Users, and the tasks of each: all of a user's results are kept.
const USERS: usize = 10;
const TASKS_OF_USER: usize = 100;
const TASKS: usize = USERS * TASKS_OF_USER;
/// Length of the outage, and of a step of the clock: longer than a lease, which is 8 s.
const AWAY: Duration = Duration::from_secs(20);
const STEP_SECONDS: i64 = 15;
/// Least step that is measured: the clock is read a moment before and after it.
const LEAST_STEP: f64 = 14.0;
/// Bound on the time until every lease is back, in seconds.
const BACK_WITHIN: f64 = 5.0;
/// Time in which a gateway with a lapsed lease could still lose its calls: others take nothing for 8 s, and look every 2 s.
const CALM: Duration = Duration::from_secs(12);
/// Clients that ask for tasks, one after the other, and how long each rests between two of them.
const READERS: usize = 5;
const REST: Duration = Duration::from_millis(20);
/// The longest that a service of the harness takes, in milliseconds.
const LONGEST_MS: u64 = 10_000;

/// Statements that remember the owner of every record, and that count the records with another owner by now.
const REMEMBER: &str = "DROP TABLE IF EXISTS owners_before; \
                        CREATE TABLE owners_before AS SELECT call_id, owner FROM call_records WHERE owner IS NOT NULL";
const REMEMBERED: &str = "SELECT COUNT(*) FROM owners_before";
const CHANGED: &str = "SELECT COUNT(*) FROM owners_before b LEFT JOIN call_records r USING (call_id) \
                       WHERE r.owner IS DISTINCT FROM b.owner";
/// Leases that hold by PostgreSQL's clock, and that clock.
const LEASES: &str = "SELECT COUNT(*) FROM gateways WHERE lease_ms > now_ms()";
const CLOCK: &str = "SELECT EXTRACT(EPOCH FROM clock_timestamp())";
/// Log lines of a gateway.
const NOT_RENEWED: &str = "this gateway could not renew its lease in the store";
const TAKEN: &str = "another gateway has taken over this call";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Disturbance {
    Away,
    ClockSteps,
}

pub(crate) const ALL: [Disturbance; 2] = [Disturbance::Away, Disturbance::ClockSteps];

impl Disturbance {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Disturbance::Away => "PostgreSQL away for 20 s",
            Disturbance::ClockSteps => "PostgreSQL's clock stepped by 15 s each way",
        }
    }
}

struct Task {
    caller: Caller,
    work: Work,
    id: String,
}

pub(crate) async fn run(disturbance: Disturbance, sheet: &mut Sheet) -> Result<()> {
    let mut fleet = Fleet::start_for_long_calls().await?;
    let gateways = fleet.cluster.addresses();
    let tasks = Arc::new(begin_tasks(&fleet, &gateways).await?);
    let calls = begin_calls(&fleet, &gateways).await?;
    fleet.postgres.ask(REMEMBER).await?;
    sheet.at_least("records of running calls", number(&fleet.postgres, REMEMBERED).await?, TASKS as f64);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        readers.spawn(read(tasks.clone(), gateways.clone(), reader, is_over.clone()));
    }
    match disturbance {
        Disturbance::Away => away(&mut fleet, sheet).await?,
        Disturbance::ClockSteps => clock_steps(&fleet, sheet).await?,
    }
    let changed = number(&fleet.postgres, CHANGED).await?;
    sheet.at_most("records that another gateway took over", changed, 0.0);
    is_over.store(true, Ordering::Release);
    let mut reads = 0.0;
    let mut strange = Vec::new();
    while let Some(read) = readers.join_next().await {
        let (made, found) = read?;
        reads += made;
        strange.extend(found);
    }
    sheet.at_least("looks at tasks meanwhile", reads, 1.0);
    sheet.at_most("looks that found a task lost", strange.len() as f64, 0.0);
    strange.iter().take(3).for_each(|strange| sheet.fault(strange.clone()));

    fleet.works.let_go();
    calls_end(calls, sheet).await?;
    tasks_end(&tasks, &gateways, sheet).await?;
    judge_history(&fleet, sheet);
    takeover_is_seen(&mut fleet, sheet).await
}

/// Begins tasks at every gateway, all of which wait at the service.
async fn begin_tasks(fleet: &Fleet, gateways: &[SocketAddr]) -> Result<Vec<Task>> {
    let mut users = JoinSet::new();
    for user in 0..USERS {
        let caller = fleet.caller_named(&format!("user-{user}")).await?;
        users.spawn(begin_tasks_of(caller, user, gateways.to_vec()));
    }
    let mut tasks = Vec::new();
    while let Some(begun) = users.join_next().await {
        tasks.extend(begun??);
    }
    for task in &tasks {
        fleet.works.was_asked(&task.work.thing, 1).await?;
    }
    Ok(tasks)
}

async fn begin_tasks_of(caller: Caller, user: usize, gateways: Vec<SocketAddr>) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    for (number, at) in (0..TASKS_OF_USER).zip(gateways.iter().cycle()) {
        let work = Work::held(Tool::Hosted, format!("task {user}-{number}"));
        match caller.begin(*at, &work).await {
            Came::Runs(Some(id)) => tasks.push(Task { caller: caller.clone(), work, id }),
            other => bail!("{} became no task: {other:?}", work.thing),
        }
    }
    Ok(tasks)
}

/// Begins calls at every gateway, all of which wait at the service.
async fn begin_calls(fleet: &Fleet, gateways: &[SocketAddr]) -> Result<JoinSet<(Work, Came)>> {
    let caller = fleet.caller_named("caller").await?;
    let mut calls = JoinSet::new();
    let mut things = Vec::new();
    // A gateway gets calls of every tool.
    let tools = Tool::ALL.into_iter().flat_map(|tool| gateways.iter().map(move |at| (tool, *at)));
    for (number, (tool, at)) in (0..CALLS).zip(tools.collect::<Vec<_>>().into_iter().cycle()) {
        let work = Work::held(tool, format!("call {number}"));
        things.push(work.thing.clone());
        let caller = caller.clone();
        calls.spawn(async move {
            let came = caller.call(at, &work).await;
            (work, came)
        });
    }
    for thing in &things {
        fleet.works.was_asked(thing, 1).await?;
    }
    Ok(calls)
}

/// Looks at one task after the other, each time at another gateway, until it is over; how often, and what it found that no task
/// has come to.
async fn read(
    tasks: Arc<Vec<Task>>,
    gateways: Vec<SocketAddr>,
    reader: usize,
    is_over: Arc<AtomicBool>,
) -> (f64, Vec<String>) {
    let (mut reads, mut strange) = (0.0, Vec::new());
    let turns = tasks.iter().cycle().zip(gateways.iter().cycle()).skip(reader).step_by(READERS);
    for (task, at) in turns {
        if is_over.load(Ordering::Acquire) {
            break;
        }
        let came = task.caller.task(*at, &task.work, "tasks/get", &task.id).await;
        // A gateway that cannot ask the store says so, or says nothing certain.
        if !came.is_open() {
            strange.push(format!("{} at {at}: {came:?}", task.work.thing));
        }
        reads += 1.0;
        sleep(REST).await;
    }
    (reads, strange)
}

async fn away(fleet: &mut Fleet, sheet: &mut Sheet) -> Result<()> {
    fleet.postgres.process.signal(Signal::QUIT)?;
    fleet.postgres.process.wait(wait::CONVERGE).await?;
    sleep(AWAY).await;
    fleet.postgres.start_again().await?;
    leases_are_back(&fleet.postgres, "its return", sheet).await?;
    let noticed = fleet.cluster.gateways.iter().filter(|gateway| gateway.process.log().contains(NOT_RENEWED));
    sheet.at_least("gateways that could not renew their lease", noticed.count() as f64, GATEWAYS.into());
    sleep(CALM).await;
    Ok(())
}

async fn clock_steps(fleet: &Fleet, sheet: &mut Sheet) -> Result<()> {
    let mut before = seconds_ahead(&fleet.postgres).await?;
    for (ahead, what) in [(STEP_SECONDS, "the step ahead"), (0, "the step back")] {
        fleet.postgres.step_clock(ahead)?;
        let leases = number(&fleet.postgres, LEASES).await?;
        sheet.note(&format!("leases that hold right after {what}"), leases);
        leases_are_back(&fleet.postgres, what, sheet).await?;
        let after = seconds_ahead(&fleet.postgres).await?;
        sheet.at_least(&format!("seconds of {what}"), (after - before).abs(), LEAST_STEP);
        before = after;
        sleep(CALM).await;
    }
    Ok(())
}

/// Waits until the lease of every gateway holds.
async fn leases_are_back(postgres: &Postgres, what: &str, sheet: &mut Sheet) -> Result<()> {
    let since = Instant::now();
    let all = f64::from(GATEWAYS);
    let hold = || async { (number(postgres, LEASES).await.ok()? >= all).then(|| since.elapsed()) };
    let took = wait::until("every gateway has its lease", wait::CONVERGE, hold).await?;
    sheet.at_most(&format!("seconds from {what} until every lease is back"), took.as_secs_f64(), BACK_WITHIN);
    Ok(())
}

/// Seconds that PostgreSQL's clock is ahead of this machine's.
async fn seconds_ahead(postgres: &Postgres) -> Result<f64> {
    let there = number(postgres, CLOCK).await?;
    Ok(there - SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

async fn calls_end(mut calls: JoinSet<(Work, Came)>, sheet: &mut Sheet) -> Result<()> {
    let (mut told, mut lost) = (0.0, Vec::new());
    while let Some(ended) = calls.join_next().await {
        match ended? {
            (_, Came::Told(_)) => told += 1.0,
            (work, came) => lost.push(format!("{}: {came:?}", work.thing)),
        }
    }
    sheet.at_least("calls whose client was told the result", told, CALLS as f64);
    lost.iter().take(3).for_each(|lost| sheet.fault(lost.clone()));
    Ok(())
}

/// Asks every gateway how each task ended.
async fn tasks_end(tasks: &Arc<Vec<Task>>, gateways: &[SocketAddr], sheet: &mut Sheet) -> Result<()> {
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (tasks, gateways) = (tasks.clone(), gateways.to_vec());
        readers.spawn(async move {
            let (mut told, mut lost) = (0.0, Vec::new());
            for task in tasks.iter().skip(reader).step_by(READERS) {
                for at in &gateways {
                    match task.caller.ended_task(*at, &task.work, &task.id).await {
                        Ok(Came::Told(_)) => told += 1.0,
                        Ok(came) => lost.push(format!("{} at {at}: {came:?}", task.work.thing)),
                        Err(error) => lost.push(format!("{error:#}")),
                    }
                }
            }
            (told, lost)
        });
    }
    let (mut told, mut lost) = (0.0, Vec::new());
    while let Some(read) = readers.join_next().await {
        let (of_one, its_lost) = read?;
        told += of_one;
        lost.extend(its_lost);
    }
    let all = (TASKS * gateways.len()) as f64;
    sheet.at_least("times that a gateway told the result of a task", told, all);
    lost.iter().take(3).for_each(|lost: &String| sheet.fault(lost.clone()));
    Ok(())
}

fn judge_history(fleet: &Fleet, sheet: &mut Sheet) {
    // Nothing in it says that a process was lost, so that no outcome may be unknown.
    let unknown = fleet.history.count(|what| matches!(what, What::Unknown { .. } | What::Missing { .. }));
    sheet.at_most("answers that an outcome is unknown or a call is not there", unknown as f64, 0.0);
    sheet.at_most("faults in the history", judge(&fleet.history.entries()).len() as f64, 0.0);
    let lines = fleet.cluster.gateways.iter().flat_map(|gateway| gateway.process.log().lines());
    let taken = lines.filter(|line| line.contains(TAKEN)).count();
    sheet.at_most("calls that their gateway found taken over", taken as f64, 0.0);
}

/// Loses a gateway with a task, so that its record changes hands: what says above that none did can say otherwise.
async fn takeover_is_seen(fleet: &mut Fleet, sheet: &mut Sheet) -> Result<()> {
    let caller = fleet.caller_named("left").await?;
    let work = Work::lasting(Tool::Hosted, "left behind", LONGEST_MS);
    let lost = fleet.cluster.gateways.last_mut().context("a gateway")?;
    let came = caller.begin(lost.address, &work).await;
    let Came::Runs(Some(_)) = came else { bail!("{} became no task: {came:?}", work.thing) };
    fleet.works.was_asked(&work.thing, 1).await?;
    fleet.postgres.ask(REMEMBER).await?;
    lost.process.signal(Signal::KILL)?;
    lost.process.wait(wait::CONVERGE).await?;
    let postgres = &fleet.postgres;
    let changes = || async { number(postgres, CHANGED).await.ok().filter(|changed| *changed > 0.0) };
    let changed = wait::until("a record changes hands", wait::START, changes).await?;
    sheet.at_least("records that are taken over where a gateway is lost", changed, 1.0);
    Ok(())
}

/// The one number that a statement comes to.
async fn number(postgres: &Postgres, statement: &str) -> Result<f64> {
    Ok(postgres.ask(statement).await?.parse()?)
}
