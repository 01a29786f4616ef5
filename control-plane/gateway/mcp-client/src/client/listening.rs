//! Reading of what a server sends outside of any request, for as long as its session lasts.
//!
//! Keeps true: a process listens to a bounded number of sessions; a call waits a bounded time for the stream; a stream
//! that broke off is resumed, and the pause grows while it brings nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asp_platform::pauses::doubling;
use reqwest::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::changes::Changes;
use super::exchange::{CANCELLED, StreamRequests};
use super::reading::Messages;
use super::session::{LONGEST_PAUSE, PAUSE, RunningRequests, Session, SessionHeaders};
use super::{Client, ClientFault};
use crate::message::{self, Message};

/// Maximum time that a call waits for the stream of the server's own messages, so that its first questions can
/// arrive.
const LISTENS_WITHIN: Duration = Duration::from_secs(1);

impl Session {
    /// Listens to the server's notifications of changes, including those of its lists if `lists`. Returns as `listen`
    /// does.
    pub async fn listen_to_changes(&mut self, lists: bool) {
        let Some(capabilities) = self.modern.clone() else { return self.listen().await };
        let Ok(place) = self.client.tasks.listeners.clone().try_acquire_owned() else { return };
        let changes =
            Changes { client: self.client.clone(), capabilities, running: self.running.clone(), lists };
        let (opened, is_open) = oneshot::channel();
        let task = async move {
            changes.run(opened).await;
            drop(place);
        };
        self.listening = Some(AbortOnDropHandle::new(tokio::spawn(task)));
        drop(tokio::time::timeout(LISTENS_WITHIN, is_open).await);
    }

    /// Listens to the server's own messages, if it keeps sessions. Returns once it can send some, or after
    /// `LISTENS_WITHIN`.
    pub async fn listen(&mut self) {
        if self.at.id.is_none() {
            return;
        }
        // If no listener is left, the server's own messages are not read, and calls continue.
        let Ok(place) = self.client.tasks.listeners.clone().try_acquire_owned() else { return };
        let (opened, is_open) = oneshot::channel();
        let listener = Listener {
            client: self.client.clone(),
            at: self.at.clone(),
            running: self.running.clone(),
            _place: place,
        };
        self.listening = Some(AbortOnDropHandle::new(tokio::spawn(listener.run(opened))));
        // Closed: this server sends no messages of its own.
        drop(tokio::time::timeout(LISTENS_WITHIN, is_open).await);
    }
}

/// Reader of the session's own stream.
struct Listener {
    client: Client,
    at: SessionHeaders,
    running: Arc<RunningRequests>,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    async fn run(self, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut after: Option<String> = None;
        let mut pauses = doubling(PAUSE, LONGEST_PAUSE);
        loop {
            let response = self.client.get(&self.at, after.as_deref()).await;
            match response {
                Ok(response) if response.status() == StatusCode::OK => {
                    match opened.take() {
                        Some(opened) => drop(opened.send(())),
                        // Messages sent in between are lost.
                        None if after.is_none() => self.running.updates.miss(),
                        None => {}
                    }
                    let mut messages = Messages::listening(response);
                    if !messages.is_stream() {
                        return;
                    }
                    self.running.hears.store(true, Ordering::Release);
                    let heard = self.hear(&mut messages).await;
                    self.running.hears.store(false, Ordering::Release);
                    let place = messages.resumable();
                    let asked = place.as_ref().and_then(|(_, pause)| *pause).unwrap_or(PAUSE);
                    after = place.map(|(id, _)| id).or(after);
                    let first = asked.clamp(PAUSE, LONGEST_PAUSE);
                    pauses = if heard { doubling(first, LONGEST_PAUSE) } else { pauses };
                }
                // The server has no such stream (405).
                Ok(_) => return,
                Err(ClientFault::SessionEnded) => return self.running.over.cancel(),
                Err(_) => {}
            }
            tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }

    /// Reads one stream to its end; returns whether it brought a message.
    async fn hear(&self, messages: &mut Messages) -> bool {
        let mut asks = StreamRequests::of(self.client.clone(), self.at.clone());
        let mut heard = false;
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                () = asks.next(), if !asks.is_empty() => continue,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return heard,
                // Broken off, or above the limit: not a reason to reconnect soon.
                Err(_) => return false,
            };
            heard = true;
            match message {
                // The answer to a request is read where that was sent.
                Message::Answer { .. } | Message::Unaddressed(_) => {}
                Message::Request { id, method, params } => {
                    asks.begin(self.running.only(), id, method, params);
                }
                Message::Notification { method, params } if method == CANCELLED => asks.take_back(&params),
                Message::Notification { method, params } => {
                    self.running.hear_change(&method, &params);
                    if let Some(visit) = message::visited(&method, &params) {
                        self.running.all().iter().for_each(|downstream| downstream.visited(visit));
                    }
                    let Some((token, event)) = message::event(&method, &params) else { continue };
                    let whose = match token {
                        Some(id) => self.running.find(id),
                        None => self.running.only(),
                    };
                    if let Some(whose) = whose {
                        whose.receive_event(event);
                    }
                }
            }
        }
    }
}
