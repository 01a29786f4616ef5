//! Summary of a call's events that the log no longer has capacity for.
//!
//! Keeps true: a late reader gets the highest progress, the last statuses and the latest version of every artifact,
//! each at its position and under its number, and can learn that log messages are lost; the size is bounded, whatever a
//! call emits (I-4).

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::LoggedEvent;
use crate::call::event::{Amount, Event, LogLevel};

/// Maximum number of artifacts, as many as a plugin's call may have; the earliest are dropped first.
const MAX_ARTIFACTS: usize = 256;
/// Maximum number of statuses; the earliest are dropped first.
const MAX_STATUSES: usize = 32;

/// Folded events.
#[derive(Clone, Default)]
pub(super) struct Fold {
    /// The events by number.
    events: BTreeMap<u64, LoggedEvent>,
    /// The highest progress with its number.
    progress: Option<(Amount, u64)>,
    statuses: VecDeque<u64>,
    /// Number of the latest event of each URI.
    artifacts: HashMap<String, u64>,
    /// Number of the last log message of each level; the messages themselves are not kept.
    logs: BTreeMap<LogLevel, u64>,
}

impl Fold {
    /// Folds the next event.
    pub(super) fn take(&mut self, logged: LoggedEvent) {
        let number = logged.number;
        match &logged.event {
            Event::Progress { progress, .. } => {
                let is_below = |(highest, _): &(Amount, u64)| highest.is_above(progress);
                if progress.value().is_nan() || self.progress.as_ref().is_some_and(is_below) {
                    return;
                }
                let before = self.progress.replace((progress.clone(), number));
                self.forget(before.map(|(_, before)| before));
            }
            Event::Status { .. } => {
                self.statuses.push_back(number);
                let oldest =
                    if self.statuses.len() > MAX_STATUSES { self.statuses.pop_front() } else { None };
                self.forget(oldest);
            }
            Event::Artifact { uri, .. } => {
                let before = self.artifacts.insert(uri.clone(), number);
                self.forget(before);
                self.bound_artifacts();
            }
            Event::Log { level, .. } => {
                self.logs.insert(*level, number);
                return;
            }
            // Parts of the result come with the result; the call keeps its questions itself.
            Event::Chunk { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::TakenBack { .. }
            | Event::Visited { .. }
            | Event::Resumed
            | Event::Tool(_) => return,
        }
        self.events.insert(number, logged);
    }

    /// Notes that events up to number `last` are lost: log messages of any level may be among them.
    pub(super) fn lose_logs(&mut self, last: u64) {
        self.logs.insert(LogLevel::Emergency, last);
    }

    fn bound_artifacts(&mut self) {
        if self.artifacts.len() <= MAX_ARTIFACTS {
            return;
        }
        let earliest = self.artifacts.iter().min_by_key(|(_, number)| **number);
        if let Some((uri, number)) = earliest.map(|(uri, number)| (uri.clone(), *number)) {
            self.artifacts.remove(&uri);
            self.forget(Some(number));
        }
    }

    fn forget(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.events.remove(&number);
        }
    }

    /// Returns the first event from number `first` on.
    pub(super) fn next_from(&self, first: u64) -> Option<&LoggedEvent> {
        self.events.range(first..).next().map(|(_, logged)| logged)
    }

    /// Returns the highest level of the log messages from number `first` on.
    pub(super) fn logs_from(&self, first: u64) -> Option<LogLevel> {
        let from = |(level, last): (&LogLevel, &u64)| (*last >= first).then_some(*level);
        self.logs.iter().rev().find_map(from)
    }

    /// Returns the highest progress if it came before event number `first`; a reader from there gets a later one
    /// anyway.
    pub(super) fn progress_before(&self, first: u64) -> Option<&Amount> {
        self.progress.as_ref().filter(|(_, number)| *number < first).map(|(highest, _)| highest)
    }

    /// Returns the events, ordered by number.
    pub(super) fn events(&self) -> impl Iterator<Item = &LoggedEvent> {
        self.events.values()
    }

    /// Returns the events, ordered by number.
    pub(super) fn into_events(self) -> Vec<LoggedEvent> {
        self.events.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::event::{ToolStep, ToolUse};

    fn folded(events: Vec<Event>) -> Vec<(u64, Event)> {
        let mut folded = Fold::default();
        for (number, event) in (0..).zip(events) {
            folded.take(LoggedEvent::first(number, 0, event));
        }
        folded.into_events().into_iter().map(|logged| (logged.number, logged.event)).collect()
    }

    fn progress(progress: f64) -> Event {
        Event::Progress { progress: progress.into(), total: None, message: None, gauges: BTreeMap::new() }
    }

    fn artifact(uri: usize, description: &str) -> Event {
        let description = Some(description.to_owned());
        Event::Artifact { uri: uri.to_string(), content_type: None, description }
    }

    fn status(phase: usize) -> Event {
        Event::Status { phase: phase.to_string(), message: None }
    }

    #[test]
    fn what_is_left_is_the_highest_progress_and_every_artifact_as_it_was_shown_last() {
        let asked = Event::Asked { id: "a".into() };
        let chunk = Event::Chunk { text: "c".into() };
        let step = ToolStep::Started { args: String::new() };
        let tool_use = Event::Tool(ToolUse { id: "u".into(), name: "t".into(), step });
        let events = vec![
            artifact(1, "first"),
            progress(7.0),
            artifact(2, "other"),
            progress(3.0),
            asked,
            artifact(1, "again"),
            chunk,
            Event::Resumed,
            tool_use,
        ];
        let left = [(1, progress(7.0)), (2, artifact(2, "other")), (5, artifact(1, "again"))];
        assert_eq!(folded(events), left);
    }

    #[test]
    fn statuses_and_artifacts_are_bounded_and_the_last_stay() {
        let left = folded((0..MAX_STATUSES + 5).map(status).collect());
        assert_eq!(left.len(), MAX_STATUSES);
        assert_eq!(left.first(), Some(&(5, status(5))));
        let left = folded((0..MAX_ARTIFACTS + 5).map(|uri| artifact(uri, "")).collect());
        assert_eq!(left.len(), MAX_ARTIFACTS);
        assert_eq!(left.first(), Some(&(5, artifact(5, ""))));
    }
}
