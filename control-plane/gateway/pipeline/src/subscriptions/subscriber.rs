//! One subscriber to changes: a legacy session with its streams, or one `subscriptions/listen`.
//!
//! Keeps true: pending notices are a mark for each list and each subscribed resource, so that any number of changes
//! takes the memory of one; every notice goes to one stream; marks wait for a session without a stream and are
//! delivered to its next one; a client that resumes a stream gets the notices after its last event again, and one of
//! every list if its stream is unknown here. Bounds: resources by number and by the length of their URIs, streams by
//! number.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use asp_call::execution::SubscriptionGuard;
use asp_edge::Caller;
use asp_proto::mcp_revision::Revision;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::event_id::ChangesPosition;

/// Maximum number of resources one subscriber watches.
pub const MAX_RESOURCES: usize = 1000;
/// Maximum length of all their URIs together, in bytes: as much as may be pending for one client.
pub const MAX_TEXT: usize = 48 * 1024;
/// Memory that a watched resource takes besides its URI, including its evaluation, in bytes.
const EACH: usize = 256;
/// Maximum number of concurrent streams of one session. Another one ends the oldest, whose connection may be dead
/// without notice.
const MAX_STREAMS: usize = 4;

/// A list whose changes clients are notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifiedList {
    Tools,
    Prompts,
    /// Resources, including templates.
    Resources,
}

impl NotifiedList {
    pub const ALL: [NotifiedList; 3] = [NotifiedList::Tools, NotifiedList::Prompts, NotifiedList::Resources];
}

/// A digest of each list, in the order of [`NotifiedList::ALL`].
pub type ListDigests = [u64; 3];

/// A notification of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Changed(NotifiedList),
    /// URI of a changed resource.
    Updated(String),
}

/// The fixed properties of a subscriber.
#[derive(Clone, Debug)]
pub struct Profile {
    pub server: String,
    pub revision: Revision,
    /// Lists it is notified of, in the order of [`NotifiedList::ALL`].
    pub wants: [bool; 3],
    /// Whether it outlives its stream, as a session does.
    pub lasts: bool,
}

/// The state by which a subscriber was evaluated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// Revision of the snapshot.
    pub(super) revision: u64,
    /// See [`asp_call::execution::Backends::offers_changed`].
    pub(super) offers: u64,
}

/// A client's request to resume a stream.
#[derive(Clone, Copy, Debug)]
pub struct ResumedStream {
    pub from: ChangesPosition,
    /// Lists to report as changed if the stream is unknown here, in the order of [`NotifiedList::ALL`].
    pub lists: [bool; 3],
}

/// One subscriber to changes.
pub struct Subscriber {
    pub(super) id: [u8; 16],
    /// Random number that distinguishes subscribers with the same id, here or at other gateways.
    own: u32,
    pub profile: Profile,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    /// The caller, with the latest token.
    caller: Arc<Caller>,
    stamp: Stamp,
    lists: ListDigests,
    changed: [bool; 3],
    /// Last notice of each list.
    lists_told: [Option<LastNotice>; 3],
    resources: BTreeMap<Arc<str>, WatchedResource>,
    /// Bytes of their URIs.
    text: usize,
    streams: VecDeque<SubscriberStream>,
    /// Number of streams opened so far, and of notices.
    opened: u64,
    told: u64,
    /// Whether the subscriber has ended and accepts no more streams.
    ended: bool,
    /// Time since which notices have been pending.
    waits_since: Option<Instant>,
    used: Instant,
}

struct WatchedResource {
    /// Digest of the primitive behind it, when its caller last saw it.
    digest: u64,
    changed: bool,
    told: Option<LastNotice>,
    /// Subscription to changes at the backend; held while the resource is watched.
    following: Option<SubscriptionGuard>,
}

/// The last notice of a list or resource.
#[derive(Clone, Copy)]
struct LastNotice {
    number: u64,
    stream: u64,
}

impl LastNotice {
    /// Whether a client that resumes at `from` may have missed it.
    fn is_after(self, from: ChangesPosition) -> bool {
        self.stream == from.stream && self.number > from.told
    }
}

struct SubscriberStream {
    id: [u8; 16],
    /// Number of the stream; it stays the same when the client resumes.
    number: u64,
    /// The caller, with the token of the stream's own request.
    caller: Arc<Caller>,
}

/// The next item of a stream.
pub(super) enum NextNotice {
    Notice(Notice, ChangesPosition),
    Nothing,
    /// The stream has ended.
    Ended,
}

/// Error: the subscriber watches as many resources as allowed.
#[derive(Debug)]
pub struct TooManyResources;

impl Subscriber {
    pub(super) fn new(
        id: [u8; 16],
        profile: Profile,
        caller: Arc<Caller>,
        seen: (Stamp, ListDigests),
    ) -> Subscriber {
        let (stamp, lists) = seen;
        let state = State {
            caller,
            stamp,
            lists,
            changed: [false; 3],
            lists_told: [None; 3],
            resources: BTreeMap::new(),
            text: 0,
            streams: VecDeque::new(),
            opened: 0,
            told: 0,
            ended: false,
            waits_since: None,
            used: Instant::now(),
        };
        Subscriber { id, own: rand::random(), profile, state: Mutex::new(state), wake: Notify::new() }
    }

    /// Starts to watch a resource; `digest` is of the primitive behind it. Returns the memory of all resources, in
    /// bytes.
    pub(super) fn watch(&self, uri: &str, digest: u64) -> Result<usize, TooManyResources> {
        let mut state = self.state.lock();
        if state.resources.contains_key(uri) {
            return Ok(state.bytes());
        }
        if state.resources.len() >= MAX_RESOURCES || state.text + uri.len() > MAX_TEXT {
            return Err(TooManyResources);
        }
        state.text += uri.len();
        state
            .resources
            .insert(uri.into(), WatchedResource { digest, changed: false, told: None, following: None });
        Ok(state.bytes())
    }

    /// Stores the subscription to changes of a watched resource.
    pub(super) fn follow(&self, uri: &str, following: Option<SubscriptionGuard>) {
        let mut state = self.state.lock();
        let is_over = state.ended;
        let watched = state.resources.get_mut(uri).filter(|_| !is_over);
        let before = watched.and_then(|watched| std::mem::replace(&mut watched.following, following));
        drop(state);
        drop(before);
    }

    /// Stops watching a resource; returns the memory of the others, in bytes.
    pub(super) fn unwatch(&self, uri: &str) -> usize {
        let mut state = self.state.lock();
        let gone = state.resources.remove(uri);
        if gone.is_some() {
            state.text -= uri.len();
        }
        let bytes = state.bytes();
        drop(state);
        drop(gone);
        bytes
    }

    pub(super) fn bytes(&self) -> usize {
        self.state.lock().bytes()
    }

    pub(super) fn watched(&self) -> Vec<Arc<str>> {
        self.state.lock().resources.keys().cloned().collect()
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.state.lock().stamp
    }

    pub(super) fn caller(&self) -> Arc<Caller> {
        self.state.lock().caller.clone()
    }

    /// Records a request of the same principal, admitted by a snapshot of this revision; returns whether its token has
    /// changed.
    pub(super) fn present(&self, caller: &Arc<Caller>, revision: u64) -> bool {
        let mut state = self.state.lock();
        state.used = Instant::now();
        state.stamp.revision = state.stamp.revision.max(revision);
        let before = std::mem::replace(&mut state.caller, caller.clone());
        before != *caller
    }

    /// Opens or resumes a stream; false if the subscriber has ended.
    pub(super) fn open(&self, id: [u8; 16], caller: &Arc<Caller>, resumed: Option<ResumedStream>) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        if state.streams.is_empty() {
            // Without a stream, the pending notices could not be taken.
            state.waits_since = None;
        }
        let before = state.streams.len();
        let number = match resumed {
            Some(resumed) if resumed.from.subscriber == self.own => state.resume(resumed.from),
            Some(ResumedStream { lists, .. }) => {
                let changed = state.changed.iter_mut().zip(lists).zip(self.profile.wants);
                changed.for_each(|((changed, has), wants)| *changed |= has && wants);
                state.number()
            }
            None => state.number(),
        };
        state.streams.push_back(SubscriberStream { id, number, caller: caller.clone() });
        if state.streams.len() > MAX_STREAMS {
            state.streams.pop_front();
        }
        let is_less = state.streams.len() <= before;
        drop(state);
        if is_less {
            self.wake.notify_waiters();
        }
        true
    }

    /// Returns the position of a stream's client.
    pub(super) fn position(&self, id: &[u8; 16]) -> ChangesPosition {
        let state = self.state.lock();
        let stream = state.streams.iter().find(|stream| stream.id == *id).map_or(0, |stream| stream.number);
        ChangesPosition { subscriber: self.own, stream, told: state.told }
    }

    /// Closes a stream; true if the subscriber has no other stream and does not outlast it.
    pub(super) fn close(&self, id: &[u8; 16]) -> bool {
        let mut state = self.state.lock();
        state.streams.retain(|stream| stream.id != *id);
        state.used = Instant::now();
        state.streams.is_empty() && !self.profile.lasts
    }

    /// Ends its streams for good.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let followings: Vec<SubscriptionGuard> =
            state.resources.values_mut().filter_map(|watched| watched.following.take()).collect();
        drop(state);
        drop(followings);
        self.end_streams_of(|_| true);
    }

    /// Ends the subscriber if it has no stream; returns whether it has ended.
    pub(super) fn end_unheard(&self) -> bool {
        let mut state = self.state.lock();
        state.ended |= state.streams.is_empty();
        state.ended
    }

    /// Ends the streams that were opened with a dead token.
    pub(super) fn end_streams_of(&self, is_dead: impl Fn(&Caller) -> bool) {
        let mut state = self.state.lock();
        let before = state.streams.len();
        state.streams.retain(|stream| !is_dead(&stream.caller));
        let is_less = state.streams.len() < before;
        drop(state);
        if is_less {
            self.wake.notify_waiters();
        }
    }

    pub(super) fn close_stalled(&self, after: Duration) {
        let is_stalled = self.state.lock().waits_since.is_some_and(|since| since.elapsed() >= after);
        if is_stalled {
            self.end_streams_of(|_| true);
        }
    }

    pub(super) fn is_idle(&self, after: Duration) -> bool {
        let state = self.state.lock();
        state.streams.is_empty() && state.used.elapsed() >= after
    }

    /// Updates the lists and the digests of visible resources from a snapshot; returns the resources whose digest has
    /// changed.
    pub(super) fn show(
        &self,
        stamp: Stamp,
        lists: ListDigests,
        digest: impl Fn(&str) -> Option<u64>,
    ) -> Vec<Arc<str>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut others = Vec::new();
        // Already evaluated by a newer snapshot.
        if stamp.revision < state.stamp.revision {
            return others;
        }
        state.stamp = stamp;
        let before = std::mem::replace(&mut state.lists, lists);
        let differs = lists.into_iter().zip(before).map(|(now, before)| now != before);
        for ((changed, wants), differs) in state.changed.iter_mut().zip(self.profile.wants).zip(differs) {
            *changed |= wants && differs;
        }
        for (uri, watched) in &mut state.resources {
            // A resource that cannot be seen keeps its digest, so that a change is reported once it can be seen again.
            if let Some(now) = digest(uri).filter(|now| *now != watched.digest) {
                watched.digest = now;
                watched.changed = true;
                others.push(uri.clone());
            }
        }
        self.tell(state);
        others
    }

    /// Marks these resources as changed, as far as the caller can see them.
    pub(super) fn updated(&self, uris: &HashSet<String>, mut is_seen: impl FnMut(&str) -> bool) {
        let mut state = self.state.lock();
        for (uri, watched) in &mut state.resources {
            watched.changed |= uris.contains(&**uri) && is_seen(uri);
        }
        self.tell(&mut state);
    }

    /// Marks the list of resources as changed, because a plugin lists others than before.
    pub(super) fn resources_listed(&self) {
        let mut state = self.state.lock();
        let lists = NotifiedList::ALL.into_iter().zip(self.profile.wants).zip(&mut state.changed);
        lists.for_each(|((list, wants), changed)| *changed |= wants && list == NotifiedList::Resources);
        self.tell(&mut state);
    }

    fn tell(&self, state: &mut State) {
        let waits = state.changed.contains(&true) || state.resources.values().any(|watched| watched.changed);
        if !waits || state.streams.is_empty() {
            return;
        }
        state.waits_since.get_or_insert_with(Instant::now);
        self.wake.notify_waiters();
    }

    /// Takes the next notice of a stream.
    pub(super) fn take(&self, id: &[u8; 16]) -> NextNotice {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(stream) = state.streams.iter().find(|stream| stream.id == *id) else {
            return NextNotice::Ended;
        };
        let told = LastNotice { number: state.told + 1, stream: stream.number };
        let position = ChangesPosition { subscriber: self.own, stream: told.stream, told: told.number };
        // Restarts the clock for the remaining notices; the stream calls again after the last one.
        state.waits_since = Some(Instant::now());
        let lists = NotifiedList::ALL.into_iter().zip(&mut state.changed).zip(&mut state.lists_told);
        for ((list, changed), last) in lists {
            if std::mem::take(changed) {
                state.told = told.number;
                *last = Some(told);
                return NextNotice::Notice(Notice::Changed(list), position);
            }
        }
        for (uri, watched) in &mut state.resources {
            if std::mem::take(&mut watched.changed) {
                state.told = told.number;
                watched.told = Some(told);
                return NextNotice::Notice(Notice::Updated(uri.to_string()), position);
            }
        }
        state.waits_since = None;
        NextNotice::Nothing
    }

    pub(super) fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.wake.notified()
    }
}

impl State {
    /// Returns the number of a new stream.
    fn number(&mut self) -> u64 {
        self.opened += 1;
        self.opened
    }

    /// Resumes a stream: later notices are marked again, and its previous connection loses it.
    fn resume(&mut self, from: ChangesPosition) -> u64 {
        self.streams.retain(|stream| stream.number != from.stream);
        for (changed, told) in self.changed.iter_mut().zip(&self.lists_told) {
            *changed |= told.is_some_and(|told| told.is_after(from));
        }
        for watched in self.resources.values_mut() {
            watched.changed |= watched.told.is_some_and(|told| told.is_after(from));
        }
        from.stream
    }

    /// Returns the memory of the resources, in bytes.
    fn bytes(&self) -> usize {
        self.text + self.resources.len() * EACH
    }
}
