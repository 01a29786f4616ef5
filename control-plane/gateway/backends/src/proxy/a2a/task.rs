//! The task of a call at its agent, as far as it is known here.
//!
//! Owns: how the events of a task add up, and which of them the caller sees at once. Keeps true: progress only rises; an ended
//! task does not change; what is held of it is bounded.

use std::collections::{BTreeMap, HashMap};

use asp_a2a::{
    Artifact, Message, Part, PartContent, StreamEvent, Task, TaskArtifactUpdate, TaskState, TaskStatus,
};
use asp_call::call::Call;
use asp_call::call::event::{Amount, Event, LogLevel};
use asp_call::call::outcome::Refusal;
use asp_json::{Json, Members};
use serde_json::Value;

use super::content;
use crate::outbound::upstream::unanswered;

/// Maximum size of a task's artifacts in bytes.
const MAX_HELD: usize = 16 << 20;
/// Sizes that every part and every artifact have at least, so that their number is bounded.
const LEAST_HELD: usize = 256;
const LEAST_ARTIFACT: usize = 1024;
/// Metadata of a change as this platform writes it: progress, a log message, a phase.
const PROGRESS: &str = "asp/progress";
const LOG: &str = "asp/log";
const PHASE: &str = "asp/phase";
/// Phase of a message of an agent that counts its progress.
const WORKING: &str = "WORKING";

/// The known state of a task.
#[derive(Default)]
pub(super) struct RemoteTask {
    pub(super) id: Option<String>,
    pub(super) context: Option<String>,
    pub(super) status: TaskStatus,
    /// Message with which the agent answers in place of a task.
    reply: Option<Message>,
    artifacts: ArtifactList,
    /// Size of what is held, in bytes.
    held: usize,
    shown: ShownProgress,
}

/// Artifacts of a task, in the order in which they came.
#[derive(Default)]
struct ArtifactList {
    all: Vec<Artifact>,
    /// Indices in `all` by id: an agent may send many thousands of artifacts in small pieces.
    places: HashMap<String, usize>,
}

impl ArtifactList {
    fn of(all: Vec<Artifact>) -> ArtifactList {
        let mut places = HashMap::with_capacity(all.len());
        for (place, artifact) in all.iter().enumerate() {
            places.entry(artifact.artifact_id.clone()).or_insert(place);
        }
        ArtifactList { all, places }
    }

    /// Adds an artifact, or a piece of one; returns the size of what it replaces, and by how much the size grows.
    fn take(&mut self, artifact: Artifact, append: bool) -> (usize, usize) {
        let place = self.places.get(&artifact.artifact_id).copied();
        match place.and_then(|place| self.all.get_mut(place)) {
            Some(known) if append => (0, append_parts(&mut known.parts, artifact.parts)),
            Some(known) => {
                let sizes = (size_of_artifact(known), size_of_artifact(&artifact));
                *known = artifact;
                sizes
            }
            None => {
                let size = size_of_artifact(&artifact);
                self.places.insert(artifact.artifact_id.clone(), self.all.len());
                self.all.push(artifact);
                (0, size)
            }
        }
    }
}

/// Progress that the caller has seen.
#[derive(Default)]
struct ShownProgress {
    amount: Option<Amount>,
    /// Whether the agent states amounts.
    is_stated: bool,
    /// Number of messages that were counted in place of an amount.
    messages: u32,
    /// Id and text of the last message: a poll shows it again.
    message: String,
}

impl RemoteTask {
    /// Takes an event; one of another task changes nothing.
    pub(super) fn take(&mut self, event: StreamEvent, call: &Call) -> Result<(), Refusal> {
        if self.has_ended() {
            return Ok(());
        }
        match event {
            StreamEvent::Message(message) if self.id.is_none() => {
                self.hold(size_of_parts(&message.parts), call)?;
                self.reply = Some(message);
            }
            // A message beside a task says how it goes.
            StreamEvent::Message(message) => self.show(Some(&message), None, call),
            StreamEvent::Task(task) => self.take_task(task, call)?,
            StreamEvent::Status(update) if self.is(&update.task_id, &update.context_id) => {
                self.show(update.status.message.as_ref(), update.metadata.as_ref(), call);
                self.status = update.status;
            }
            StreamEvent::Artifact(update) if self.is(&update.task_id, &update.context_id) => {
                self.take_artifact(update, call)?;
            }
            StreamEvent::Status(_) | StreamEvent::Artifact(_) => {}
        }
        Ok(())
    }

    /// Takes the whole task.
    pub(super) fn take_task(&mut self, task: Task, call: &Call) -> Result<(), Refusal> {
        if !self.is(&task.id, &task.context_id) {
            return Ok(());
        }
        // The end is known from the stream, and the agent is behind.
        if self.has_ended() && !task.status.state.is_terminal() {
            return Ok(());
        }
        // An agent may leave the artifacts out until the end.
        if !task.artifacts.is_empty() {
            self.held = 0;
            self.hold(task.artifacts.iter().map(size_of_artifact).sum(), call)?;
            self.artifacts = ArtifactList::of(task.artifacts);
        }
        if task.status.state == TaskState::Working {
            self.show(task.status.message.as_ref(), None, call);
        }
        self.status = task.status;
        Ok(())
    }

    /// Whether the agent has answered, or the task never changes again.
    pub(super) fn has_ended(&self) -> bool {
        self.reply.is_some() || self.status.state.is_terminal()
    }

    /// Returns what tells one state of the task from another.
    pub(super) fn mark(&self) -> (TaskState, String, usize) {
        let message = self.status.message.as_ref().map(|message| message.message_id.clone());
        (self.status.state, message.unwrap_or_default(), self.held)
    }

    /// Returns the parts of the result with what the agent says about them: those of its reply, of the artifacts, or of the last
    /// message, which comes first if the task failed.
    pub(super) fn into_result(self) -> (Vec<Part>, Option<Json>) {
        if let Some(reply) = self.reply {
            return (reply.parts, reply.metadata);
        }
        let has_failed = self.status.state != TaskState::Completed;
        let last = self.status.message.map(|message| message.parts).unwrap_or_default();
        if has_failed && !last.is_empty() {
            return (last, None);
        }
        let mut all: Vec<(String, Json)> = Vec::new();
        let artifacts = self.artifacts.all;
        for own in artifacts.iter().filter_map(|artifact| artifact.metadata.as_ref()) {
            all.extend(Members::of(own).iter().map(|(name, value)| (name.to_owned(), value.clone())));
        }
        // At once: an agent may send hundreds of thousands of names, and each insertion looks at all before it.
        let metadata: Members = all.into_iter().collect();
        let parts: Vec<Part> = artifacts.into_iter().flat_map(|artifact| artifact.parts).collect();
        match parts.is_empty() {
            true => (last, None),
            false => (parts, (!metadata.is_empty()).then(|| metadata.to_json())),
        }
    }

    /// Whether an event is of this task; the first event names it.
    fn is(&mut self, task: &str, context: &str) -> bool {
        match &self.id {
            Some(own) => own == task,
            None => {
                self.id = Some(task.to_owned());
                self.context = Some(context.to_owned()).filter(|context| !context.is_empty());
                true
            }
        }
    }

    fn take_artifact(&mut self, update: TaskArtifactUpdate, call: &Call) -> Result<(), Refusal> {
        let TaskArtifactUpdate { artifact, append, last_chunk, .. } = update;
        if append || !last_chunk {
            let text = content::text(&artifact.parts);
            if !text.is_empty() {
                call.emit(Event::Chunk { text });
            }
        }
        let (replaced, added) = self.artifacts.take(artifact, append);
        self.held = self.held.saturating_sub(replaced);
        self.hold(added, call)
    }

    fn hold(&mut self, size: usize, call: &Call) -> Result<(), Refusal> {
        self.held = self.held.saturating_add(size);
        match self.held <= MAX_HELD {
            true => Ok(()),
            false => Err(unanswered(call, "the agent's answer is too large")),
        }
    }

    /// Shows the caller what the agent says while it works.
    fn show(&mut self, message: Option<&Message>, metadata: Option<&Json>, call: &Call) {
        let member = |name: &str| metadata.and_then(|metadata| metadata.member(name));
        let text = message.map(|message| content::text(&message.parts)).filter(|text| !text.is_empty());
        if let Some(log) = member(LOG) {
            return call.emit(log_of(&log));
        }
        if let Some(phase) = member(PHASE).and_then(|phase| phase.as_str().map(str::to_owned)) {
            let message = text.filter(|text| *text != phase);
            return call.emit(Event::Status { phase, message });
        }
        let amounts = member(PROGRESS);
        let stated = amounts.as_ref().and_then(|amounts| Amount::of(&amounts.member("progress")?));
        if let Some(message) = message.filter(|_| text.is_some()) {
            let name = format!("{} {}", message.message_id, text.as_deref().unwrap_or_default());
            if std::mem::replace(&mut self.shown.message, name.clone()) == name {
                return;
            }
        }
        self.shown.is_stated |= stated.is_some();
        let progress = match stated {
            Some(stated) => stated,
            None if text.is_none() => return,
            None if self.shown.is_stated => {
                return call.emit(Event::Status { phase: WORKING.to_owned(), message: text });
            }
            None => {
                self.shown.messages += 1;
                Amount::from(f64::from(self.shown.messages))
            }
        };
        // MCP: the value must rise with each notification.
        if self.shown.amount.as_ref().is_some_and(|shown| !progress.is_above(shown)) {
            return;
        }
        self.shown.amount = Some(progress.clone());
        let total = amounts.as_ref().and_then(|amounts| Amount::of(&amounts.member("total")?));
        let gauges = amounts.as_ref().map(gauges_of).unwrap_or_default();
        call.emit(Event::Progress { progress, total, message: text, gauges });
    }
}

fn log_of(log: &Json) -> Event {
    let text = |name: &str| log.get(name).and_then(Value::as_str);
    Event::Log {
        level: text("level").and_then(LogLevel::parse).unwrap_or(LogLevel::Info),
        logger: text("logger").map(str::to_owned),
        data: log.member("data").unwrap_or_else(|| Value::Null.into()),
    }
}

fn gauges_of(amounts: &Json) -> BTreeMap<String, f64> {
    let gauges = amounts.get("gauges").and_then(Value::as_object);
    gauges.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect()
}

/// Appends the parts of a piece; a text continues the text before it. Returns by how much the size has grown.
fn append_parts(known: &mut Vec<Part>, more: Vec<Part>) -> usize {
    let mut added = 0;
    for part in more {
        match (known.last_mut().map(|last| &mut last.content), &part.content) {
            (Some(PartContent::Text(text)), PartContent::Text(next)) => {
                added += next.len();
                text.push_str(next);
            }
            _ => {
                added += size_of_part(&part);
                known.push(part);
            }
        }
    }
    added
}

/// Returns the size of everything that an agent can make large.
fn size_of_artifact(artifact: &Artifact) -> usize {
    let Artifact { artifact_id, name, description, parts, metadata, extensions } = artifact;
    let texts = name.iter().chain(description).chain(extensions).map(|text| text.len());
    // The id is in the index as well.
    LEAST_ARTIFACT
        + 2 * artifact_id.len()
        + texts.sum::<usize>()
        + size_of_text(metadata.as_ref())
        + size_of_parts(parts)
}

fn size_of_parts(parts: &[Part]) -> usize {
    LEAST_HELD + parts.iter().map(size_of_part).sum::<usize>()
}

fn size_of_part(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => text.len(),
        PartContent::Raw(bytes) => bytes.as_str().len(),
        PartContent::Data(value) => value.text().len(),
    };
    let names = part.media_type.iter().chain(&part.filename).map(|name| name.len());
    LEAST_HELD + content + names.sum::<usize>() + size_of_text(part.metadata.as_ref())
}

fn size_of_text(json: Option<&Json>) -> usize {
    json.map_or(0, |json| json.text().len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(text: &str) -> Part {
        PartContent::Text(text.into()).into()
    }

    fn ended(state: TaskState, said: &str, artifacts: &[&str]) -> (Vec<Part>, Option<Json>) {
        let message = Some(Message { parts: vec![text(said)], ..Message::default() });
        let artifact = |name: &&str| Artifact {
            artifact_id: (*name).to_owned(),
            parts: vec![text(name)],
            metadata: Some(Members::from_iter([(*name, json!(1))]).to_json()),
            ..Artifact::default()
        };
        let status = TaskStatus { state, message, timestamp: None };
        let artifacts = ArtifactList::of(artifacts.iter().map(artifact).collect());
        RemoteTask { status, artifacts, ..RemoteTask::default() }.into_result()
    }

    #[test]
    fn pieces_of_a_text_are_one_text() {
        let mut known = vec![text("a")];
        let data = || Part::from(PartContent::Data(Json::part("1")));
        let before = size_of_parts(&known);
        let added = append_parts(&mut known, vec![text("b"), data(), text("c"), text("d")]);
        assert_eq!(known, [text("ab"), data(), text("cd")]);
        assert!(size_of_parts(&known) > 4 * LEAST_HELD);
        assert_eq!(size_of_parts(&known), before + added, "pieces of a text cost their length alone");
    }

    #[test]
    fn everything_that_an_agent_says_of_an_artifact_counts() {
        let long = "x".repeat(1 << 20);
        let metadata = || Some(json!({"x": long}).into());
        let part = Part { metadata: metadata(), ..text("t") };
        for artifact in [
            Artifact { metadata: metadata(), ..Artifact::default() },
            Artifact { description: Some(long.clone()), ..Artifact::default() },
            Artifact { parts: vec![part], ..Artifact::default() },
        ] {
            assert!(size_of_artifact(&artifact) > long.len(), "{:?}", artifact.parts.len());
        }
    }

    #[test]
    fn a_result_is_that_of_the_artifacts_and_a_failure_what_the_agent_says_of_it() {
        let (parts, metadata) = ended(TaskState::Completed, "done", &["a", "b"]);
        assert_eq!(parts, [text("a"), text("b")]);
        assert_eq!(metadata.unwrap().text(), r#"{"a":1,"b":1}"#);
        assert_eq!(ended(TaskState::Completed, "done", &[]), (vec![text("done")], None));
        assert_eq!(ended(TaskState::Failed, "it broke", &["a"]), (vec![text("it broke")], None));
    }

    /// Each name once more would be compared with all others: that took minutes, in which the thread served nobody else.
    #[test]
    fn many_names_of_metadata_are_merged_in_linear_time() {
        let names = || (0..300_000).map(|number| (format!("{number:07}"), Json::part("1")));
        let artifact = |name: &str| Artifact {
            artifact_id: name.into(),
            parts: vec![text(name)],
            metadata: Some(names().collect::<Members>().to_json()),
            ..Artifact::default()
        };
        let status = TaskStatus { state: TaskState::Completed, ..TaskStatus::default() };
        let artifacts = ArtifactList::of(vec![artifact("a"), artifact("b")]);
        let began = std::time::Instant::now();
        let (_, metadata) = RemoteTask { status, artifacts, ..RemoteTask::default() }.into_result();
        assert_eq!(Members::of(&metadata.unwrap()).iter().count(), 300_000);
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
    }

    /// A look at all artifacts for each piece took minutes, in which the thread served nobody else.
    #[test]
    fn pieces_of_many_artifacts_are_appended_in_linear_time() {
        let piece = |number: usize, piece: &str| Artifact {
            artifact_id: format!("{number:07}"),
            parts: vec![text(piece)],
            ..Artifact::default()
        };
        let began = std::time::Instant::now();
        let mut list = ArtifactList::of((0..10).map(|number| piece(number, "a")).collect());
        for number in 0..100_000 {
            list.take(piece(number, "b"), true);
        }
        for number in 0..100_000 {
            assert_eq!(list.take(piece(number, "c"), true), (0, 1));
        }
        let replaced = list.take(piece(10, ""), false);
        assert_eq!(replaced.0, replaced.1 + "bc".len());
        assert_eq!(list.all[0].parts, [text("abc")]);
        assert_eq!(list.all.len(), 100_000);
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
    }

    #[test]
    fn a_log_message_of_this_platform_keeps_its_level_and_its_text() {
        let log = Json::part(r#"{"level":"warning","logger":"l","data":{"n":1.50}}"#);
        let Event::Log { level: LogLevel::Warning, logger: Some(logger), data } = log_of(&log) else {
            panic!("no log")
        };
        assert_eq!((logger.as_str(), data.text()), ("l", r#"{"n":1.50}"#));
        let gauges = gauges_of(&json!({"gauges": {"rows": 3, "name": "x"}}).into());
        assert_eq!(gauges, BTreeMap::from([("rows".to_owned(), 3.0)]));
    }
}
