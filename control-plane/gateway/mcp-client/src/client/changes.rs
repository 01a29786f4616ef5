//! Changes reported by an upstream of MCP 2026-07-28: one `subscriptions/listen` for as long as its session lasts.
//!
//! Keeps true: if other resources are wanted, their stream is open before the previous one is closed, so that nothing
//! is missed; after a stream broke off, any change may have been missed; a refused stream is not requested again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use asp_platform::pauses::doubling;
use reqwest::header::HeaderValue;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::modern::{REVISION, headers, params};
use super::reading::Messages;
use super::session::{LONGEST_PAUSE, PAUSE, RunningRequests, SessionHeaders};
use super::{Client, ClientFault, SILENCE, answer_of};
use crate::message::Message;

const METHOD: &str = "subscriptions/listen";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Listener to changes.
#[derive(Clone)]
pub(super) struct Changes {
    pub client: Client,
    pub capabilities: Value,
    pub running: Arc<RunningRequests>,
    /// Whether changes of lists are reported too.
    pub lists: bool,
}

/// Reason why a stream ended.
enum ListenEnd {
    /// The server does not support it.
    Refused,
    Broken,
}

impl Changes {
    pub(super) async fn run(self, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        let mut wanted = self.running.wanted.subscribe();
        let mut pauses = doubling(PAUSE, LONGEST_PAUSE);
        let mut number = 0_u64;
        let mut current: Option<AbortOnDropHandle<ListenEnd>> = None;
        loop {
            let uris = wanted.borrow_and_update().clone();
            if uris.is_empty() && !self.lists {
                current = None;
                opened.take();
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            }
            number += 1;
            let (acknowledged, is_heard) = oneshot::channel();
            let hearing = self.clone().hear(number, uris, acknowledged);
            let next = AbortOnDropHandle::new(tokio::spawn(hearing));
            let is_heard = timeout(SILENCE, is_heard).await.is_ok_and(|heard| heard.is_ok());
            self.running.hears.store(is_heard, Ordering::Release);
            opened.take().map(|opened| opened.send(()));
            // From here on the previous stream reports nothing that this one does not.
            let hearing = current.insert(next);
            tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                ended = hearing => {
                    self.running.hears.store(false, Ordering::Release);
                    if matches!(ended, Ok(ListenEnd::Refused)) {
                        return self.running.over.cancel();
                    }
                }
            }
            current = None;
            pauses = if is_heard { doubling(PAUSE, LONGEST_PAUSE) } else { pauses };
            sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            self.running.updates.miss();
            self.running.lists_changed().notify_one();
        }
    }

    /// Reads one stream to its end.
    async fn hear(self, number: u64, uris: BTreeSet<String>, acknowledged: oneshot::Sender<()>) -> ListenEnd {
        let mut filter = Map::new();
        if self.lists {
            for list in ["toolsListChanged", "promptsListChanged", "resourcesListChanged"] {
                filter.insert(list.into(), true.into());
            }
        }
        if !uris.is_empty() {
            filter.insert("resourceSubscriptions".into(), json!(uris));
        }
        let Ok(mut messages) = self.open(number, filter).await else { return ListenEnd::Broken };
        if !messages.is_stream() {
            return ListenEnd::Refused;
        }
        let mut acknowledged = Some(acknowledged);
        loop {
            match messages.next().await {
                Ok(Some(Message::Notification { method, params })) => {
                    if method == ACKNOWLEDGED {
                        acknowledged.take().map(|heard| heard.send(()));
                    }
                    self.running.hear_change(&method, &params);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return ListenEnd::Broken,
            }
        }
    }

    async fn open(&self, number: u64, filter: Map<String, Value>) -> Result<Messages, ClientFault> {
        let at = SessionHeaders { id: None, revision: Some(HeaderValue::from_static(REVISION)) };
        let exchange = self.client.alone(METHOD, json!({"notifications": filter}));
        let params = params(&exchange.params, self.capabilities.clone());
        // No other request has a text as its id.
        let id = format!("changes.{number}");
        let message = json!({"jsonrpc": "2.0", "id": id, "method": METHOD, "params": params});
        let client = &self.client;
        let request = client.http.post(client.url.clone()).headers(client.proof.headers());
        let request = request.headers(headers(&at, &exchange)?).json(&message);
        answer_of(request, &at).await.map(Messages::listening)
    }
}
