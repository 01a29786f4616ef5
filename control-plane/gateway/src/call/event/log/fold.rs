//! What of a call's events still matters when the log has no room for the events themselves.
//!
//! Keeps true: whoever comes late is shown the highest progress, the last statuses and every artifact as it was shown
//! last, each in its place and under its number, and can be told that log messages are gone; it is bounded, whatever a
//! call says (I-4).

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::Logged;
use crate::call::event::{Amount, Event, LogLevel};

/// Most artifacts, as many as a plugin's call may have; the earliest go first.
const MAX_ARTIFACTS: usize = 256;
/// Most statuses: the last ones.
const MAX_STATUSES: usize = 32;

/// Folded events.
#[derive(Clone, Default)]
pub(super) struct Folded {
    /// By their numbers.
    events: BTreeMap<u64, Logged>,
    /// The number of the highest progress.
    progress: Option<(Amount, u64)>,
    statuses: VecDeque<u64>,
    /// By their URIs.
    artifacts: HashMap<String, u64>,
    /// The last log message of each level, of which nothing else is kept.
    logs: BTreeMap<LogLevel, u64>,
}

impl Folded {
    /// Folds one more event, the one after those it has.
    pub(super) fn take(&mut self, logged: Logged) {
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
            // A part of the result comes with it; questions are the call's own to keep.
            Event::Chunk { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::TakenBack { .. }
            | Event::Visited { .. }
            | Event::Resumed => return,
        }
        self.events.insert(number, logged);
    }

    /// Of the events up to number `last` some are gone unseen: log messages of any level may be among them.
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

    /// The first event from number `first` on.
    pub(super) fn next_from(&self, first: u64) -> Option<&Logged> {
        self.events.range(first..).next().map(|(_, logged)| logged)
    }

    /// The highest level of the log messages from number `first` on.
    pub(super) fn logs_from(&self, first: u64) -> Option<LogLevel> {
        let from = |(level, last): (&LogLevel, &u64)| (*last >= first).then_some(*level);
        self.logs.iter().rev().find_map(from)
    }

    /// The highest progress, where it came before event number `first`: a reader from there is shown it otherwise.
    pub(super) fn progress_before(&self, first: u64) -> Option<&Amount> {
        self.progress.as_ref().filter(|(_, number)| *number < first).map(|(highest, _)| highest)
    }

    /// In the order of their numbers.
    pub(super) fn events(&self) -> impl Iterator<Item = &Logged> {
        self.events.values()
    }

    /// The same.
    pub(super) fn into_events(self) -> Vec<Logged> {
        self.events.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(events: Vec<Event>) -> Vec<(u64, Event)> {
        let mut folded = Folded::default();
        for (number, event) in (0..).zip(events) {
            folded.take(Logged { number, at_ms: 0, event });
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
        let events = vec![
            artifact(1, "first"),
            progress(7.0),
            artifact(2, "other"),
            progress(3.0),
            asked,
            artifact(1, "again"),
            chunk,
            Event::Resumed,
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
