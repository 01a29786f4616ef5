//! What must hold of a history, whatever was lost while it was made.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use super::{Entry, Promise, What};

/// What does not hold, and of which call, stream or setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub of: String,
    pub rule: Rule,
}

/// Each is broken by what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It had its effect more than once.
    TwiceDone,
    /// Its client was told a result of what was never done.
    NeverDone,
    /// It was done, and nobody had asked for it.
    Unasked,
    /// It was done, and its client was told that nothing was.
    DoneButRefused,
    /// Its outcome was unknown where it must be known, or nothing was lost meanwhile.
    NeedlesslyUnknown,
    /// A client was told a result, and whoever asked later was told that it is unknown, or that there is none.
    Forgotten,
    /// Two were told different results.
    Different,
    /// A client was told that it was cancelled, and it was done later, or whoever asked later was told a result.
    DoneAfterCancel,
    /// An event came twice.
    EventTwice,
    /// Events came out of their order.
    EventUnordered,
    /// An event is missing before one that came, or before the end.
    EventMissing,
    /// What an admin was told is stored is not in force somewhere.
    NotInForce,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.of, self.rule)
    }
}

/// Everything that does not hold, by call, stream or setting.
pub fn judge(entries: &[Entry]) -> Vec<Fault> {
    let mut parts: BTreeMap<&str, Part<'_>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        parts.entry(&entry.of).or_default().0.push((at, &entry.what));
    }
    let health = Health::of(entries);
    let mut faults = Vec::new();
    for (of, part) in parts {
        let rules = [part.effects(), part.answers(&health), part.cancels(), part.events(), part.settings()];
        faults.extend(rules.concat().into_iter().map(|rule| Fault { of: of.to_owned(), rule }));
    }
    faults
}

/// When processes were lost, and when all were there again.
struct Health(Vec<(usize, bool)>);

impl Health {
    fn of(entries: &[Entry]) -> Health {
        let of = |(at, entry): (usize, &Entry)| match entry.what {
            What::Lost => Some((at, false)),
            What::Well => Some((at, true)),
            _ => None,
        };
        Health(entries.iter().enumerate().filter_map(of).collect())
    }

    /// Whether all were there between these places.
    fn is_well(&self, from: usize, to: usize) -> bool {
        let before = self.0.iter().rev().find(|(at, _)| *at < from);
        before.is_none_or(|(_, is_well)| *is_well)
            && self.0.iter().all(|(at, is_well)| *is_well || *at < from || *at > to)
    }
}

/// What is of one call, stream or setting, each with its place in the whole history.
#[derive(Default)]
struct Part<'a>(Vec<(usize, &'a What)>);

impl Part<'_> {
    /// The places of such entries.
    fn places(&self, is_one: impl Fn(&What) -> bool) -> Vec<usize> {
        self.0.iter().filter(|(_, what)| is_one(what)).map(|(at, _)| *at).collect()
    }

    fn has(&self, is_one: impl Fn(&What) -> bool) -> bool {
        self.0.iter().any(|(_, what)| is_one(what))
    }

    fn promise(&self) -> Option<Promise> {
        self.0.iter().find_map(|(_, what)| match what {
            What::Asked { promise, .. } => Some(*promise),
            _ => None,
        })
    }

    /// When a client first knew its result.
    fn first_told(&self) -> Option<usize> {
        self.places(|what| matches!(what, What::Told { .. })).first().copied()
    }

    fn effects(&self) -> Vec<Rule> {
        if self.promise() == Some(Promise::NoneSeen) {
            return Vec::new();
        }
        let done = self.places(|what| *what == What::Happened);
        let mut rules = Vec::new();
        if done.len() > 1 {
            rules.push(Rule::TwiceDone);
        }
        if !done.is_empty() && self.promise().is_none() {
            rules.push(Rule::Unasked);
        }
        if self.first_told().is_some_and(|told| done.iter().all(|at| *at > told)) {
            rules.push(Rule::NeverDone);
        }
        // What may be repeated may have been done by an attempt that says that it was not.
        if self.promise() == Some(Promise::AtMostOnce) && !done.is_empty() && self.were_all_refused() {
            rules.push(Rule::DoneButRefused);
        }
        rules
    }

    /// Everybody who asked was told that nothing was done.
    fn were_all_refused(&self) -> bool {
        let asked = self.places(|what| matches!(what, What::Asked { .. })).len();
        let refused = self.places(|what| matches!(what, What::Refused { .. } | What::Missing { .. })).len();
        asked > 0 && asked == refused
    }

    fn answers(&self, health: &Health) -> Vec<Rule> {
        let mut rules = Vec::new();
        let begun = self.0.first().map_or(0, |(at, _)| *at);
        let needless = |at: usize| self.promise() == Some(Promise::ExactlyOnce) || health.is_well(begun, at);
        if self.places(|what| matches!(what, What::Unknown { .. })).into_iter().any(needless) {
            rules.push(Rule::NeedlesslyUnknown);
        }
        // Who had asked before may have been told otherwise, and says so later.
        let is_forgotten = |what: &What| match what {
            What::Unknown { ask } | What::Missing { ask } => {
                self.first_told().is_some_and(|told| told < *ask)
            }
            _ => false,
        };
        if self.has(is_forgotten) {
            rules.push(Rule::Forgotten);
        }
        let mut answers = self.0.iter().filter_map(|(_, what)| match what {
            What::Told { answer, .. } => Some(answer),
            _ => None,
        });
        if answers.next().is_some_and(|first| answers.any(|answer| answer != first)) {
            rules.push(Rule::Different);
        }
        rules
    }

    fn cancels(&self) -> Vec<Rule> {
        let cancelled = self.places(|what| matches!(what, What::Cancelled { .. })).first().copied();
        let Some(cancelled) = cancelled else { return Vec::new() };
        let is_told = self.has(|what| matches!(what, What::Told { ask, .. } if *ask > cancelled));
        let is_done = self.places(|what| *what == What::Happened).into_iter().any(|at| at > cancelled);
        if is_done || is_told { vec![Rule::DoneAfterCancel] } else { Vec::new() }
    }

    fn events(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut came = BTreeSet::new();
        let mut last = 0;
        for (_, what) in &self.0 {
            match what {
                What::Event { number } if !came.insert(*number) => rules.push(Rule::EventTwice),
                What::Event { number } if *number < last => rules.push(Rule::EventUnordered),
                What::Event { number } => {
                    if *number != last + 1 {
                        rules.push(Rule::EventMissing);
                    }
                    last = *number;
                }
                What::Ended { last: Some(whole) } if *whole != last => rules.push(Rule::EventMissing),
                _ => {}
            }
        }
        rules
    }

    /// In force is what was stored last; what was written and not answered may have been stored at any time.
    fn settings(&self) -> Vec<Rule> {
        let stored = |write: usize| self.places(|what| *what == What::Stored { write }).first().copied();
        let is_stored = |what: &What| matches!(what, What::Written { write, .. } if stored(*write).is_some());
        let last = self.places(is_stored).last().copied();
        let may_be = |wanted: &String| {
            self.has(|what| match what {
                What::Written { write, value } if value == wanted => match stored(*write) {
                    // Side by side with the last one, or it itself.
                    Some(stored) => last.is_none_or(|last| stored > last),
                    None => !self.has(|what| *what == What::NotStored { write: *write }),
                },
                _ => false,
            })
        };
        let found: Vec<&String> = self.0.iter().filter_map(|(_, what)| in_force(what)).collect();
        let is_wrong = last.is_some() && !found.iter().all(|value| may_be(value));
        let differ = found.first().is_some_and(|first| found.iter().any(|value| value != first));
        if is_wrong || differ { vec![Rule::NotInForce] } else { Vec::new() }
    }
}

fn in_force(what: &What) -> Option<&String> {
    match what {
        What::InForce { value, .. } => Some(value),
        _ => None,
    }
}
