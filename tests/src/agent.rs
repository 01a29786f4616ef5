//! A client of an agent of A2A 1.0, over JSON-RPC. It follows a task from gateway to gateway, and compares what it is shown with
//! what a client is promised: the generation of a task never falls, no two events have the same one, no step is left out that
//! another client is shown, and no gap is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::http1::{self, Opened, Request};

pub const COMPLETED: &str = "TASK_STATE_COMPLETED";
pub const CANCELED: &str = "TASK_STATE_CANCELED";
pub const INPUT_REQUIRED: &str = "TASK_STATE_INPUT_REQUIRED";
const ENDS: [&str; 4] = [COMPLETED, CANCELED, "TASK_STATE_FAILED", "TASK_STATE_REJECTED"];
const GENERATION: &str = "asp/generation";
const GAP: &str = "asp/gap";
/// Start of the texts that `tests/fixtures/walking` reports, before the number of a step.
const STEP: &str = "step ";
/// Hang guard of a task.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause between two requests of a client whose stream ended.
const PACE: Duration = Duration::from_millis(100);

/// A client with its token.
#[derive(Clone)]
pub struct Agent {
    target: String,
    token: String,
}

impl Agent {
    pub fn of(server: &str, token: String) -> Agent {
        Agent { target: format!("/{server}/a2a"), token }
    }

    /// Starts a task by the skill's arguments; returns it as it is then.
    pub async fn begin(&self, at: SocketAddr, arguments: &Value, configuration: &Value) -> Result<Value> {
        let message = message(json!([{"data": arguments}]), None);
        self.send(at, &json!({"message": message, "configuration": configuration})).await
    }

    /// Answers the question of a task.
    pub async fn answer(&self, at: SocketAddr, task: &str, fields: &Value) -> Result<Value> {
        let message = message(json!([{"data": fields}]), Some(task));
        self.send(at, &json!({"message": message, "configuration": {"returnImmediately": true}})).await
    }

    /// Sends a message; returns its task.
    pub async fn send(&self, at: SocketAddr, params: &Value) -> Result<Value> {
        let result = self.call(at, "SendMessage", params).await?;
        result.get("task").cloned().with_context(|| format!("no task: {result}"))
    }

    pub async fn get(&self, at: SocketAddr, task: &str) -> Result<Value> {
        self.call(at, "GetTask", &json!({"id": task, "historyLength": 0})).await
    }

    pub async fn cancel(&self, at: SocketAddr, task: &str) -> Result<Value> {
        self.call(at, "CancelTask", &json!({"id": task})).await
    }

    /// Returns the result of a method.
    pub async fn call(&self, at: SocketAddr, method: &str, params: &Value) -> Result<Value> {
        let answer = http1::send(at, &self.request(method, params)).await?;
        let mut answer = answer.json()?;
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => bail!("{method}: {answer}"),
        }
    }

    /// Opens the events of a method; an error if there is no stream.
    pub async fn open(&self, at: SocketAddr, method: &str, params: &Value) -> Result<Opened> {
        http1::open(at, &self.request(method, params), "data: ").await
    }

    /// The connection ends with the answer, so that a refusal is one that has no event.
    fn request(&self, method: &str, params: &Value) -> Request {
        let headers = [
            ("authorization", format!("Bearer {}", self.token)),
            ("content-type", "application/json".to_owned()),
            ("a2a-version", "1.0".to_owned()),
            ("connection", "close".to_owned()),
        ];
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes()));
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Request {
            method: "POST".into(),
            target: self.target.clone(),
            headers: headers.collect(),
            body: body.to_string().into_bytes(),
        }
    }

    /// Follows a task until it has ended: at the first place, and at the next one whenever its stream breaks.
    pub async fn follow(&self, task: &str, places: &[SocketAddr]) -> Result<Course> {
        let mut course = Course::default();
        let until = Instant::now() + PATIENCE;
        for at in places.iter().cycle() {
            ensure!(Instant::now() < until, "the task {task} does not end: {course:?}");
            match self.open(*at, "SubscribeToTask", &json!({"id": task})).await {
                Ok(mut stream) => course.read(&mut stream).await?,
                // It has ended, or the gateway is gone.
                Err(_) => {
                    if let Ok(found) = self.get(*at, task).await {
                        course.take(&Sight::of_task(&found), true);
                    }
                }
            }
            if course.has_ended() {
                break;
            }
            sleep(PACE).await;
        }
        Ok(course)
    }
}

/// Returns a message with an id of its own.
pub fn message(parts: Value, task: Option<&str>) -> Value {
    let id = format!("{:032x}", rand::random::<u128>());
    let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": parts});
    if let (Some(members), Some(task)) = (message.as_object_mut(), task) {
        members.insert("taskId".to_owned(), task.into());
    }
    message
}

/// Returns the state of a task.
pub fn state(task: &Value) -> &str {
    task.pointer("/status/state").and_then(Value::as_str).unwrap_or_default()
}

pub fn has_ended(state: &str) -> bool {
    ENDS.contains(&state)
}

/// Part of a task that one event shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sight {
    generation: Option<u64>,
    state: String,
    step: Option<u64>,
    has_gap: bool,
    /// The event without its time; `None` for a whole task.
    update: Option<String>,
}

impl Sight {
    fn of_task(task: &Value) -> Sight {
        let metadata = task.get("metadata");
        let text = task.pointer("/status/message/parts/0/text").and_then(Value::as_str);
        Sight {
            generation: metadata.and_then(|metadata| metadata.get(GENERATION)?.as_u64()),
            state: state(task).to_owned(),
            step: text.and_then(|text| text.strip_prefix(STEP)?.parse().ok()),
            has_gap: metadata.is_some_and(|metadata| metadata.get(GAP).is_some()),
            update: None,
        }
    }

    /// Reads the data of an event; `None` for one of an artifact.
    fn of_event(data: &str) -> Result<Option<Sight>> {
        let event: Value = serde_json::from_str(data).with_context(|| data.to_owned())?;
        let result = event.get("result").with_context(|| format!("no event of a task: {data}"))?;
        let of_update =
            |update: &Value| Sight { update: Some(without_time(update)), ..Sight::of_task(update) };
        let task = result.get("task").map(Sight::of_task);
        Ok(task.or_else(|| result.get("statusUpdate").map(of_update)))
    }
}

/// Returns an event without the time of its status, which is that of its stream for a question.
fn without_time(update: &Value) -> String {
    let mut update = update.clone();
    if let Some(status) = update.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("timestamp");
    }
    update.to_string()
}

/// Part of a task that one stream has shown.
#[derive(Debug)]
struct StreamSpan {
    /// Generation of its first task.
    first: u64,
    /// The last generation that it showed.
    last: u64,
    /// Generations of the steps after its first task.
    steps: BTreeSet<u64>,
}

/// A task as a client sees it over all of its streams.
#[derive(Debug, Default)]
pub struct Course {
    pub state: String,
    pub streams: usize,
    /// Contradictions to the promises to a client.
    pub faults: Vec<String>,
    /// Generations with the times at which they were shown.
    shown: Vec<(Instant, u64)>,
    /// The last step that was shown; `None` if it is not known.
    step: Option<u64>,
    /// Events by generation.
    updates: BTreeMap<u64, String>,
    spans: Vec<StreamSpan>,
}

impl Course {
    pub fn has_ended(&self) -> bool {
        has_ended(&self.state)
    }

    /// Reads a stream to its end, or to where it breaks.
    async fn read(&mut self, stream: &mut Opened) -> Result<()> {
        self.streams += 1;
        let mut is_first = true;
        // A broken connection is what a client comes back from.
        while let Ok(Some(data)) = stream.next_event().await {
            if let Some(sight) = Sight::of_event(&data)? {
                self.take(&sight, is_first);
            }
            is_first = false;
        }
        Ok(())
    }

    /// Takes what is shown next; the first of a stream is the whole task, which may have moved on meanwhile.
    fn take(&mut self, sight: &Sight, is_first: bool) {
        let last = self.shown.last().map_or(0, |(_, generation)| *generation);
        if sight.has_gap {
            self.faults.push(format!("a gap after generation {last}"));
        }
        if let Some(generation) = sight.generation {
            if generation < last {
                self.faults.push(format!("generation {generation} after {last}"));
            }
            self.shown.push((Instant::now(), generation.max(last)));
            self.note(generation, sight, is_first);
        }
        if has_ended(&self.state) && sight.state != self.state {
            self.faults.push(format!("{} after {}", sight.state, self.state));
        }
        if let (Some(step), Some(before), false) = (sight.step, self.step, is_first)
            && step > before + 1
        {
            self.faults.push(format!("step {step} after step {before}"));
        }
        if is_first || sight.step.is_some() {
            self.step = sight.step;
        }
        self.state.clone_from(&sight.state);
    }

    /// Notes what a stream shows under a generation.
    fn note(&mut self, generation: u64, sight: &Sight, is_first: bool) {
        if is_first {
            self.spans.push(StreamSpan { first: generation, last: generation, steps: BTreeSet::new() });
        } else if let Some(span) = self.spans.last_mut() {
            span.last = span.last.max(generation);
            span.steps.extend(sight.step.map(|_| generation));
        }
        if let Some(update) = &sight.update
            && let Some(known) = self.updates.insert(generation, update.clone())
            && known != *update
        {
            self.faults.push(format!("generation {generation} is {known} and {update}"));
        }
    }

    /// Compares the course of the same task that another client has seen: its events are the same, and each stream here has
    /// all steps between the first and the last that it showed.
    pub fn compare(&mut self, other: &Course) {
        let mut faults = Vec::new();
        for (generation, theirs) in &other.updates {
            if let Some(own) = self.updates.get(generation).filter(|own| *own != theirs) {
                faults.push(format!("generation {generation} is {own} and elsewhere {theirs}"));
            }
        }
        for step in other.spans.iter().flat_map(|span| &span.steps) {
            let leaves_out =
                |span: &&StreamSpan| span.first < *step && *step <= span.last && !span.steps.contains(step);
            if let Some(span) = self.spans.iter().find(leaves_out) {
                let StreamSpan { first, last, .. } = span;
                faults.push(format!("generation {step} is missing between {first} and {last}"));
            }
        }
        self.faults.extend(faults);
    }

    /// Returns the times from a moment to the next thing that was shown, and to the next change of the task.
    pub fn after(&self, moment: Instant) -> Option<[Duration; 2]> {
        let before = self.shown.iter().rev().find(|(at, _)| *at <= moment).map_or(0, |(_, last)| *last);
        let mut later = self.shown.iter().filter(|(at, _)| *at > moment);
        let (first, _) = later.clone().next()?;
        let (changed, _) = later.find(|(_, generation)| *generation > before)?;
        Some([*first - moment, *changed - moment])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(generation: u64, step: u64) -> Sight {
        let update = Some(format!("step {step}"));
        Sight { generation: Some(generation), step: Some(step), state: "w".into(), has_gap: false, update }
    }

    fn faults(sights: &[(Sight, bool)]) -> usize {
        let mut course = Course::default();
        for (sight, is_first) in sights {
            course.take(sight, *is_first);
        }
        course.faults.len()
    }

    #[test]
    fn a_client_sees_every_step_of_a_stream_and_no_earlier_task_later() {
        let stream = [(sight(1, 1), true), (sight(2, 2), false)];
        let away = [(sight(5, 5), true), (sight(6, 6), false)];
        assert_eq!(faults(&[stream.clone(), away].concat()), 0);
        // A step that was not saved is taken again.
        assert_eq!(faults(&[(sight(5, 5), true), (sight(6, 5), false)]), 0);
        assert_eq!(faults(&[(sight(1, 1), true), (sight(3, 3), false)]), 1, "a step is left out");
        assert_eq!(faults(&[stream.as_slice(), &[(sight(1, 1), true)]].concat()), 1, "an earlier task");
        let gap = Sight { has_gap: true, ..sight(2, 2) };
        assert_eq!(faults(&[(sight(1, 1), true), (gap, false)]), 1);
    }

    #[test]
    fn an_end_is_not_followed_by_another_state() {
        let end = Sight { state: COMPLETED.into(), ..sight(2, 2) };
        assert_eq!(faults(&[(end.clone(), false), (end.clone(), false)]), 0);
        assert_eq!(faults(&[(end, false), (sight(3, 2), false)]), 1);
    }

    #[test]
    fn two_events_have_two_generations_and_clients_see_the_same_ones() {
        assert_eq!(faults(&[(sight(1, 1), true), (sight(2, 2), false), (sight(2, 3), false)]), 1);
        let course = |sights: &[(Sight, bool)]| {
            let mut course = Course::default();
            sights.iter().for_each(|(sight, is_first)| course.take(sight, *is_first));
            course
        };
        let whole = course(&[(sight(1, 1), true), (sight(2, 2), false), (sight(3, 3), false)]);
        let compared = |mut other: Course| {
            other.compare(&whole);
            other.faults.len()
        };
        assert_eq!(compared(course(&[(sight(1, 1), true), (sight(2, 2), false)])), 0, "its stream broke");
        assert_eq!(compared(course(&[(sight(2, 2), true), (sight(3, 3), false)])), 0, "it came later");
        let first = Sight { step: None, ..sight(1, 1) };
        assert_eq!(compared(course(&[(first, true), (sight(3, 3), false)])), 1, "one is left out");
        assert_eq!(compared(course(&[(sight(2, 2), true), (sight(3, 4), false)])), 2, "another one");
    }

    #[test]
    fn an_event_shows_the_state_its_generation_and_the_step() {
        let update = r#"{"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"status":{"state":"w","message":
            {"parts":[{"text":"step 7"}]}},"metadata":{"asp/generation":4}}}}"#;
        let shown = Sight::of_event(update).unwrap().unwrap();
        assert_eq!(Sight { update: sight(4, 7).update, ..shown.clone() }, sight(4, 7));
        let again = update.replace(r#""state":"w""#, r#""state":"w","timestamp":"2026-01-01T00:00:00Z""#);
        assert_eq!(Sight::of_event(&again).unwrap().unwrap(), shown, "whenever it is shown");
        let artifact = r#"{"jsonrpc":"2.0","id":1,"result":{"artifactUpdate":{}}}"#;
        assert_eq!(Sight::of_event(artifact).unwrap(), None);
    }
}
