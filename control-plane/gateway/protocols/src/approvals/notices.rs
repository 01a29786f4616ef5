//! Notifications about requests for approval, to a chat or mail gateway that the operator names.
//!
//! Keeps true: a notification has who, what and the address of the page, and no arguments; it is signed by a key that is
//! published with those of agent cards; each is stored with its request and sent until it is received, for a bounded number
//! of attempts and as long as the request is open; answers are read to a bound, and no redirect is followed.

use std::sync::Weak;
use std::time::Duration;

use asp_call::clock::unix_seconds;
use asp_identity::minting::CardAlgorithm;
use asp_outbound::{Destination, body, retry_after, send_for};
use asp_pipeline::pipeline::approvals::{Approval, ApprovalState, ApprovalStoreError, NoticeClaim};
use asp_platform::time::rfc3339;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderName;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::address_of;
use crate::a2a::card::KEYS;
use crate::approval_webhook::ApprovalWebhook;
use crate::push::ANSWERS_WITHIN;
use crate::replica::Replica;

/// Maximum number of notifications that are on their way at a time.
const BATCH: u32 = 16;
/// Pause after a look.
const RESTS: Duration = Duration::from_millis(250);
/// Time for which nobody else sends a notification.
const LEASE: Duration = Duration::from_secs(60);
/// Pause after the first failure; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Number of attempts after which a notification is given up; the request stays in the lists.
const MAX_ATTEMPTS: u32 = 20;
/// Maximum size of an answer that is read, so that its connection can be used again.
const MAX_ANSWER: usize = 16 << 10;
/// Header with the signature: a JWT.
const SIGNATURE: HeaderName = HeaderName::from_static("asp-signature");
/// Type of the JWT, which no other token has (RFC 8725 section 3.11).
const JWT_TYPE: &str = "asp-approval+jwt";
/// Validity of a signature in seconds.
const SIGNED_FOR: u64 = 300;

/// Result of an attempt.
#[derive(Debug)]
enum NoticeResult {
    Received,
    Failed { fault: String, asked: Option<Duration> },
}

impl NoticeResult {
    fn failed(fault: &str) -> NoticeResult {
        NoticeResult::Failed { fault: fault.to_owned(), asked: None }
    }
}

/// Sends notifications until the replica is dropped; run it as a task.
pub async fn send(replica: Weak<Replica>) {
    if replica.upgrade().is_none_or(|gateway| gateway.approval_webhook.is_none()) {
        return;
    }
    let mut is_failing = false;
    loop {
        let Some(gateway) = replica.upgrade() else { return };
        let sent = send_due(&gateway).await;
        match &sent {
            Err(error) if !is_failing => {
                tracing::warn!(%error, "notifications of approvals wait, because they cannot be read: check the store");
            }
            Ok(()) | Err(_) => {}
        }
        is_failing = sent.is_err();
        drop(gateway);
        sleep(RESTS).await;
    }
}

/// Sends what is due, all at the same time.
async fn send_due(gateway: &Replica) -> Result<(), ApprovalStoreError> {
    let Some(webhook) = &gateway.approval_webhook else { return Ok(()) };
    let claim: NoticeClaim = rand::random();
    let due = gateway.pipeline.due_approval_notices(claim, LEASE, BATCH).await?;
    let sending = due.iter().map(|approval| deliver(gateway, webhook, claim, approval));
    futures::future::join_all(sending).await.into_iter().collect()
}

/// Sends one notification, and stores the result.
async fn deliver(
    gateway: &Replica,
    webhook: &ApprovalWebhook,
    claim: NoticeClaim,
    approval: &Approval,
) -> Result<(), ApprovalStoreError> {
    let id = approval.request.id;
    let pipeline = &gateway.pipeline;
    if approval.state != ApprovalState::Pending {
        return pipeline.end_approval_notice(id, claim).await;
    }
    let metrics = &gateway.metrics().approvals;
    let (fault, asked) = match attempt(gateway, webhook, approval).await {
        NoticeResult::Received => {
            metrics.noticed(approval.age);
            return pipeline.end_approval_notice(id, claim).await;
        }
        NoticeResult::Failed { fault, asked } => (fault, asked),
    };
    if approval.notices >= MAX_ATTEMPTS {
        metrics.notice("dead");
        tracing::warn!(approval = %Uuid::from_bytes(id), org = %approval.request.scope.org, %fault, "notification of a request for approval was given up; approvers find the request with asp approvals");
        return pipeline.end_approval_notice(id, claim).await;
    }
    metrics.notice("failed");
    tracing::debug!(approval = %Uuid::from_bytes(id), %fault, "notification of a request for approval failed and is sent again");
    pipeline.retry_approval_notice(id, claim, pause(approval.notices, asked)).await
}

/// Returns the pause after a number of attempts. `asked`: what the receiver asked for.
fn pause(attempts: u32, asked: Option<Duration>) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    let pause = FIRST_PAUSE.saturating_mul(doubled);
    pause.max(asked.unwrap_or_default()).min(LONGEST_PAUSE)
}

async fn attempt(gateway: &Replica, webhook: &ApprovalWebhook, approval: &Approval) -> NoticeResult {
    let Some(address) = address_of(gateway, approval.request.id, approval.expires_ms) else {
        return NoticeResult::failed("the address of the page cannot be sealed");
    };
    let Ok(Destination { client, url }) = webhook.destination() else {
        return NoticeResult::failed("the address is not valid");
    };
    let body_text = notice(approval, &address).to_string();
    let audience = url.origin().ascii_serialization();
    let mut request = client.post(url).header(CONTENT_TYPE, "application/json");
    if let Some(signature) = signature(gateway, &audience, approval, &body_text).await {
        request = request.header(SIGNATURE, signature);
    }
    let request = request.body(body_text);
    let answer = async {
        let response = send_for(&approval.request.scope.org, request).await?;
        let status = response.status();
        let asked = retry_after(response.headers());
        // For the connection alone; a longer answer ends it.
        let _ = body(response, MAX_ANSWER).await;
        Ok::<_, reqwest::Error>((status, asked))
    };
    match timeout(ANSWERS_WITHIN, answer).await {
        Ok(Ok((status, _))) if status.is_success() => NoticeResult::Received,
        Ok(Ok((status, asked))) => NoticeResult::Failed { fault: format!("HTTP {}", status.as_u16()), asked },
        // Its text has the URL, which may have a secret.
        Ok(Err(error)) if error.is_connect() => NoticeResult::failed("no connection"),
        Ok(Err(_)) => NoticeResult::failed("the connection broke"),
        Err(_) => NoticeResult::failed("no answer in time"),
    }
}

/// Returns the notification of a request, without its arguments: the page shows them to approvers.
fn notice(approval: &Approval, address: &str) -> Value {
    let request = &approval.request;
    let at = |ms: i64| rfc3339(u64::try_from(ms).unwrap_or_default());
    json!({
        "event": "approval.requested",
        "id": Uuid::from_bytes(request.id).to_string(),
        "org": request.scope.org,
        "user": request.requester,
        "machine": request.is_machine,
        "server": request.scope.server,
        "primitive": request.scope.primitive,
        "title": request.title,
        "protocol": request.protocol,
        "approvers": request.scope.approvers,
        "createdAt": at(approval.created_ms),
        "expiresAt": at(approval.expires_ms),
        "url": address,
    })
}

/// Returns a compact JWS (RFC 7515 section 7.1) with the digest of the body. `jti` is the same for each attempt. `None`
/// without a key.
async fn signature(gateway: &Replica, audience: &str, approval: &Approval, body: &str) -> Option<String> {
    let keys = gateway.card_keys.signers().await;
    let key = keys.iter().find(|key| key.public().algorithm() == CardAlgorithm::Es256)?;
    let issuer = &gateway.config.public_url;
    let now = unix_seconds();
    let header = json!({
        "alg": "ES256", "typ": JWT_TYPE, "kid": key.public().kid(), "jku": format!("{issuer}{KEYS}"),
    });
    let claims = json!({
        "iss": issuer, "aud": audience, "jti": Uuid::from_bytes(approval.request.id).to_string(),
        "org": approval.request.scope.org, "iat": now, "exp": now + SIGNED_FOR,
        "request_body_sha256": URL_SAFE_NO_PAD.encode(Sha256::digest(body.as_bytes())),
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&header), part(&claims));
    let signature = key.signature(message.as_bytes()).ok()?;
    Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_to_a_bound_and_a_receiver_may_ask_for_more() {
        let seconds =
            |attempts, asked: Option<u64>| pause(attempts, asked.map(Duration::from_secs)).as_secs();
        assert_eq!(
            [1, 2, 3, 9, 10, u32::MAX].map(|attempts| seconds(attempts, None)),
            [1, 2, 4, 256, 300, 300]
        );
        assert_eq!([seconds(1, Some(60)), seconds(1, Some(900))], [60, 300]);
    }
}
