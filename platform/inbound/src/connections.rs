//! The permits of a listener's connections, and their idle state.
//!
//! Owns: the bound on connections. Keeps true: a connection with an open request, including its response's body, is
//! never closed to make room; an idle one is closed if its permit is needed.

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

/// Interval between checks for an idle connection while every connection has an open request.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// All connections of a listener.
pub(crate) struct Connections {
    permits: Arc<Semaphore>,
    table: Arc<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    /// Bounded by the number of permits.
    all: Mutex<BTreeMap<u64, Arc<State>>>,
    /// Counter that numbers connections and orders their events.
    clock: AtomicU64,
}

impl ConnectionTable {
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
    /// Whether any request has arrived.
    spoken: bool,
    /// Value of the table's clock when the connection became idle.
    since: u64,
}

impl Connections {
    pub(crate) fn new(bound: usize) -> Connections {
        Connections { permits: Arc::new(Semaphore::new(bound)), table: Arc::default() }
    }

    /// Acquires a permit for one more connection; if there is none, the connection that has been idle longest is
    /// closed.
    pub(crate) async fn acquire(&self) -> ConnectionPermit {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                break permit;
            }
            self.close_longest_idle();
            // Err: none is idle yet. The semaphore is never closed.
            if let Ok(Ok(permit)) = timeout(LOOK_AGAIN, Arc::clone(&self.permits).acquire_owned()).await {
                break permit;
            }
        };
        let number = self.table.tick();
        let activity = Mutex::new(Activity { open: 0, spoken: false, since: number });
        let state = Arc::new(State { activity, wanted: CancellationToken::new() });
        self.table.all.lock().insert(number, Arc::clone(&state));
        ConnectionPermit { number, state, table: Arc::clone(&self.table), _permit: permit }
    }

    fn close_longest_idle(&self) {
        let all = self.table.all.lock();
        let idle = all.values().filter(|state| !state.wanted.is_cancelled()).filter_map(|state| {
            let activity = state.activity.lock();
            // Connections without any request go first.
            (activity.open == 0).then_some(((activity.spoken, activity.since), state))
        });
        if let Some((_, state)) = idle.min_by_key(|(order, _)| *order) {
            state.wanted.cancel();
        }
    }
}

/// Permit of one connection; dropping it releases the permit.
pub(crate) struct ConnectionPermit {
    number: u64,
    state: Arc<State>,
    table: Arc<ConnectionTable>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionPermit {
    pub(crate) fn usage(&self) -> RequestCounter {
        RequestCounter { state: Arc::clone(&self.state), table: Arc::clone(&self.table) }
    }

    /// Completes if no request arrives within `bound`; never completes once one has.
    pub(crate) async fn silent_for(&self, bound: Duration) {
        sleep(bound).await;
        if self.state.activity.lock().spoken {
            std::future::pending().await
        }
    }

    /// Completes when the connection is idle and its permit is needed.
    pub(crate) async fn wait_until_wanted(&self) {
        self.state.wanted.cancelled().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.table.all.lock().remove(&self.number);
    }
}

/// Counter of a connection's requests.
#[derive(Clone)]
pub(crate) struct RequestCounter {
    state: Arc<State>,
    table: Arc<ConnectionTable>,
}

impl RequestCounter {
    pub(crate) fn begin(&self) -> OpenRequest {
        let mut activity = self.state.activity.lock();
        activity.open += 1;
        activity.spoken = true;
        OpenRequest(self.clone())
    }
}

/// Open request.
pub(crate) struct OpenRequest(RequestCounter);

impl OpenRequest {
    /// Keeps the request open until its response has been sent, in parts of at most `largest` bytes. The request for
    /// the next part shows how much the client has read, so a client that reads a large response slowly counts as
    /// reading.
    pub(crate) fn hold_until_end(self, body: Body, largest: usize) -> Body {
        Body::new(ResponseBody { body, largest, rest: Bytes::new(), _open: self })
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut activity = self.0.state.activity.lock();
        activity.open = activity.open.saturating_sub(1);
        activity.since = self.0.table.tick();
    }
}

struct ResponseBody {
    body: Body,
    largest: usize,
    /// Unsent rest of the last part from the body.
    rest: Bytes,
    _open: OpenRequest,
}

impl ResponseBody {
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

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = self.next_frame(context);
        unread::record_poll(matches!(frame, Poll::Ready(Some(_))) && !self.is_end_stream());
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
