//! External reasons that end calls running on this gateway: a dead token, a server that is switched off.
//!
//! Owns: the evaluation of each running call when a snapshot comes into force, including mirrors of calls at other
//! gateways, and the end of a call with its token.
//! Keeps true: no call started under an older snapshot escapes a newer one, and calls with dead tokens do not wait
//! until the others were evaluated; one task evaluates, however fast snapshots come, by the newest; a call without
//! attached clients does not end when its token expires, because its caller may return with a fresh one, but it does
//! end with a revocation.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use asp_call::call::Call;
use asp_call::call::outcome::Withdrawal;
use asp_call::call::registry::CallRegistry;
use asp_edge::Caller;
use asp_snapshot::Snapshot;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use uuid::Uuid;

use super::entitlement::{self, HiddenPart, ServerView};
use super::passes::Passes;

/// Maximum number of calls of other gateways that are mirrored here, and of one org.
const MIRRORS: usize = 4_000;
const MIRRORS_OF_ORG: usize = 1_000;
/// Number of calls that are evaluated before other tasks get the thread: each is matched to its org's policy again.
const AT_A_TIME: usize = 16;
/// Maximum time for a mirror to read the newest events, as long as a gateway waits for a store.
const REFRESH_WITHIN: Duration = Duration::from_secs(2);

/// Request to a mirror to read the newest events; answered once it has.
pub(super) type RefreshRequest = oneshot::Sender<()>;

/// A mirror of a call at another gateway.
struct MirrorEntry {
    call: Weak<Call>,
    /// Channel to the task that follows the call.
    requests: mpsc::Sender<RefreshRequest>,
}

impl MirrorEntry {
    /// Returns the mirror, unless it was withdrawn or nothing keeps it up to date until its end.
    fn live(&self) -> Option<Arc<Call>> {
        let is_followed = |mirror: &Arc<Call>| !self.requests.is_closed() || mirror.outcome().is_some();
        self.call.upgrade().filter(|mirror| mirror.withdrawal().is_none()).filter(is_followed)
    }
}

/// The running calls of one gateway, evaluated by the snapshot in force.
pub struct RunningCalls {
    registry: Arc<CallRegistry>,
    /// Mirrors of calls at other gateways.
    mirrors: Mutex<HashMap<Uuid, MirrorEntry>>,
    /// The snapshot in force; set before the calls are evaluated by it.
    snapshot: ArcSwapOption<Snapshot>,
    evaluations: Passes,
}

impl RunningCalls {
    pub fn of(registry: Arc<CallRegistry>) -> RunningCalls {
        RunningCalls {
            registry,
            mirrors: Mutex::default(),
            snapshot: ArcSwapOption::empty(),
            evaluations: Passes::default(),
        }
    }

    /// Adds a call that was admitted under `evaluated`; returns the reason if a snapshot since then denies it to its
    /// caller.
    pub(crate) fn enter(&self, call: &Arc<Call>, evaluated: &Arc<Snapshot>) -> Option<Withdrawal> {
        self.registry.enter(call);
        // A snapshot that came into force since has evaluated only the calls that were in the table then. Its revision
        // may be the same: revocations come into force before the rest of their snapshot.
        let snapshot = self.snapshot.load_full().filter(|snapshot| !Arc::ptr_eq(snapshot, evaluated))?;
        evaluate(call, &snapshot);
        call.withdrawal()
    }

    /// Returns the existing mirror of a call, unless it was withdrawn from its followers, who may be back with a fresh
    /// token.
    pub(crate) fn mirror(&self, id: Uuid) -> Option<Arc<Call>> {
        self.mirrors.lock().get(&id).and_then(MirrorEntry::live)
    }

    /// Whether the call is a mirror of one at another gateway.
    pub(crate) fn is_mirror(&self, call: &Call) -> bool {
        self.requests_of(call).is_some()
    }

    /// Returns the channel to the task that keeps a mirror up to date; `None` if the call is no mirror.
    fn requests_of(&self, call: &Call) -> Option<mpsc::Sender<RefreshRequest>> {
        let mirrors = self.mirrors.lock();
        let entry = mirrors.get(&call.id).filter(|entry| std::ptr::eq(entry.call.as_ptr(), call))?;
        Some(entry.requests.clone())
    }

    /// Returns once a mirror has all events that other gateways could read before; false if it cannot read them.
    pub(crate) async fn refresh(&self, mirror: &Call) -> bool {
        let Some(requests) = self.requests_of(mirror) else { return false };
        let (done, refreshed) = oneshot::channel();
        let refreshing = async { requests.send(done).await.is_ok() && refreshed.await.is_ok() };
        // One that has ended has all events.
        timeout(REFRESH_WITHIN, refreshing).await.unwrap_or(false) || mirror.outcome().is_some()
    }

    /// Adds a mirror of a call, evaluated by the snapshot in force. Returns the mirror to follow: another request may
    /// have been faster. `None` if there are too many. `requests` lead to the task that follows the call.
    pub(super) fn follow(
        &self,
        mirror: Arc<Call>,
        requests: mpsc::Sender<RefreshRequest>,
    ) -> Option<Arc<Call>> {
        let followed = {
            let mut mirrors = self.mirrors.lock();
            if let Some(known) = mirrors.get(&mirror.id).and_then(MirrorEntry::live) {
                return Some(known);
            }
            mirrors.retain(|_, mirror| mirror.call.strong_count() > 0);
            let of_org = |other: &MirrorEntry| {
                other.call.upgrade().is_some_and(|other| other.caller.org == mirror.caller.org)
            };
            let is_full = mirrors.len() >= MIRRORS
                || (mirrors.len() >= MIRRORS_OF_ORG
                    && mirrors.values().filter(|one| of_org(one)).count() >= MIRRORS_OF_ORG);
            if is_full {
                return None;
            }
            mirrors.insert(mirror.id, MirrorEntry { call: Arc::downgrade(&mirror), requests });
            mirror
        };
        if let Some(snapshot) = self.snapshot.load_full() {
            evaluate(&followed, &snapshot);
        }
        Some(followed)
    }

    /// Notes that the call's principal is back with a token that was evaluated before, and evaluates the call by the
    /// snapshot in force.
    pub fn attend(&self, call: &Call, caller: &Arc<Caller>) {
        call.authority.present(caller);
        if let Some(snapshot) = self.snapshot.load_full() {
            evaluate(call, &snapshot);
        }
    }

    /// Whether `caller` can see the call's primitive, by the snapshot in force.
    pub(crate) fn shows(&self, call: &Call, caller: &Caller) -> bool {
        self.snapshot.load_full().is_some_and(|snapshot| hidden(call, caller, &snapshot).is_none())
    }

    /// Returns the snapshot in force.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.load_full()
    }

    /// Puts a snapshot in force: every running call is evaluated by it or by a newer one, in a separate task.
    pub fn evaluate_all(self: &Arc<Self>, snapshot: &Arc<Snapshot>) {
        self.snapshot.store(Some(snapshot.clone()));
        // Calls that start from here on are evaluated by it.
        if self.all().is_empty() {
            return;
        }
        let Some(mut pass) = self.evaluations.request() else { return };
        let running = self.clone();
        tokio::spawn(async move {
            while pass.begin() {
                running.evaluate_each().await;
            }
        });
    }

    /// Evaluates the calls that run now. Another snapshot may come during the pass: calls with dead tokens end at once
    /// under each, and the calls evaluated before are evaluated by it in the pass that was requested with it.
    async fn evaluate_each(&self) {
        let calls = self.all();
        let mut last: Option<Arc<Snapshot>> = None;
        for some in calls.chunks(AT_A_TIME) {
            let Some(snapshot) = self.snapshot.load_full() else { return };
            if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &snapshot)) {
                self.end_revoked(&snapshot);
            }
            some.iter().for_each(|call| evaluate(call, &snapshot));
            last = Some(snapshot);
            tokio::task::yield_now().await;
        }
    }

    /// Ends calls with dead tokens, before the others are evaluated: these cost least to find and most to miss.
    fn end_revoked(&self, snapshot: &Snapshot) {
        for call in self.all() {
            if let Some(notice) = snapshot.revocation(&call.authority.caller()) {
                withdraw(&call, Withdrawal::of_revocation(notice));
            }
        }
    }

    /// Returns the calls that run here and the mirrors.
    fn all(&self) -> Vec<Arc<Call>> {
        let mut calls = self.registry.running();
        calls.extend(self.mirrors.lock().values().filter_map(|mirror| mirror.call.upgrade()));
        calls
    }
}

/// Ends the call if its caller could no longer start it.
fn evaluate(call: &Call, snapshot: &Snapshot) {
    let caller = call.authority.caller();
    if let Some(notice) = snapshot.revocation(&caller) {
        return withdraw(call, Withdrawal::of_revocation(notice));
    }
    let is_hidden = hidden(call, &caller, snapshot);
    if is_hidden.is_some()
        && let Some(server) = snapshot.server(&call.server.message.name)
        && let Some(rule) = entitlement::denial(snapshot, server, &caller, &call.entry, call.protocol)
    {
        call.ruling.hides(rule);
    }
    match is_hidden {
        Some(HiddenPart::Server) => withdraw(call, Withdrawal::ServerDisabled),
        Some(HiddenPart::Primitive) => withdraw(call, Withdrawal::Denied),
        None => {}
    }
}

/// Returns the part of the call's server and primitive that is hidden from `caller`.
fn hidden(call: &Call, caller: &Caller, snapshot: &Snapshot) -> Option<HiddenPart> {
    match snapshot.server(&call.server.message.name) {
        Some(server) => ServerView::of(snapshot, server, caller, call.protocol).hidden(&call.entry),
        None => Some(HiddenPart::Server),
    }
}

fn withdraw(call: &Call, why: Withdrawal) {
    // The end of a call that runs here is logged with its outcome, that of a mirror is not.
    if call.withdraw(why.clone()) && call.ownership.passed_on.is_set() {
        tracing::info!(
            call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, reason = why.reason().as_str(),
            %why,
            "call at another gateway is withdrawn from its followers here"
        );
    }
}

/// Ends a mirror if its follower's token has expired.
pub(crate) fn end_if_expired(call: &Call) {
    if call.authority.has_expired() {
        withdraw(call, Withdrawal::TokenExpired);
    }
}

/// Ends the call with its token; never returns otherwise.
pub(crate) async fn ends_with_its_token(call: &Call) -> Infallible {
    call.authority.expired(call.deadline()).await;
    withdraw(call, Withdrawal::TokenExpired);
    std::future::pending().await
}
