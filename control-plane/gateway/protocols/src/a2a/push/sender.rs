//! The sender of push notifications: takes what is due from the outbox, and sends each state to its receiver.
//!
//! Keeps true: each state is sent until its receiver has answered with success, or it is a dead letter; a receiver gets the
//! states of a task one after the other; answers are read to a bound and for a bounded time, and no redirect is followed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_a2a::{Task, TaskStatus, Timestamp};
use asp_call::call::State;
use asp_outbound::{body, retry_after, send_for};
use asp_pipeline::pipeline::lookup::{FoundCall, StoreFault};
use asp_pipeline::pushes::DuePush;
use http::StatusCode;
use reqwest::Response;
use tokio::time::{Instant, timeout};

use super::notification::Notification;
use super::pace::{crowded, is_dead, is_old, pause};
use crate::a2a::extensions::ActiveExtensions;
use crate::a2a::task::{self, TaskContents};
use crate::push::{ANSWERS_WITHIN, LanePlace, PushService};
use crate::replica::Replica;

/// Maximum number of deliveries of one claim.
const BATCH: u32 = 64;
/// Pause after a look, in which states that are stored together become one claim; and after one that found nothing, because
/// most states are those of calls without receivers.
const GATHERS: Duration = Duration::from_millis(20);
const RESTS: Duration = Duration::from_millis(50);
/// Time that a delivery waits for a place at its host before it is given back.
const WAITS: Duration = Duration::from_secs(5);
/// Time of an answer within which its receiver counts as quick.
const QUICK: Duration = Duration::from_secs(2);
/// Time within which a call whose end is stored has its outcome here.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Maximum size of an answer that is read, so that its connection can be used again.
const MAX_ANSWER: usize = 16 << 10;
/// Interval at which calls of lost gateways are looked for, and whether there are still receivers. While there are none, every
/// look of the sender asks for them.
const LOST_EVERY: Duration = Duration::from_secs(5);

/// Result of an attempt.
enum DeliveryResult {
    Received,
    /// No room, or a state that is not known here yet; nothing was sent.
    NotYet,
    Failed {
        fault: String,
        asked: Option<Duration>,
    },
    /// Failure that no further attempt changes.
    Refused(&'static str),
}

impl DeliveryResult {
    fn failed(fault: &str) -> DeliveryResult {
        DeliveryResult::Failed { fault: fault.to_owned(), asked: None }
    }

    /// Gives up a notification that has found no room for too long.
    fn after(self, pending: Duration) -> DeliveryResult {
        match self {
            DeliveryResult::NotYet if is_old(pending) => {
                DeliveryResult::Refused("there was no room to send it in time")
            }
            result => result,
        }
    }
}

/// Sends notifications until the replica is dropped; run it as a task.
pub async fn send(replica: Weak<Replica>) {
    let Some(pushes) = replica.upgrade().and_then(|gateway| Some(gateway.push.as_ref()?.pushes.clone()))
    else {
        return;
    };
    let mut looked: Option<Instant> = None;
    let mut is_failing = false;
    loop {
        pushes.wait().await;
        let Some(gateway) = replica.upgrade() else { return };
        let Some(service) = &gateway.push else { return };
        if gateway.pipeline.is_leaving() || gateway.snapshot().is_none() {
            tokio::time::sleep(GATHERS).await;
            continue;
        }
        let looks = !pushes.is_used() || looked.is_none_or(|at| at.elapsed() >= LOST_EVERY);
        if looks {
            looked = Some(Instant::now());
        }
        let done = look_and_send(&gateway, service, looks).await;
        match &done {
            Err(error) if !is_failing => {
                tracing::warn!(%error, "push notifications wait, because their outbox cannot be read: check the store");
            }
            Ok(_) | Err(_) => {}
        }
        is_failing = done.is_err();
        tokio::time::sleep(if done.unwrap_or(false) { GATHERS } else { RESTS }).await;
    }
}

/// Sends what is due; returns whether there was anything. `looks`: also looks for receivers and calls of lost gateways.
async fn look_and_send(
    gateway: &Arc<Replica>,
    service: &PushService,
    looks: bool,
) -> Result<bool, StoreFault> {
    if looks {
        look(service).await?;
    }
    if service.pushes.is_used() { send_due(gateway, service).await } else { Ok(false) }
}

async fn look(service: &PushService) -> Result<(), StoreFault> {
    service.pushes.look().await?;
    let mut lost = 0;
    loop {
        match service.pushes.fail_lost_calls().await? {
            0 => break,
            more => lost += more,
        }
    }
    if lost > 0 {
        tracing::warn!(
            calls = lost,
            "calls of lost gateways were stored as failed, and their receivers are notified"
        );
    }
    Ok(())
}

/// Sends everything that is due and has a place; returns whether there was anything.
async fn send_due(gateway: &Arc<Replica>, service: &PushService) -> Result<bool, StoreFault> {
    let mut found = false;
    loop {
        let room = u32::try_from(service.lanes.room()).unwrap_or(u32::MAX).min(BATCH);
        if room == 0 {
            return Ok(found);
        }
        let due = service.pushes.due(room).await?;
        found |= !due.is_empty();
        let is_last = due.len() < usize::try_from(room).unwrap_or(usize::MAX);
        for push in due {
            let place = service.lanes.enter(&host(&push), push.org());
            // In tasks of their own: none waits for another one.
            tokio::spawn(deliver(Arc::clone(gateway), push, place));
        }
        if is_last {
            return Ok(found);
        }
    }
}

/// Returns the host and port of a receiver; empty for one that does not open.
fn host(push: &DuePush) -> String {
    let url = push.receiver.as_ref().and_then(|receiver| reqwest::Url::parse(&receiver.url).ok());
    url.map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

/// Sends one notification, and stores the result.
async fn deliver(gateway: Arc<Replica>, push: DuePush, place: Option<LanePlace>) {
    let Some(service) = &gateway.push else { return };
    let busy = crowded(push.pending(), rand::random());
    let stored = match place {
        None => store(&gateway, service, &push, DeliveryResult::NotYet, busy).await,
        Some(mut place) => match place.start(WAITS).await {
            false => store(&gateway, service, &push, DeliveryResult::NotYet, busy).await,
            true => {
                let began = Instant::now();
                let attempt = attempt(&gateway, service, &push, &mut place).await;
                // Without a request there is no answer to judge the host by.
                if !matches!(attempt, DeliveryResult::NotYet) {
                    place.note(began.elapsed() < QUICK);
                }
                drop(place);
                store(&gateway, service, &push, attempt, busy).await
            }
        },
    };
    if let Err(error) = stored {
        // Its lease ends, and it is sent again.
        tracing::debug!(call = %push.call(), %error, "result of a push notification could not be stored");
    }
}

async fn store(
    gateway: &Replica,
    service: &PushService,
    push: &DuePush,
    attempt: DeliveryResult,
    busy: Duration,
) -> Result<bool, StoreFault> {
    let metrics = &gateway.metrics().pushes;
    let (fault, asked, is_final) = match attempt.after(push.pending()) {
        DeliveryResult::Received => {
            metrics.received(push.age());
            return Ok(service.pushes.end(push).await?);
        }
        DeliveryResult::NotYet => {
            metrics.ended("postponed");
            return Ok(service.pushes.postpone(push, busy).await?);
        }
        DeliveryResult::Failed { fault, asked } => (fault, asked, is_dead(push.attempts(), push.pending())),
        DeliveryResult::Refused(fault) => (fault.to_owned(), None, true),
    };
    metrics.ended(if is_final { "dead" } else { "failed" });
    if is_final {
        let is_buried = service.pushes.bury(push, &fault).await?;
        if is_buried {
            tracing::warn!(call = %push.call(), org = push.org(), attempts = push.attempts(), %fault, "push notification was not received and is a dead letter");
        }
        return Ok(is_buried);
    }
    let after = pause(push.attempts(), rand::random(), asked);
    Ok(service.pushes.retry(push, after, &fault).await?)
}

async fn attempt(
    gateway: &Arc<Replica>,
    service: &PushService,
    push: &DuePush,
    place: &mut LanePlace,
) -> DeliveryResult {
    let Some(receiver) = &push.receiver else {
        return DeliveryResult::Refused("the receiver was sealed with another key");
    };
    // Before it is read: a hundred results that are due at once would be as many copies.
    if !place.hold(push.bytes()) {
        return DeliveryResult::NotYet;
    }
    let found = match gateway.pipeline.peek_for_requester(push.call()).await {
        Ok(Some(found)) => found,
        Ok(None) => return DeliveryResult::Refused("the task is gone, or its caller may no longer see it"),
        Err(_) => return DeliveryResult::NotYet,
    };
    let Some(task) = task_of(&found, push).await else { return DeliveryResult::NotYet };
    // It has the whole result, and the receiver takes its time.
    drop(found);
    let Ok(destination) = service.destination(receiver) else {
        return DeliveryResult::Refused("the address is not allowed");
    };
    let Some(mut notification) = Notification::of(receiver, task) else {
        return DeliveryResult::Refused("a header cannot have the token or the credentials");
    };
    if !place.hold(notification.body.len().saturating_sub(push.bytes())) {
        return DeliveryResult::NotYet;
    }
    notification.sign(gateway, push, &destination.url).await;
    let Notification { headers, body } = notification;
    let request = destination.client.post(destination.url).headers(headers).body(body);
    let answer = async { Ok::<_, reqwest::Error>(read(send_for(push.org(), request).await?).await) };
    match timeout(ANSWERS_WITHIN, answer).await {
        Ok(Ok(attempt)) => attempt,
        Ok(Err(error)) => DeliveryResult::failed(reason(&error)),
        Err(_) => DeliveryResult::failed("no answer in time"),
    }
}

async fn read(response: Response) -> DeliveryResult {
    let status = response.status();
    let asked = retry_after(response.headers());
    // For the connection alone; a longer answer ends it.
    let _ = body(response, MAX_ANSWER).await;
    match status {
        status if status.is_success() => DeliveryResult::Received,
        StatusCode::GONE => DeliveryResult::Refused("HTTP 410"),
        status => DeliveryResult::Failed { fault: format!("HTTP {}", status.as_u16()), asked },
    }
}

/// Returns why there was no answer, without addresses.
fn reason(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection to a public address"
    } else {
        "the connection broke"
    }
}

/// Returns the task in the state that is due. If it has moved on since, its earlier state is reported alone; `None` if the
/// end is not known here yet.
async fn task_of(found: &FoundCall, push: &DuePush) -> Option<Task> {
    if let Some(call) = found.call().filter(|_| push.state().is_terminal()) {
        // The end is stored first, and reported afterwards.
        timeout(ENDS_WITHIN, call.finished()).await.ok()?;
    }
    let contents = TaskContents::with_history(Some(0), ActiveExtensions::NONE);
    let mut task = task::of_found(found, contents);
    if !push.state().is_terminal() && state(found) != push.state() {
        let status = TaskStatus { state: task::state_of(push.state()), ..TaskStatus::default() };
        task = Task { id: task.id, context_id: task.context_id, status, ..Task::default() };
    }
    task.status.timestamp = Some(Timestamp(push.at_ms()));
    Some(task)
}

fn state(found: &FoundCall) -> State {
    match found {
        FoundCall::Here(call) => call.outcome().map_or_else(|| call.state(), |outcome| outcome.state()),
        FoundCall::Elsewhere(call) => call.state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_that_finds_no_room_for_a_day_is_given_up_like_one_that_fails() {
        let day = Duration::from_secs(24 * 3600);
        assert!(matches!(DeliveryResult::NotYet.after(day), DeliveryResult::Refused(_)));
        assert!(matches!(DeliveryResult::NotYet.after(day / 2), DeliveryResult::NotYet));
        assert!(matches!(DeliveryResult::Received.after(day), DeliveryResult::Received));
    }
}
