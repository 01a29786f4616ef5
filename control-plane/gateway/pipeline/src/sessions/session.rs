//! One legacy session: what was negotiated, its running requests, and its open questions.
//!
//! Keeps true: it refers to calls weakly, so that no result or question outlives its call here.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use asp_call::call::event::LogLevel;
use asp_call::call::{Call, ClientAbilities, principal};
use asp_call::quota_table::Owner;
use asp_edge::Caller;
use asp_proto::mcp_revision::Revision;
use asp_store::records::OwnerId;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Maximum number of running requests, of open questions, and of call streams that a session remembers.
const MAX_TRACKED: usize = 1024;

/// Number of remembered requests from which ended ones are removed.
const PRUNE_AT: usize = 32;

/// Result of the negotiation in `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub revision: Revision,
    pub abilities: ClientAbilities,
}

/// Time and place of a session's creation.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionOrigin {
    /// Creation time in Unix seconds.
    pub at: u64,
    /// The creating gateway, if there are several.
    pub by: Option<OwnerId>,
}

/// A session at a gateway.
pub struct LegacySession {
    sid: Option<[u8; 16]>,
    made: SessionOrigin,
    pub profile: Profile,
    /// Set for a session that is kept, before anybody finds it.
    subject: OnceLock<SessionSubject>,
    state: Mutex<State>,
}

/// Caller and server of a session, for admins.
#[derive(Clone)]
pub struct SessionSubject {
    pub org: String,
    pub user: String,
    /// Name of the user's issuer in the snapshot.
    pub issuer: String,
    pub server: String,
    pub(super) owner: Owner,
}

impl SessionSubject {
    pub(super) fn of(caller: &Caller, server: &str) -> SessionSubject {
        SessionSubject {
            org: caller.org.clone(),
            user: caller.user.clone(),
            issuer: caller.issuer.clone(),
            server: server.to_owned(),
            owner: principal::owner(caller),
        }
    }
}

#[derive(Default)]
struct State {
    log_level: Option<LogLevel>,
    /// Running calls by the request's JSON-RPC id as JSON text; `None` while the request is being dispatched.
    calls: HashMap<String, Option<Weak<Call>>>,
    /// Call and question id by the id of the server's request.
    questions: HashMap<String, (Weak<Call>, String)>,
    /// Current stream of each call.
    streams: HashMap<Uuid, Stream>,
    /// Number of streams opened so far.
    opened: u64,
}

struct Stream {
    number: u64,
    taken_over: CancellationToken,
}

/// The stream of a call, until this is dropped.
pub struct OpenStream {
    session: Arc<LegacySession>,
    call: Uuid,
    number: u64,
    taken_over: CancellationToken,
}

impl OpenStream {
    /// Resolves when another stream of the call has opened.
    pub async fn taken_over(&self) {
        self.taken_over.cancelled().await;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        if state.streams.get(&self.call).is_some_and(|stream| stream.number == self.number) {
            state.streams.remove(&self.call);
        }
    }
}

impl LegacySession {
    /// Creates a session that lasts beyond its request.
    pub fn persistent(sid: [u8; 16], profile: Profile, made: SessionOrigin) -> LegacySession {
        LegacySession { sid: Some(sid), made, profile, subject: OnceLock::new(), state: Mutex::default() }
    }

    /// Creates the session of a request without one.
    pub fn ephemeral(profile: Profile) -> LegacySession {
        LegacySession {
            sid: None,
            made: SessionOrigin::default(),
            profile,
            subject: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Notes whose session this is. Only the first subject counts.
    pub(super) fn belongs_to(self, subject: SessionSubject) -> LegacySession {
        let _ = self.subject.set(subject);
        self
    }

    /// Returns the caller and the server of a session that is kept.
    pub fn subject(&self) -> Option<&SessionSubject> {
        self.subject.get()
    }

    /// Returns the time of its creation in Unix seconds.
    pub fn created_at(&self) -> u64 {
        self.made.at
    }

    pub fn is_persistent(&self) -> bool {
        self.sid.is_some()
    }

    /// Returns the id of a kept session; zeros otherwise.
    pub fn sid(&self) -> [u8; 16] {
        self.sid.unwrap_or_default()
    }

    pub(super) fn origin(&self) -> SessionOrigin {
        self.made
    }

    /// Returns the session's name in ledger keys and audit; empty if it is not kept.
    pub fn key(&self) -> String {
        self.sid.map(|sid| uuid::Uuid::from_bytes(sid).simple().to_string()).unwrap_or_default()
    }

    /// Returns the lowest level of log messages this client gets, by default `info`.
    pub fn log_level(&self) -> LogLevel {
        self.state.lock().log_level.unwrap_or(LogLevel::Info)
    }

    pub fn set_log_level(&self, level: LogLevel) {
        self.state.lock().log_level = Some(level);
    }

    /// Reserves a request id; false while an earlier request with it is still running (ADR 7). Completed by
    /// [`LegacySession::track`] or released by [`LegacySession::free`].
    pub fn reserve(&self, id: &str) -> bool {
        let mut state = self.state.lock();
        if state.calls.get(id).is_some_and(|call| is_running(call.as_ref())) {
            return false;
        }
        if state.calls.len() >= PRUNE_AT {
            state.calls.retain(|_, call| is_running(call.as_ref()));
        }
        // Requests beyond the limit run but cannot be cancelled by id.
        if state.calls.len() < MAX_TRACKED {
            state.calls.insert(id.to_owned(), None);
        }
        true
    }

    /// Completes a reservation with the request's call, which can be cancelled by the id.
    pub fn track(&self, id: &str, call: &Arc<Call>) {
        if let Some(slot) = self.state.lock().calls.get_mut(id) {
            *slot = Some(Arc::downgrade(call));
        }
    }

    /// Releases the reservation of a request answered without a call.
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

    /// Returns the call and the question of a server request that the client has not answered.
    pub fn question(&self, id: &str) -> Option<(Arc<Call>, String)> {
        let state = self.state.lock();
        let (call, question) = state.questions.get(id)?;
        Some((call.upgrade()?, question.clone()))
    }

    /// Forgets a server request that was answered.
    pub fn forget_question(&self, id: &str) {
        self.state.lock().questions.remove(id);
    }

    /// Forgets a question that the call does not wait for any more; returns the id of its server request.
    pub fn take_stale_question(&self, call: &Arc<Call>) -> Option<String> {
        let mut state = self.state.lock();
        let is_stale = |(of, question): &(Weak<Call>, String)| {
            std::ptr::eq(of.as_ptr(), Arc::as_ptr(call)) && call.questions.find(question).is_none()
        };
        let id = state.questions.iter().find(|(_, asked)| is_stale(asked)).map(|(id, _)| id.clone())?;
        state.questions.remove(&id);
        Some(id)
    }

    /// Opens a stream of a call and ends the previous one (2025-11-25 transports, multiple connections: a message goes
    /// to one stream). Beyond the limit streams are not remembered, and both stay open.
    pub fn follow(self: &Arc<Self>, call: Uuid) -> OpenStream {
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
        OpenStream { session: self.clone(), call, number, taken_over }
    }

    pub(super) fn cancel_all(&self) {
        let calls: Vec<_> = self.state.lock().calls.values().flatten().filter_map(Weak::upgrade).collect();
        for call in calls {
            call.cancel();
        }
    }
}

/// Whether the call runs; a request being dispatched counts as running.
fn is_running(call: Option<&Weak<Call>>) -> bool {
    call.is_none_or(|call| call.upgrade().is_some_and(|call| call.outcome().is_none()))
}
