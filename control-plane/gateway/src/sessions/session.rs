//! One legacy session: what was negotiated, what runs in it and what it was asked.
//!
//! Keeps true: it refers to calls and holds none, so that neither a result nor a question outlives its call here.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use asp_snapshot::mcp_revision::Revision;
use asp_store::records::OwnerId;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::call::event::LogLevel;
use crate::call::{Call, ClientAbilities};

/// Most requests of a session that are remembered as running, most questions that wait for it and most streams
/// of calls.
const MAX_TRACKED: usize = 1024;

/// How many remembered requests make a look for ended ones worth it.
const PRUNE_AT: usize = 32;

/// What `initialize` negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub revision: Revision,
    pub abilities: ClientAbilities,
}

/// When and where a session was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// Unix seconds.
    pub at: u64,
    /// The gateway, where there are several.
    pub by: Option<OwnerId>,
}

/// A session on its owner.
pub struct Session {
    sid: Option<[u8; 16]>,
    made: Made,
    pub profile: Profile,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log_level: Option<LogLevel>,
    /// By the request's JSON-RPC id as JSON text; `None` while the request is being dispatched.
    calls: HashMap<String, Option<Weak<Call>>>,
    /// By the id of our request: the call and the id of its question.
    questions: HashMap<String, (Weak<Call>, String)>,
    /// The streams of calls, each by its call.
    streams: HashMap<Uuid, Stream>,
    /// How many streams there were.
    opened: u64,
}

struct Stream {
    number: u64,
    taken_over: CancellationToken,
}

/// The stream of a call, until this is dropped.
pub struct Following {
    session: Arc<Session>,
    call: Uuid,
    number: u64,
    taken_over: CancellationToken,
}

impl Following {
    /// Resolves when another stream of the call has opened.
    pub async fn taken_over(&self) {
        self.taken_over.cancelled().await;
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        if state.streams.get(&self.call).is_some_and(|stream| stream.number == self.number) {
            state.streams.remove(&self.call);
        }
    }
}

impl Session {
    /// A session that lasts beyond its request.
    pub fn kept(sid: [u8; 16], profile: Profile, made: Made) -> Session {
        Session { sid: Some(sid), made, profile, state: Mutex::default() }
    }

    /// A request without a session is a session of its own.
    pub fn ephemeral(profile: Profile) -> Session {
        Session { sid: None, made: Made::default(), profile, state: Mutex::default() }
    }

    pub fn is_kept(&self) -> bool {
        self.sid.is_some()
    }

    /// Of a session that is kept; zeros otherwise.
    pub(crate) fn sid(&self) -> [u8; 16] {
        self.sid.unwrap_or_default()
    }

    pub(super) fn made(&self) -> Made {
        self.made
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

    /// Takes a request id for a new request; false while an earlier one with it is still running (ADR 7).
    /// Ended by [`Session::track`] or [`Session::free`].
    pub fn reserve(&self, id: &str) -> bool {
        let mut state = self.state.lock();
        if state.calls.get(id).is_some_and(|call| is_running(call.as_ref())) {
            return false;
        }
        if state.calls.len() >= PRUNE_AT {
            state.calls.retain(|_, call| is_running(call.as_ref()));
        }
        // A session with that many running requests cannot cancel the ones beyond by their ids.
        if state.calls.len() < MAX_TRACKED {
            state.calls.insert(id.to_owned(), None);
        }
        true
    }

    /// The request became a call, which can be cancelled by the id.
    pub fn track(&self, id: &str, call: &Arc<Call>) {
        if let Some(slot) = self.state.lock().calls.get_mut(id) {
            *slot = Some(Arc::downgrade(call));
        }
    }

    /// The request was answered without a call.
    pub fn free(&self, id: &str) {
        self.state.lock().calls.remove(id);
    }

    pub fn tracked(&self, id: &str) -> Option<Arc<Call>> {
        self.state.lock().calls.get(id)?.as_ref()?.upgrade()
    }

    pub fn put_question(&self, id: &str, call: &Arc<Call>, question: &str) {
        let mut state = self.state.lock();
        if state.questions.len() >= MAX_TRACKED {
            state.questions.retain(|_, (call, _)| is_running(Some(call)));
        }
        if state.questions.len() < MAX_TRACKED {
            state.questions.insert(id.to_owned(), (Arc::downgrade(call), question.to_owned()));
        }
    }

    /// The call and the question of a request of ours that the client has not answered.
    pub fn question(&self, id: &str) -> Option<(Arc<Call>, String)> {
        let state = self.state.lock();
        let (call, question) = state.questions.get(id)?;
        Some((call.upgrade()?, question.clone()))
    }

    /// Forgets a request of ours that was answered.
    pub fn forget_question(&self, id: &str) {
        self.state.lock().questions.remove(id);
    }

    /// Forgets a question that this session was asked and the call does not wait for any more; the id of our request.
    pub fn take_stale_question(&self, call: &Arc<Call>) -> Option<String> {
        let mut state = self.state.lock();
        let is_stale = |(of, question): &(Weak<Call>, String)| {
            std::ptr::eq(of.as_ptr(), Arc::as_ptr(call)) && call.questions.find(question).is_none()
        };
        let id = state.questions.iter().find(|(_, asked)| is_stale(asked)).map(|(id, _)| id.clone())?;
        state.questions.remove(&id);
        Some(id)
    }

    /// A stream of a call opens, which ends the one before (2025-11-25 transports, multiple connections: a message goes
    /// to one stream). Beyond the bound none is remembered, and both stay.
    pub fn follow(self: &Arc<Self>, call: Uuid) -> Following {
        let taken_over = CancellationToken::new();
        let mut state = self.state.lock();
        state.opened += 1;
        let number = state.opened;
        if state.streams.len() < MAX_TRACKED || state.streams.contains_key(&call) {
            let stream = Stream { number, taken_over: taken_over.clone() };
            if let Some(before) = state.streams.insert(call, stream) {
                before.taken_over.cancel();
            }
        }
        drop(state);
        Following { session: self.clone(), call, number, taken_over }
    }

    pub(super) fn cancel_all(&self) {
        let calls: Vec<_> = self.state.lock().calls.values().flatten().filter_map(Weak::upgrade).collect();
        for call in calls {
            call.cancel();
        }
    }
}

/// A request that is being dispatched counts as running.
fn is_running(call: Option<&Weak<Call>>) -> bool {
    call.is_none_or(|call| call.upgrade().is_some_and(|call| call.outcome().is_none()))
}
