//! One legacy session: what was negotiated, what runs in it and what it was asked.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::call::event::LogLevel;
use crate::call::{Call, ClientAbilities};
use crate::faces::mcp::revision::Revision;

/// Most requests of a session that are remembered as running, and most questions that wait for it.
const MAX_TRACKED: usize = 1024;

/// What `initialize` negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub revision: Revision,
    pub abilities: ClientAbilities,
}

/// A session on its owner.
pub struct Session {
    sid: Option<[u8; 16]>,
    pub profile: Profile,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log_level: Option<LogLevel>,
    /// By the request's JSON-RPC id as JSON text.
    calls: HashMap<String, Arc<Call>>,
    /// By the id of our request: the call and the id of its question.
    questions: HashMap<String, (Arc<Call>, String)>,
}

impl Session {
    /// A session that lasts beyond its request.
    pub fn kept(sid: [u8; 16], profile: Profile) -> Session {
        Session { sid: Some(sid), profile, state: Mutex::default() }
    }

    /// A request without a session is a session of its own.
    pub fn ephemeral(profile: Profile) -> Session {
        Session { sid: None, profile, state: Mutex::default() }
    }

    pub fn is_kept(&self) -> bool {
        self.sid.is_some()
    }

    pub(super) fn sid(&self) -> [u8; 16] {
        self.sid.unwrap_or_default()
    }

    /// The session's name in ledger keys and audit; empty when it is not kept.
    pub fn key(&self) -> String {
        self.sid.map(|sid| uuid::Uuid::from_bytes(sid).simple().to_string()).unwrap_or_default()
    }

    /// The lowest level of log messages this client gets; until it says otherwise, `info`.
    pub fn log_level(&self) -> LogLevel {
        self.state.lock().log_level.unwrap_or(LogLevel::Info)
    }

    pub fn set_log_level(&self, level: LogLevel) {
        self.state.lock().log_level = Some(level);
    }

    /// Remembers a running call, so that it can be cancelled by its request id.
    pub fn track(&self, id: &str, call: &Arc<Call>) {
        let mut state = self.state.lock();
        if state.calls.len() >= MAX_TRACKED {
            state.calls.retain(|_, call| call.outcome().is_none());
        }
        // A call refused as a duplicate must not hide the one that runs.
        let running = state.calls.get(id).is_some_and(|call| call.outcome().is_none());
        if !running && state.calls.len() < MAX_TRACKED {
            state.calls.insert(id.to_owned(), call.clone());
        }
    }

    pub fn tracked(&self, id: &str) -> Option<Arc<Call>> {
        self.state.lock().calls.get(id).cloned()
    }

    pub fn put_question(&self, id: &str, call: &Arc<Call>, question: &str) {
        let mut state = self.state.lock();
        if state.questions.len() >= MAX_TRACKED {
            state.questions.retain(|_, (call, _)| call.outcome().is_none());
        }
        if state.questions.len() < MAX_TRACKED {
            state.questions.insert(id.to_owned(), (call.clone(), question.to_owned()));
        }
    }

    pub fn take_question(&self, id: &str) -> Option<(Arc<Call>, String)> {
        self.state.lock().questions.remove(id)
    }

    pub(super) fn cancel_all(&self) {
        let calls: Vec<_> = self.state.lock().calls.values().cloned().collect();
        for call in calls {
            call.cancel();
        }
    }
}
