//! F47: tasks of A2A run at one of three gateways, which is killed while they do. They are followed, answered and cancelled at the
//! others, and their states are pushed. A client that comes back misses nothing, and no push is lost or out of order.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::agent::{Agent, CANCELED, COMPLETED, Course, INPUT_REQUIRED, has_ended, state};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::push_receiver::Receiver;
use asp_e2e::runtime::{self, Runtime, World};
use asp_e2e::spread::percentile;
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::{http1, tool, wait};
use futures::future::try_join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::sheet::Sheet;

const GATEWAYS: usize = 3;
/// Tasks that are under way when a gateway is killed; the last one is cancelled at its question, the others are answered.
const TASKS: usize = 4;
const STEPS: u64 = 8;
const PAUSE_MS: u64 = 150;
/// Milliseconds from the first step of all tasks to the kill: before their questions, at them and after them.
const KILLS: std::ops::Range<u64> = 0..1_500;
/// Hang guard of a push. What a killed gateway was sending is sent again when its lease of 45 s has ended.
const PUSHED: Duration = Duration::from_secs(90);
/// Hang guard of one task.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause between two looks at a task.
const PACE: Duration = Duration::from_millis(50);
/// Bound of the 99th percentile from the loss of a gateway to the next thing that its clients are shown, in milliseconds.
const SHOWN_MS: f64 = 3_000.0;
const FAULTS_SHOWN: usize = 3;

pub(crate) async fn run(kills: usize, seed: Option<u64>, sheet: &mut Sheet) -> Result<()> {
    let seed = seed.unwrap_or_else(rand::random);
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut platform = Box::pin(Platform::start()).await?;
    let mut figures = Figures::default();
    for _ in 0..kills {
        let lost = Box::pin(platform.lose(&mut random, &mut figures)).await;
        lost.with_context(|| format!("seed {seed}"))?;
    }
    let letters = platform.cluster.admin("/api/push/dead-letters").await?.to_string();
    ensure!(!letters.contains("attempts"), "dead letters: {letters}");
    figures.report(kills, sheet)?;
    for fault in figures.faults.iter().chain(&figures.wrong_pushes).take(FAULTS_SHOWN) {
        sheet.fault(format!("seed {seed}: {fault}"));
    }
    Ok(())
}

/// Sum of all kills.
#[derive(Default)]
struct Figures {
    tasks: usize,
    /// Streams beyond the first of each client.
    returns: usize,
    faults: Vec<String>,
    wrong_pushes: Vec<String>,
    /// Time from a kill to the next thing that a client of that gateway was shown, and to the next change, in milliseconds.
    shown_ms: Vec<f64>,
    changed_ms: Vec<f64>,
}

impl Figures {
    fn report(&self, kills: usize, sheet: &mut Sheet) -> Result<()> {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        {
            sheet.note("kills", kills as f64);
            sheet.note("tasks", self.tasks as f64);
            // A kill after the ends of all tasks proves nothing.
            sheet.at_least("streams of clients that came back", self.returns as f64, kills as f64);
            sheet.at_most("events missed, and ends contradicted", self.faults.len() as f64, 0.0);
            sheet.at_most("pushes lost or out of order", self.wrong_pushes.len() as f64, 0.0);
        }
        let at = |values: &[f64], share| percentile(values, share).context("nobody came back");
        sheet.at_most("killed to shown again, p99, ms", at(&self.shown_ms, 0.99)?, SHOWN_MS);
        sheet.note("killed to the next change, p50, ms", at(&self.changed_ms, 0.5)?);
        sheet.note("killed to the next change, p99, ms", at(&self.changed_ms, 0.99)?);
        Ok(())
    }

    fn take(&mut self, task: &Task, courses: [Course; 2], killed: Instant) {
        self.tasks += 1;
        let [mine, _] = &courses;
        if let Some([shown, changed]) = mine.after(killed) {
            self.shown_ms.push(shown.as_secs_f64() * 1000.0);
            self.changed_ms.push(changed.as_secs_f64() * 1000.0);
        }
        for course in courses {
            self.returns += course.streams.saturating_sub(1);
            if course.state != task.end {
                self.faults.push(format!("{} ended as {}, not {}", task.id, course.state, task.end));
            }
            self.faults.extend(course.faults.into_iter().map(|fault| format!("{}: {fault}", task.id)));
        }
    }
}

/// A task, and how it is to end.
struct Task {
    id: String,
    end: &'static str,
}

struct Platform {
    cluster: Cluster,
    agent: Agent,
    _runtime: Runtime,
    _redis: Redis,
    _postgres: Postgres,
}

impl Platform {
    async fn start() -> Result<Platform> {
        let postgres = Postgres::start().await?;
        let redis = Redis::start().await?;
        let primitives = tool::root()?.join("tests/fixtures/walking");
        let runtime = Runtime::start(&primitives, World::default()).await?;
        let environment = vec![
            ("ASP_DATABASE_URL", postgres.url()),
            ("ASP_REDIS_URL", redis.url()),
            ("ASP_RUNTIMES", runtime::address(&runtime.socket)),
        ];
        let layout = Layout { has_second_control: true, environment, primitives, ..Layout::of(GATEWAYS)? };
        let cluster = Cluster::start_as(layout).await?;
        let token = cluster.token(&["--org", "acme", "--user", "alice", "--ttl", "12h"]).await?;
        let agent = Agent::of("walking", token);
        for at in cluster.addresses() {
            let agent = &agent;
            let serves = || async move { agent.begin(at, &arguments(1, 0), &at_once(None)).await.ok() };
            wait::until("a gateway starts tasks", wait::START, serves).await?;
        }
        Ok(Platform { cluster, agent, _runtime: runtime, _redis: redis, _postgres: postgres })
    }

    /// Starts tasks at a gateway, kills it, and waits until all that was promised has happened.
    async fn lose(&mut self, random: &mut StdRng, figures: &mut Figures) -> Result<()> {
        let places = self.cluster.addresses();
        let lost = random.random_range(0..places.len());
        let owner = *places.get(lost).context("a gateway of this number")?;
        let others: Vec<SocketAddr> = places.into_iter().filter(|at| *at != owner).collect();
        let receiver = Receiver::start().await?;
        let agent = &self.agent;
        let mut tasks = Vec::new();
        for number in 0..TASKS {
            let begun = agent.begin(owner, &arguments(STEPS, PAUSE_MS), &at_once(Some(&receiver))).await?;
            let id = begun.get("id").and_then(Value::as_str).context("a task has an id")?.to_owned();
            tasks.push(Task { id, end: if number + 1 == TASKS { CANCELED } else { COMPLETED } });
        }
        let gateway = self.cluster.gateways.get_mut(lost).context("a gateway of this number")?;
        let delay = Duration::from_millis(random.random_range(KILLS));
        let following =
            try_join_all(tasks.iter().map(|task| follow(agent, task, (owner, others.as_slice()), &receiver)));
        let killing = async {
            try_join_all(tasks.iter().map(|task| has_begun(agent, owner, task))).await?;
            sleep(delay).await;
            let killed = Instant::now();
            gateway.process.signal(Signal::KILL)?;
            gateway.process.wait(wait::CONVERGE).await?;
            anyhow::Ok(killed)
        };
        let (courses, killed) = tokio::try_join!(following, killing)?;
        for (task, courses) in tasks.iter().zip(courses) {
            figures.wrong_pushes.extend(pushed(&receiver, task).await);
            figures.take(task, courses, killed);
        }
        self.cluster.restart_gateway(lost).await?;
        let back = *self.cluster.addresses().get(lost).context("a gateway of this number")?;
        let ready = || async { http1::get(back, "/readyz", &[]).await.ok().filter(|it| it.status == 200) };
        wait::until("the gateway is back", wait::START, ready).await?;
        self.cluster.wait_hosts(GATEWAYS).await
    }
}

fn arguments(steps: u64, pause_ms: u64) -> Value {
    json!({"steps": steps, "pauseMs": pause_ms})
}

/// The configuration of a message that nobody waits for.
fn at_once(receiver: Option<&Receiver>) -> Value {
    match receiver {
        Some(receiver) => {
            json!({"returnImmediately": true, "taskPushNotificationConfig": {"url": receiver.url}})
        }
        None => json!({"returnImmediately": true}),
    }
}

/// Waits until a task has taken its second step, so that the first one is saved.
async fn has_begun(agent: &Agent, at: SocketAddr, task: &Task) -> Result<()> {
    let began = || async move {
        let found = agent.get(at, &task.id).await.ok()?;
        let text = found.pointer("/status/message/parts/0/text").and_then(Value::as_str);
        let step: Option<u64> = text.and_then(|text| text.strip_prefix("step ")?.parse().ok());
        let is_later = state(&found) == INPUT_REQUIRED || has_ended(state(&found));
        (is_later || step.is_some_and(|step| step > 1)).then_some(())
    };
    wait::until("a task takes steps", wait::START, began).await
}

/// Follows a task from its own gateway and from another one, while a third client answers or cancels it.
async fn follow(
    agent: &Agent,
    task: &Task,
    (owner, others): (SocketAddr, &[SocketAddr]),
    receiver: &Receiver,
) -> Result<[Course; 2]> {
    let mut everywhere = vec![owner];
    everywhere.extend_from_slice(others);
    let (mut mine, mut theirs, ()) = tokio::try_join!(
        agent.follow(&task.id, &everywhere),
        agent.follow(&task.id, others),
        settle(agent, task, others, receiver),
    )?;
    mine.compare(&theirs);
    theirs.compare(&mine);
    Ok([mine, theirs])
}

/// Answers or cancels a task whenever it asks, once its receiver knows of the question, until the task has ended.
async fn settle(agent: &Agent, task: &Task, others: &[SocketAddr], receiver: &Receiver) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    for at in others.iter().cycle() {
        ensure!(Instant::now() < until, "the task {} does not end", task.id);
        let found = agent.get(*at, &task.id).await.unwrap_or_default();
        if has_ended(state(&found)) {
            return Ok(());
        }
        if state(&found) == INPUT_REQUIRED {
            let asked = || async {
                states(receiver, &task.id).iter().any(|(_, state)| state == INPUT_REQUIRED).then_some(())
            };
            wait::until("the push of a question", PUSHED, asked).await?;
            // A refusal is repeated at the next gateway: the task is on its way to another one, or has gone on.
            let _ = match task.end {
                CANCELED => agent.cancel(*at, &task.id).await,
                _ => agent.answer(*at, &task.id, &json!({"go": true})).await,
            };
        }
        sleep(PACE).await;
    }
    Ok(())
}

/// Returns the states of a task with their times, as its receiver got them.
fn states(receiver: &Receiver, task: &str) -> Vec<(String, String)> {
    let notifications = receiver.notifications().into_iter();
    let of_task = notifications.filter_map(|one| {
        let shown =
            one.body.get("task").filter(|shown| shown.get("id").and_then(Value::as_str) == Some(task))?;
        let time = shown.pointer("/status/timestamp").and_then(Value::as_str).unwrap_or_default();
        Some((time.to_owned(), state(shown).to_owned()))
    });
    of_task.collect()
}

/// Waits until the end of a task was pushed; returns what is wrong with its pushes.
async fn pushed(receiver: &Receiver, task: &Task) -> Option<String> {
    let ended =
        || async { states(receiver, &task.id).iter().any(|(_, state)| has_ended(state)).then_some(()) };
    let is_lost = wait::until("the push of an end", PUSHED, ended).await.is_err();
    let states = states(receiver, &task.id);
    let is_wrong = is_lost || !are_ordered(&states, task.end);
    is_wrong.then(|| format!("{} was pushed as {states:?}", task.id))
}

/// Whether each state came after the earlier ones, perhaps several times, and the end last.
fn are_ordered(states: &[(String, String)], end: &str) -> bool {
    let is_rising = states.iter().map(|(time, _)| time).is_sorted();
    let mut ends = states.iter().map(|(_, state)| state.as_str()).skip_while(|state| !has_ended(state));
    is_rising && ends.next() == Some(end) && ends.all(|state| state == end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_right(states: &[(u8, &str)]) -> bool {
        let states: Vec<(String, String)> =
            states.iter().map(|(time, state)| (time.to_string(), (*state).to_owned())).collect();
        are_ordered(&states, COMPLETED)
    }

    #[test]
    fn pushes_are_in_order_and_the_end_is_the_last() {
        assert!(are_right(&[(1, INPUT_REQUIRED), (2, "w"), (2, "w"), (3, COMPLETED)]));
        assert!(!are_right(&[(2, "w"), (1, INPUT_REQUIRED), (3, COMPLETED)]), "out of order");
        assert!(!are_right(&[(1, INPUT_REQUIRED), (2, "w")]), "the end is lost");
        assert!(!are_right(&[(1, COMPLETED), (2, "w")]), "something follows the end");
        assert!(!are_right(&[(1, CANCELED)]), "another end");
    }
}
