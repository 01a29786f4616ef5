//! One client that is told of changes: a legacy session with its streams, or one `subscriptions/listen`.
//!
//! Keeps true: what waits for the client is a mark for each list and for each resource it subscribed to, so that any
//! number of changes takes the room of one; every message goes to one stream; marks wait for a session whose stream is
//! gone, and are delivered to its next one; a client that comes back to a stream is told again what
//! that stream told after the event it got last, and of every list where its stream is not known here. Bound: resources by number and by the length of their URIs, streams by number.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use asp_snapshot::mcp_revision::Revision;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::event_id::ChangesPosition;
use crate::execution::SubscriptionGuard;

/// Most resources one subscriber watches.
pub const MAX_RESOURCES: usize = 1000;
/// Longest text of all their URIs together: as much as may wait for one client.
pub const MAX_TEXT: usize = 48 * 1024;
/// What a watched resource takes besides its URI, also while it is evaluated.
const EACH: usize = 256;
/// Most streams of one session at a time. Another one ends the oldest, which may be one whose end nobody has seen yet.
const MAX_STREAMS: usize = 4;

/// A list of which a client is told that it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Tools,
    Prompts,
    /// Templates included.
    Resources,
}

impl List {
    pub const ALL: [List; 3] = [List::Tools, List::Prompts, List::Resources];
}

/// What changes with each list, in the order of [`List::ALL`].
pub type Lists = [u64; 3];

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Changed(List),
    /// The resource with this URI.
    Updated(String),
}

/// What does not change of a subscriber.
#[derive(Clone, Debug)]
pub struct Profile {
    pub server: String,
    pub revision: Revision,
    /// Which lists it is told of, in the order of [`List::ALL`].
    pub wants: [bool; 3],
    /// Whether it outlives its stream: a session does.
    pub lasts: bool,
}

/// What a subscriber was evaluated by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// Of the snapshot.
    pub(super) revision: u64,
    /// See [`crate::execution::Executor::offers_changed`].
    pub(super) offers: u64,
}

/// A client comes back to a stream.
#[derive(Clone, Copy, Debug)]
pub struct Resumed {
    pub from: ChangesPosition,
    /// The lists that may have changed where nobody knows, in the order of [`List::ALL`].
    pub lists: [bool; 3],
}

/// One client that is told of changes.
pub struct Subscriber {
    pub(super) id: [u8; 16],
    /// What tells it from another one with its id, here or elsewhere.
    own: u32,
    pub profile: Profile,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    /// With the token that was presented last.
    caller: Arc<Caller>,
    stamp: Stamp,
    lists: Lists,
    changed: [bool; 3],
    /// When each list was told last.
    lists_told: [Option<Told>; 3],
    resources: BTreeMap<Arc<str>, Watched>,
    /// Bytes of their URIs.
    text: usize,
    streams: VecDeque<Open>,
    /// How many streams there were, and how many notices.
    opened: u64,
    told: u64,
    /// No stream opens any more.
    ended: bool,
    /// Since when something waits for a client.
    waits_since: Option<Instant>,
    used: Instant,
}

struct Watched {
    /// Of the primitive behind it, when its caller could see it last.
    digest: u64,
    changed: bool,
    told: Option<Told>,
    /// Who says that it has changed; held for as long as it is watched.
    following: Option<SubscriptionGuard>,
}

/// The last notice of something.
#[derive(Clone, Copy)]
struct Told {
    number: u64,
    stream: u64,
}

impl Told {
    /// Whether a client that comes back from there may not have got it.
    fn is_after(self, from: ChangesPosition) -> bool {
        self.stream == from.stream && self.number > from.told
    }
}

struct Open {
    id: [u8; 16],
    /// The same when its client comes back.
    number: u64,
    /// With the token of its own request.
    caller: Arc<Caller>,
}

/// What a stream finds.
pub(super) enum Taken {
    Notice(Notice, ChangesPosition),
    Nothing,
    /// The stream has ended.
    Ended,
}

/// It watches as many resources as it may.
#[derive(Debug)]
pub struct TooMany;

impl Subscriber {
    pub(super) fn new(
        id: [u8; 16],
        profile: Profile,
        caller: Arc<Caller>,
        seen: (Stamp, Lists),
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

    /// Tells of changes of a resource from now on; `digest` is of the primitive behind it. What all of them take.
    pub(super) fn watch(&self, uri: &str, digest: u64) -> Result<usize, TooMany> {
        let mut state = self.state.lock();
        if state.resources.contains_key(uri) {
            return Ok(state.bytes());
        }
        if state.resources.len() >= MAX_RESOURCES || state.text + uri.len() > MAX_TEXT {
            return Err(TooMany);
        }
        state.text += uri.len();
        state.resources.insert(uri.into(), Watched { digest, changed: false, told: None, following: None });
        Ok(state.bytes())
    }

    /// Keeps who says that a resource has changed, where it is watched.
    pub(super) fn follow(&self, uri: &str, following: Option<SubscriptionGuard>) {
        let mut state = self.state.lock();
        let is_over = state.ended;
        let watched = state.resources.get_mut(uri).filter(|_| !is_over);
        let before = watched.and_then(|watched| std::mem::replace(&mut watched.following, following));
        drop(state);
        drop(before);
    }

    /// What the others take.
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

    /// The same principal is back, admitted by a snapshot of this revision; true where it is with another token.
    pub(super) fn present(&self, caller: &Arc<Caller>, revision: u64) -> bool {
        let mut state = self.state.lock();
        state.used = Instant::now();
        state.stamp.revision = state.stamp.revision.max(revision);
        let before = std::mem::replace(&mut state.caller, caller.clone());
        before != *caller
    }

    /// A stream opens, or goes on where its client was; false where the subscriber has ended.
    pub(super) fn open(&self, id: [u8; 16], caller: &Arc<Caller>, resumed: Option<Resumed>) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        if state.streams.is_empty() {
            // Nobody was there to take what waits.
            state.waits_since = None;
        }
        let before = state.streams.len();
        let number = match resumed {
            Some(resumed) if resumed.from.subscriber == self.own => state.resume(resumed.from),
            Some(Resumed { lists, .. }) => {
                let changed = state.changed.iter_mut().zip(lists).zip(self.profile.wants);
                changed.for_each(|((changed, has), wants)| *changed |= has && wants);
                state.number()
            }
            None => state.number(),
        };
        state.streams.push_back(Open { id, number, caller: caller.clone() });
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

    /// Where the client of a stream is.
    pub(super) fn position(&self, id: &[u8; 16]) -> ChangesPosition {
        let state = self.state.lock();
        let stream = state.streams.iter().find(|stream| stream.id == *id).map_or(0, |stream| stream.number);
        ChangesPosition { subscriber: self.own, stream, told: state.told }
    }

    /// A stream is gone; true where nothing is left of a subscriber that does not outlast it.
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

    /// Ends it where it has no stream.
    pub(super) fn end_unheard(&self) -> bool {
        let mut state = self.state.lock();
        state.ended |= state.streams.is_empty();
        state.ended
    }

    /// Ends the streams that were opened with such a token.
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

    /// What the caller sees by a snapshot: each list, and the digest of what is behind a resource that it can see. Those
    /// that are another one than before.
    pub(super) fn show(
        &self,
        stamp: Stamp,
        lists: Lists,
        digest: impl Fn(&str) -> Option<u64>,
    ) -> Vec<Arc<str>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut others = Vec::new();
        // Evaluated by a newer one already.
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
            // What cannot be seen keeps its digest: who sees it again hears whether it has changed since.
            if let Some(now) = digest(uri).filter(|now| *now != watched.digest) {
                watched.digest = now;
                watched.changed = true;
                others.push(uri.clone());
            }
        }
        self.tell(state);
        others
    }

    /// These resources have changed, of which it is told what its caller can see.
    pub(super) fn updated(&self, uris: &HashSet<String>, mut is_seen: impl FnMut(&str) -> bool) {
        let mut state = self.state.lock();
        for (uri, watched) in &mut state.resources {
            watched.changed |= uris.contains(&**uri) && is_seen(uri);
        }
        self.tell(&mut state);
    }

    /// A plugin lists other resources than before, and its caller sees them.
    pub(super) fn resources_listed(&self) {
        let mut state = self.state.lock();
        let lists = List::ALL.into_iter().zip(self.profile.wants).zip(&mut state.changed);
        lists.for_each(|((list, wants), changed)| *changed |= wants && list == List::Resources);
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

    /// What a stream tells its client next.
    pub(super) fn take(&self, id: &[u8; 16]) -> Taken {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(stream) = state.streams.iter().find(|stream| stream.id == *id) else {
            return Taken::Ended;
        };
        let told = Told { number: state.told + 1, stream: stream.number };
        let position = ChangesPosition { subscriber: self.own, stream: told.stream, told: told.number };
        // For what is left: whoever takes the last thing comes once more.
        state.waits_since = Some(Instant::now());
        let lists = List::ALL.into_iter().zip(&mut state.changed).zip(&mut state.lists_told);
        for ((list, changed), last) in lists {
            if std::mem::take(changed) {
                state.told = told.number;
                *last = Some(told);
                return Taken::Notice(Notice::Changed(list), position);
            }
        }
        for (uri, watched) in &mut state.resources {
            if std::mem::take(&mut watched.changed) {
                state.told = told.number;
                watched.told = Some(told);
                return Taken::Notice(Notice::Updated(uri.to_string()), position);
            }
        }
        state.waits_since = None;
        Taken::Nothing
    }

    pub(super) fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.wake.notified()
    }
}

impl State {
    /// Of another stream.
    fn number(&mut self) -> u64 {
        self.opened += 1;
        self.opened
    }

    /// A stream goes on: what it told after that is told again, and whoever had it has it no more.
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

    /// What the resources take.
    fn bytes(&self) -> usize {
        self.text + self.resources.len() * EACH
    }
}
