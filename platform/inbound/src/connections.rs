//! The places of a listener's connections, and which of them are idle.
//!
//! Owns: the bound on connections. Keeps true: a connection with an open request, its response's body included, is
//! never taken from its peer; one without is, where its place is needed.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::unread;

/// While every place has an open request, how often it is looked whether one has become idle.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// All connections of a listener.
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    table: Arc<Table>,
}

#[derive(Default)]
struct Table {
    /// Bounded by the number of places.
    all: Mutex<BTreeMap<u64, Arc<State>>>,
    /// Numbers connections, and orders what happens on them.
    clock: AtomicU64,
}

impl Table {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

struct State {
    activity: Mutex<Activity>,
    wanted: CancellationToken,
}

struct Activity {
    open: usize,
    /// Whether a request has come at all.
    spoken: bool,
    /// Of the table's clock: when it became idle.
    since: u64,
}

impl Connections {
    pub(crate) fn new(bound: usize) -> Connections {
        Connections { places: Arc::new(Semaphore::new(bound)), table: Arc::default() }
    }

    /// A place for one more connection; the longest idle one makes room where there is none.
    pub(crate) async fn place(&self) -> Place {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
                break permit;
            }
            self.close_the_longest_idle();
            // Err: none is idle yet. The semaphore is never closed.
            if let Ok(Ok(permit)) = timeout(LOOK_AGAIN, Arc::clone(&self.places).acquire_owned()).await {
                break permit;
            }
        };
        let number = self.table.tick();
        let activity = Mutex::new(Activity { open: 0, spoken: false, since: number });
        let state = Arc::new(State { activity, wanted: CancellationToken::new() });
        self.table.all.lock().insert(number, Arc::clone(&state));
        Place { number, state, table: Arc::clone(&self.table), _permit: permit }
    }

    fn close_the_longest_idle(&self) {
        let all = self.table.all.lock();
        let idle = all.values().filter(|state| !state.wanted.is_cancelled()).filter_map(|state| {
            let activity = state.activity.lock();
            // Those that have said nothing go before all others.
            (activity.open == 0).then_some(((activity.spoken, activity.since), state))
        });
        if let Some((_, state)) = idle.min_by_key(|(order, _)| *order) {
            state.wanted.cancel();
        }
    }
}

/// One connection's place; dropping it frees it.
pub(crate) struct Place {
    number: u64,
    state: Arc<State>,
    table: Arc<Table>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    pub(crate) fn usage(&self) -> Usage {
        Usage { state: Arc::clone(&self.state), table: Arc::clone(&self.table) }
    }

    /// Ends when no request has come for `bound`; never, once one has.
    pub(crate) async fn silent_for(&self, bound: Duration) {
        sleep(bound).await;
        if self.state.activity.lock().spoken {
            std::future::pending().await
        }
    }

    /// Ends when the connection is idle and its place is needed.
    pub(crate) async fn wanted(&self) {
        self.state.wanted.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.all.lock().remove(&self.number);
    }
}

/// Counts the requests of a connection.
#[derive(Clone)]
pub(crate) struct Usage {
    state: Arc<State>,
    table: Arc<Table>,
}

impl Usage {
    pub(crate) fn begin(&self) -> Open {
        let mut activity = self.state.activity.lock();
        activity.open += 1;
        activity.spoken = true;
        Open(self.clone())
    }
}

/// An open request.
pub(crate) struct Open(Usage);

impl Open {
    /// The request is open until its response has been sent, in parts of at most so many bytes: how much of it a client
    /// has read shows when the next one is asked for, and one that reads a large part slowly reads all the same.
    pub(crate) fn until_the_end_of(self, body: Body, largest: usize) -> Body {
        Body::new(Answer { body, largest, rest: Bytes::new(), _open: self })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut activity = self.0.state.activity.lock();
        activity.open = activity.open.saturating_sub(1);
        activity.since = self.0.table.tick();
    }
}

struct Answer {
    body: Body,
    largest: usize,
    /// Of the part that the body gave last.
    rest: Bytes,
    _open: Open,
}

impl Answer {
    fn next_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = Pin::new(&mut self.body).poll_frame(context);
            match frame {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let size = self.rest.len().min(self.largest);
        let part = self.rest.split_to(size);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = self.next_frame(context);
        unread::asked(matches!(frame, Poll::Ready(Some(_))) && !self.is_end_stream());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let of_body = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(of_body.lower().saturating_add(rest));
        hint
    }
}
