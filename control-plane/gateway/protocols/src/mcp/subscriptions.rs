//! Notifications of changes: `resources/subscribe` and the GET stream of legacy sessions, `subscriptions/listen` of MCP
//! 2026-07-28.
//!
//! Owns: the shape of the messages and of the streams. Keeps true: only a caller that may read a resource can subscribe
//! to it, and others get the same refusal as for a read; a stream carries no message of another request and no request
//! other than a ping; a stream of 2026-07-28 begins with a list of its subscriptions, sends nothing else, and ends with
//! a result.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::ClientAbilities;
use asp_call::call::outcome::Refusal;
use asp_call::clock::wait_until;
use asp_edge::Reason;
use asp_json::Members;
use asp_pipeline::event_id::ChangesPosition;
use asp_pipeline::pipeline::entitlement::{CallTarget, entitle, resolve};
use asp_pipeline::sessions::LegacySession;
use asp_pipeline::subscriptions::ChangeStream;
use asp_pipeline::subscriptions::subscriber::{
    MAX_RESOURCES, MAX_TEXT, Notice, NotifiedList, Profile, ResumedStream, Subscriber,
};
use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::Protocol;
use asp_snapshot::artifact;
use axum::response::Response;
use futures::stream::{self, SelectAll, StreamExt};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::codec::{Message, RpcFailure, RpcResponse, notification, server_request};
use super::events;
use super::lacking::{TASKS, incapable, step_up};
use super::lists;
use super::results::{self, SERVER_INFO};
use super::resume::ResumableChanges;
use super::tasks;
use crate::ProtocolRequest;
use crate::events::{COMMENT, KEEP_ALIVE, respond as respond_with};

/// Delay before the first ping on a session's stream, and interval of later ones (2025-11-25 utilities, ping). An
/// answer counts as use of the session, which otherwise expires after an hour.
const FIRST_PING: Duration = Duration::from_secs(20);
const PING_EVERY: Duration = Duration::from_secs(600);
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Members of a filter, in the order of [`NotifiedList::ALL`].
const LISTS: [&str; 3] = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];

/// Handles `resources/subscribe` (`subscribes`) and `resources/unsubscribe`.
pub(super) fn change(
    request: &ProtocolRequest,
    session: &LegacySession,
    message: &Message,
    subscribes: bool,
) -> Result<(), RpcFailure> {
    let uri = message
        .text_param("uri")
        .ok_or_else(|| RpcFailure::with(Reason::InvalidParams, "params.uri must be a string").in_call())?;
    if !subscribes {
        if let Some(subscriber) = request.gateway.subscriptions.find(&session.sid()) {
            request.gateway.subscriptions.unwatch(&subscriber, uri);
        }
        return Ok(());
    }
    let digest = readable(request, session.profile.revision, uri)?;
    let subscriber = of(request, session).map_err(RpcFailure::in_call)?;
    request.gateway.subscriptions.watch(&subscriber, uri, digest).map_err(|_| too_many())?;
    request.gateway.subscriptions.catch_up(&subscriber, Some(&request.snapshot));
    Ok(())
}

/// Opens another stream of the session, or resumes one at `from`.
pub(super) fn open(
    request: &ProtocolRequest,
    session: &LegacySession,
    from: Option<ChangesPosition>,
) -> Result<ChangeStream, RpcFailure> {
    let subscriber = of(request, session)?;
    let hub = request.gateway.subscriptions.clone();
    let resumed = from.map(|from| ResumedStream { from, lists: listed(&lists::capabilities(request, true)) });
    ChangeStream::open(hub, subscriber, &request.snapshot, &request.caller, resumed).map_err(|_| full())
}

/// Returns the session's stream as a response.
pub(super) fn of_session(
    request: &ProtocolRequest,
    session: &LegacySession,
    listening: ChangeStream,
) -> Response {
    let resumable = ResumableChanges::of(request, session);
    // The first comment shows intermediaries that the response has started.
    let first = resumable.primer(listening.position()).unwrap_or_else(|| COMMENT.to_owned());
    respond(NoticeStream {
        listening,
        tasks: SelectAll::new(),
        first: Some(first),
        resumable: Some(resumable),
        ping: Some(Instant::now() + FIRST_PING),
        tag: None,
        last: None,
        ended: false,
    })
}

/// Returns the lists whose changes a server with these capabilities reports, in the order of [`NotifiedList::ALL`].
fn listed(capabilities: &Value) -> [bool; 3] {
    ["/tools", "/prompts", "/resources"]
        .map(|list| capabilities.pointer(list).is_some_and(|list| list.get("listChanged").is_some()))
}

/// Answers `subscriptions/listen`: one stream of the subscriptions in the request.
pub(super) fn listen(
    request: &ProtocolRequest,
    message: &Message,
    id: &str,
    abilities: ClientAbilities,
) -> Result<Response, RpcFailure> {
    let asked = SubscriptionFilter::of(message)?;
    let revision = Revision::V2026_07_28;
    if !asked.tasks.is_empty() && !abilities.tasks {
        return Err(incapable(&[TASKS.to_owned()], revision));
    }
    let [tools, prompts, resources] = asked.lists;
    let [has_tools, has_prompts, has_resources] = listed(&lists::capabilities(request, true));
    let wants = [tools && has_tools, prompts && has_prompts, resources && has_resources];
    let server = request.server.message.name.clone();
    let profile = Profile { server, revision, wants, lasts: false };
    let subscriptions = &request.gateway.subscriptions;
    let subscriber = subscriptions.subscriber(rand::random(), profile, &request.snapshot, &request.caller);
    let subscriber = subscriber.map_err(|_| full())?;
    // From here on, dropping the stream ends the subscriber.
    let opened = ChangeStream::open(
        subscriptions.clone(),
        subscriber.clone(),
        &request.snapshot,
        &request.caller,
        None,
    );
    let listening = opened.map_err(|_| full())?;
    let mut honoured = Map::new();
    for (name, _) in LISTS.into_iter().zip(wants).filter(|(_, wanted)| *wanted) {
        honoured.insert(name.into(), true.into());
    }
    // Missing and hidden resources are both left out (I-10).
    let mut watched = Vec::new();
    for uri in asked.resources {
        if let Ok(digest) = readable(request, revision, uri) {
            subscriptions.watch(&subscriber, uri, digest).map_err(|_| too_many())?;
            watched.push(Value::from(uri));
        }
    }
    subscriptions.catch_up(&subscriber, Some(&request.snapshot));
    if !watched.is_empty() {
        honoured.insert("resourceSubscriptions".into(), watched.into());
    }
    let mut changes = SelectAll::new();
    let followed = follow(request, &asked.tasks, abilities, &mut changes);
    if !followed.is_empty() {
        honoured.insert("taskIds".into(), followed.into());
    }
    let tag: Value = serde_json::from_str(id).map_err(|_| RpcFailure::of(Reason::InvalidRequest))?;
    let acknowledged = json!({"notifications": honoured, "_meta": {SUBSCRIPTION_ID: tag}});
    let first = notification("notifications/subscriptions/acknowledged", acknowledged);
    let info = results::server_info(&request.server, revision);
    let last = json!({"resultType": "complete", "_meta": {SUBSCRIPTION_ID: tag, SERVER_INFO: info}});
    Ok(respond(NoticeStream {
        listening,
        tasks: changes,
        first: Some(events::message(&first, None)),
        resumable: None,
        // 2026-07-28 has no server requests.
        ping: None,
        tag: Some(tag),
        last: Some(events::message(&RpcResponse::result(id, &last).text, None)),
        ended: false,
    }))
}

/// Adds the changes of those tasks that the caller has at this gateway; returns their ids.
fn follow(
    request: &ProtocolRequest,
    ids: &[&str],
    abilities: ClientAbilities,
    changes: &mut SelectAll<tasks::TaskChanges>,
) -> Vec<Value> {
    let mut followed = Vec::new();
    for id in ids.iter().copied().map(Value::from) {
        let of_task = id.as_str().and_then(|id| tasks::changes(request, id, abilities));
        if let Some(of_task) = of_task.filter(|_| !followed.contains(&id)) {
            changes.push(of_task);
            followed.push(id);
        }
    }
    followed
}

/// The filter of a `subscriptions/listen`.
struct SubscriptionFilter<'a> {
    /// Flags in the order of [`LISTS`].
    lists: [bool; 3],
    resources: Vec<&'a str>,
    tasks: Vec<&'a str>,
}

impl SubscriptionFilter<'_> {
    fn of(message: &Message) -> Result<SubscriptionFilter<'_>, RpcFailure> {
        let wrong = |what: &str| RpcFailure::with(Reason::InvalidParams, what).in_call();
        let filter = message.param("notifications").and_then(Value::as_object);
        let filter = filter.ok_or_else(|| wrong("params.notifications must be an object"))?;
        let mut lists = [false; 3];
        for (name, list) in LISTS.into_iter().zip(&mut lists) {
            *list = match filter.get(name) {
                None | Some(Value::Null) => false,
                Some(Value::Bool(asked)) => *asked,
                Some(_) => return Err(wrong(&format!("params.notifications.{name} must be a boolean"))),
            };
        }
        let texts = |name: &str, most: usize| {
            let all = match filter.get(name) {
                None | Some(Value::Null) => &[],
                Some(Value::Array(all)) => all.as_slice(),
                Some(_) => return Err(wrong(&format!("params.notifications.{name} must be an array"))),
            };
            if all.len() > most {
                return Err(too_many());
            }
            let texts: Option<Vec<&str>> = all.iter().map(Value::as_str).collect();
            texts.ok_or_else(|| wrong(&format!("params.notifications.{name} must hold strings")))
        };
        let resources = texts("resourceSubscriptions", MAX_RESOURCES)?;
        let tasks = texts("taskIds", tasks::MAX_WATCHED)?;
        Ok(SubscriptionFilter { lists, resources, tasks })
    }
}

/// A stream of notices, and the messages it carries besides them.
struct NoticeStream {
    listening: ChangeStream,
    tasks: SelectAll<tasks::TaskChanges>,
    /// The first event.
    first: Option<String>,
    /// The resumable stream, if the client can resume it.
    resumable: Option<ResumableChanges>,
    /// Time of the next ping.
    ping: Option<Instant>,
    /// Id of the subscription, which every message of it carries.
    tag: Option<Value>,
    /// The last event.
    last: Option<String>,
    ended: bool,
}

impl NoticeStream {
    /// Returns the next event; `None` after the last.
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        tokio::select! {
            notice = self.listening.next() => match notice {
                Some((notice, position)) => {
                    let id = self.resumable.as_ref().and_then(|stream| stream.id(position));
                    Some(events::message(&notification_text(&notice, self.tag.as_ref()), id.as_deref()))
                }
                None => {
                    self.ended = true;
                    self.last.take()
                }
            },
            Some(task) = self.tasks.next(), if !self.tasks.is_empty() => {
                Some(events::message(&tagged("notifications/tasks", task, self.tag.as_ref()), None))
            }
            () = wait_until(self.ping) => {
                self.ping = Some(Instant::now() + PING_EVERY);
                let id = format!("ping.{:016x}", rand::random::<u64>());
                Some(events::message(&server_request(&id, ("ping", json!({}))), None))
            }
            () = tokio::time::sleep(KEEP_ALIVE) => Some(COMMENT.to_owned()),
        }
    }
}

fn respond(telling: NoticeStream) -> Response {
    respond_with(stream::unfold(telling, |mut telling| async move { Some((telling.next().await?, telling)) }))
}

/// Returns the session's subscriber, created when the session first listens or subscribes.
fn of(request: &ProtocolRequest, session: &LegacySession) -> Result<Arc<Subscriber>, RpcFailure> {
    let profile = Profile {
        server: request.server.message.name.clone(),
        revision: session.profile.revision,
        wants: [true; 3],
        lasts: true,
    };
    let subscriptions = &request.gateway.subscriptions;
    let subscriber = subscriptions.subscriber(session.sid(), profile, &request.snapshot, &request.caller);
    subscriber.map_err(|_| full())
}

fn full() -> RpcFailure {
    RpcFailure::with(
        Reason::RateLimited,
        "this user, this org or this gateway has too many subscribers to changes: close some, or try again",
    )
}

fn too_many() -> RpcFailure {
    let most = format!(
        "a client may subscribe to at most {MAX_RESOURCES} resources with {MAX_TEXT} bytes of URIs, and \
         users, orgs and the gateway have limits too: unsubscribe from some"
    );
    RpcFailure::with(Reason::RateLimited, &most).in_call()
}

/// Returns the digest of the primitive behind a resource that the caller may read.
fn readable(request: &ProtocolRequest, revision: Revision, uri: &str) -> Result<u64, RpcFailure> {
    let unknown = || results::unknown("resource", uri, revision);
    if uri.starts_with(artifact::SCHEME) {
        let never = "an artifact never changes and cannot be subscribed to";
        return Err(RpcFailure::with(Reason::InvalidParams, never).in_call());
    }
    let (entry, _) = resolve(&request.server, CallTarget::Resource(uri)).map_err(|_| unknown())?;
    if !request.gateway.pipeline.offers(&request.server, &entry) {
        return Err(unknown());
    }
    match entitle(&request.snapshot, &request.server, &request.caller, &entry, Protocol::Mcp) {
        Ok(_) => Ok(entry.digest),
        Err(Refusal::MissingScopes { required }) => Err(step_up(request, &required)),
        Err(_) => Err(unknown()),
    }
}

fn notification_text(notice: &Notice, tag: Option<&Value>) -> String {
    let (method, params) = message(notice);
    tagged(method, Members::of(&params.into()), tag)
}

/// Returns a notification with the id of its subscription.
fn tagged(method: &str, mut params: Members, tag: Option<&Value>) -> String {
    if let Some(tag) = tag {
        params.insert("_meta", json!({SUBSCRIPTION_ID: tag}));
    }
    notification(method, params.to_json())
}

fn message(notice: &Notice) -> (&'static str, Value) {
    match notice {
        Notice::Changed(NotifiedList::Tools) => ("notifications/tools/list_changed", json!({})),
        Notice::Changed(NotifiedList::Prompts) => ("notifications/prompts/list_changed", json!({})),
        Notice::Changed(NotifiedList::Resources) => ("notifications/resources/list_changed", json!({})),
        Notice::Updated(uri) => ("notifications/resources/updated", json!({"uri": uri})),
    }
}
