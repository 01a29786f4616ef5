//! One client that is told of changes: a legacy session with its streams, or one `subscriptions/listen`.
//!
//! Keeps true: what waits for the client is a mark for each list and for each resource it subscribed to, so that any
//! number of changes takes the room of one; every message goes to one stream; marks wait for a session whose stream is
//! gone, and are delivered to its next one. Bound: resources by number and by the length of their URIs, streams by number.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use asp_snapshot::mcp_revision::Revision;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Most resources one subscriber watches.
pub const MAX_RESOURCES: usize = 1000;
/// Longest text of all their URIs together: as much as may wait for one client.
pub const MAX_TEXT: usize = 48 * 1024;
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

/// One client that is told of changes.
pub struct Subscriber {
    pub(super) id: [u8; 16],
    pub profile: Profile,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    /// With the token that was presented last.
    caller: Arc<Caller>,
    /// The revision of the snapshot it was evaluated by.
    revision: u64,
    lists: Lists,
    changed: [bool; 3],
    resources: BTreeMap<String, Watched>,
    /// Bytes of their URIs.
    text: usize,
    streams: VecDeque<Open>,
    next_stream: u64,
    /// Since when something waits for a client.
    waits_since: Option<Instant>,
    used: Instant,
}

struct Watched {
    /// Of the primitive behind it, when its caller could see it last.
    digest: u64,
    changed: bool,
}

struct Open {
    number: u64,
    /// With the token of its own request.
    caller: Arc<Caller>,
}

/// What a stream finds.
pub(super) enum Taken {
    Notice(Notice),
    Nothing,
    /// The stream has ended.
    Ended,
}

/// It watches as many resources as it may.
#[derive(Debug)]
pub struct TooMany;

impl Subscriber {
    pub(super) fn new(id: [u8; 16], profile: Profile, caller: Arc<Caller>, lists: Lists) -> Subscriber {
        let state = State {
            caller,
            revision: 0,
            lists,
            changed: [false; 3],
            resources: BTreeMap::new(),
            text: 0,
            streams: VecDeque::new(),
            next_stream: 0,
            waits_since: None,
            used: Instant::now(),
        };
        Subscriber { id, profile, state: Mutex::new(state), wake: Notify::new() }
    }

    /// Tells of changes of a resource from now on; `digest` is of the primitive behind it.
    pub fn watch(&self, uri: &str, digest: u64) -> Result<(), TooMany> {
        let mut state = self.state.lock();
        if state.resources.contains_key(uri) {
            return Ok(());
        }
        if state.resources.len() >= MAX_RESOURCES || state.text + uri.len() > MAX_TEXT {
            return Err(TooMany);
        }
        state.text += uri.len();
        state.resources.insert(uri.to_owned(), Watched { digest, changed: false });
        Ok(())
    }

    pub fn unwatch(&self, uri: &str) {
        let mut state = self.state.lock();
        if state.resources.remove(uri).is_some() {
            state.text -= uri.len();
        }
    }

    pub(super) fn caller(&self) -> Arc<Caller> {
        self.state.lock().caller.clone()
    }

    /// The same principal is back; true where it is with another token.
    pub(super) fn present(&self, caller: &Arc<Caller>) -> bool {
        let mut state = self.state.lock();
        state.used = Instant::now();
        let before = std::mem::replace(&mut state.caller, caller.clone());
        before.digest != caller.digest
    }

    /// A stream opens; its number.
    pub(super) fn open(&self, caller: &Arc<Caller>) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_stream;
        state.next_stream += 1;
        state.streams.push_back(Open { number, caller: caller.clone() });
        if state.streams.len() > MAX_STREAMS {
            state.streams.pop_front();
        }
        drop(state);
        self.wake.notify_waiters();
        number
    }

    /// A stream is gone; true where nothing is left of a subscriber that does not outlast it.
    pub(super) fn close(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        state.streams.retain(|stream| stream.number != number);
        state.used = Instant::now();
        state.streams.is_empty() && !self.profile.lasts
    }

    pub(super) fn end(&self) {
        self.end_streams_of(|_| true);
    }

    /// Ends the streams that were opened with such a token.
    pub(super) fn end_streams_of(&self, is_dead: impl Fn(&Caller) -> bool) {
        self.state.lock().streams.retain(|stream| !is_dead(&stream.caller));
        self.wake.notify_waiters();
    }

    pub(super) fn close_stalled(&self, after: Duration) {
        let is_stalled = self.state.lock().waits_since.is_some_and(|since| since.elapsed() >= after);
        if is_stalled {
            self.end();
        }
    }

    pub(super) fn is_idle(&self, after: Duration) -> bool {
        let state = self.state.lock();
        state.streams.is_empty() && state.used.elapsed() >= after
    }

    /// What the caller sees by a snapshot: each list, and the digest of what is behind a resource that it can see.
    pub(super) fn show(&self, revision: u64, lists: Lists, mut digest: impl FnMut(&str) -> Option<u64>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        // Evaluated by a newer one already.
        if revision < state.revision {
            return;
        }
        state.revision = revision;
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
            }
        }
        self.tell(state);
    }

    /// These resources have changed, of which it is told what its caller can see.
    pub(super) fn updated(&self, uris: &HashSet<String>, mut is_seen: impl FnMut(&str) -> bool) {
        let mut state = self.state.lock();
        for (uri, watched) in &mut state.resources {
            watched.changed |= uris.contains(uri) && is_seen(uri);
        }
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
    pub(super) fn take(&self, number: u64) -> Taken {
        let mut state = self.state.lock();
        let state = &mut *state;
        if !state.streams.iter().any(|stream| stream.number == number) {
            return Taken::Ended;
        }
        // For what is left: whoever takes the last thing comes once more.
        state.waits_since = Some(Instant::now());
        for (list, changed) in List::ALL.into_iter().zip(&mut state.changed) {
            if std::mem::take(changed) {
                return Taken::Notice(Notice::Changed(list));
            }
        }
        for (uri, watched) in &mut state.resources {
            if std::mem::take(&mut watched.changed) {
                return Taken::Notice(Notice::Updated(uri.clone()));
            }
        }
        state.waits_since = None;
        Taken::Nothing
    }

    pub(super) fn woken(&self) -> tokio::sync::futures::Notified<'_> {
        self.wake.notified()
    }
}
