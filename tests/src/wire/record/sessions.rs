//! Which revision each session has agreed on, and which requests its ids are of.
//!
//! Keeps true: bounded in sessions and in ids of each; the oldest go first.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::Sender;

/// Most sessions remembered.
const SESSIONS: usize = 20_000;
/// Most requests of a session remembered.
const REQUESTS: usize = 64;

#[derive(Default)]
pub(super) struct Sessions {
    known: HashMap<String, Session>,
    oldest: VecDeque<String>,
}

struct Session {
    revision: &'static str,
    asked: VecDeque<(Sender, Value, String)>,
}

impl Sessions {
    pub(super) fn open(&mut self, id: &str, revision: &'static str) {
        if id.is_empty() {
            return;
        }
        if self.oldest.len() >= SESSIONS
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.oldest.push_back(id.to_owned());
        self.known.insert(id.to_owned(), Session { revision, asked: VecDeque::new() });
    }

    pub(super) fn revision(&self, id: &str) -> Option<&'static str> {
        self.known.get(id).map(|session| session.revision)
    }

    /// A request of `sender` in a session.
    pub(super) fn ask(&mut self, session: &str, sender: Sender, id: &Value, method: &str) {
        let Some(session) = self.known.get_mut(session) else { return };
        if session.asked.len() >= REQUESTS {
            session.asked.pop_front();
        }
        session.asked.push_back((sender, id.clone(), method.to_owned()));
    }

    /// The method of the request of `sender` with this id, the last one of them.
    pub(super) fn asked(&self, session: &str, sender: Sender, id: &Value) -> Option<String> {
        let asked = &self.known.get(session)?.asked;
        let found = asked.iter().rev().find(|(who, known, _)| *who == sender && known == id);
        found.map(|(_, _, method)| method.clone())
    }
}
