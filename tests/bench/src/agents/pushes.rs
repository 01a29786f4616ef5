//! Push notifications at a steady rate: from the state of a task in the store to its receivers.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use asp_e2e::agent::{Agent, COMPLETED, INPUT_REQUIRED, message, state};
use asp_e2e::push_receiver::{Notification, Receiver};
use asp_e2e::spread::percentile;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool::Build;
use asp_e2e::wait;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::goal::Goal;
use crate::plan::Plan;

/// Orgs that share the tasks: what is on its way for one of them has a bound.
const CALLERS: usize = 5;
/// Receivers of each task, as many as it may have, each at a port of its own.
const RECEIVERS: usize = 10;
/// Pushes a second at least: an answer ends a task, and the state in between may be pushed as well.
const RATE: f64 = 1000.0;
const PERIOD: Duration = Duration::from_millis(10);
/// Bound of the 99th percentile, in milliseconds.
const MOST_MS: f64 = 250.0;

/// Results.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Pushes {
    pub tasks: usize,
    /// Time from the first arrival to the last one.
    pub seconds: f64,
    /// Time from the state in the store to the arrival, of each push in milliseconds.
    pub delays_ms: Vec<f64>,
}

pub(super) async fn measure(plan: &Plan) -> Result<Pushes> {
    let stack = Stack::start(Options::of(Build::own()?)).await?;
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let org = format!("pushed-{number}");
        let token = stack.token(&["--org", &org, "--user", "carol", "--ttl", "1h"]).await?;
        callers.push(Agent::of("a2a-conformance", token));
    }
    let mut receivers = Vec::new();
    for _ in 0..RECEIVERS {
        receivers.push(Receiver::start().await?);
    }
    let mut waiting = Vec::new();
    for (_, caller) in (0..plan.pushed).zip(callers.iter().cycle()) {
        waiting.push((caller.clone(), ask(&stack, caller, &receivers).await?));
    }
    // Each receiver is sent the question that a task has when it is registered.
    all_have(&receivers, INPUT_REQUIRED, plan.pushed).await?;
    let mut answers = JoinSet::new();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let edge = stack.edge();
    for (caller, task) in waiting {
        ticks.tick().await;
        answers.spawn(async move {
            let params = json!({"message": message(json!([{"text": "The last one"}]), Some(&task))});
            caller.send(edge, &params).await
        });
    }
    while let Some(answered) = answers.join_next().await {
        answered??;
    }
    all_have(&receivers, COMPLETED, plan.pushed).await?;
    let arrived: Vec<Notification> = receivers.iter().flat_map(Receiver::notifications).collect();
    stack.stop(&[]).await?;
    Pushes::of(plan.pushed, &arrived)
}

/// Starts a task that asks something, and registers every receiver for it; returns its id.
async fn ask(stack: &Stack, caller: &Agent, receivers: &[Receiver]) -> Result<String> {
    let params = json!({"message": message(json!([{"text": "tck-input-required"}]), None)});
    let task = caller.send(stack.edge(), &params).await?;
    let id = task.get("id").and_then(Value::as_str).context("a task has an id")?;
    for receiver in receivers {
        let config = json!({"taskId": id, "url": receiver.url});
        caller.call(stack.edge(), "CreateTaskPushNotificationConfig", &config).await?;
    }
    Ok(id.to_owned())
}

fn has(one: &Notification, wanted: &str) -> bool {
    one.body.get("task").is_some_and(|task| state(task) == wanted)
}

/// Waits until each receiver has this state of so many tasks.
async fn all_have(receivers: &[Receiver], wanted: &str, tasks: usize) -> Result<()> {
    let have = || async {
        let count =
            |receiver: &Receiver| receiver.notifications().iter().filter(|one| has(one, wanted)).count();
        receivers.iter().all(|receiver| count(receiver) >= tasks).then_some(())
    };
    wait::until("all pushes", wait::START, have).await
}

impl Pushes {
    /// Takes what arrived after the answers.
    fn of(tasks: usize, arrived: &[Notification]) -> Result<Pushes> {
        let counted: Vec<&Notification> = arrived.iter().filter(|one| !has(one, INPUT_REQUIRED)).collect();
        let times: Vec<SystemTime> = counted.iter().map(|one| one.at).collect();
        let (first, last) = times.iter().min().zip(times.iter().max()).context("nothing arrived")?;
        let seconds = last.duration_since(*first)?.as_secs_f64();
        let delays_ms = counted.iter().filter_map(|one| one.delay_ms()).collect();
        Ok(Pushes { tasks, seconds, delays_ms })
    }

    fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.delays_ms.len() as f64 / self.seconds } else { 0.0 }
    }

    fn at(&self, share: f64) -> f64 {
        percentile(&self.delays_ms, share).unwrap_or(f64::INFINITY)
    }

    pub(super) fn judge(&self) -> Goal {
        Goal {
            goal: format!("{RATE} pushes a second arrive, 99 of 100 within {MOST_MS} ms of their states"),
            met: self.rate() >= RATE && self.at(0.99) <= MOST_MS,
            figures: format!("{:.0} a second, p99 {:.0} ms", self.rate(), self.at(0.99)),
        }
    }

    pub(super) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\n{} tasks with {RECEIVERS} receivers each were answered, one every {} ms: {} pushes, {:.0} a second. From the \
             time of a state in the store to its arrival: p50 {:.0} ms, p99 {:.0} ms, the last {:.0} ms. Clients, \
             receivers, Envoy, gateway and SQLite share the machine.",
            self.tasks,
            PERIOD.as_millis(),
            self.delays_ms.len(),
            self.rate(),
            self.at(0.5),
            self.at(0.99),
            self.at(1.0)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_at_its_rate_and_in_its_time() {
        let met = |seconds, slow| {
            let delays_ms = (0..1000).map(|number| if number >= 980 { slow } else { 5.0 }).collect();
            Pushes { tasks: 100, seconds, delays_ms }.judge().met
        };
        assert!(met(1.0, 250.0));
        assert!(!met(1.0, 251.0) && !met(1.1, 5.0));
        assert!(!Pushes::default().judge().met, "nothing was measured");
    }
}
