//! Hosted calls that prove themselves by a token of the caller's issuer, and cannot any more: at another gateway, and after
//! the caller's token has ended.
//!
//! A gateway of these tests has no lease, so that another one takes it for dead at once.

use std::sync::Arc;
use std::time::Duration;

use asp_backends::outbound::auth::CallHeaders;
use asp_gateway::gateway::Gateway;
use asp_proto::snapshot::{GatewaySnapshot, Mutation};
use serde_json::{Value, json};

use super::{Service, Step, done, error, hosted, modern, reply, result, state};
use crate::support::exchange::{asking, let_exchange, shows_exchanged};
use crate::support::{Answer, Fixture, token_with_scopes};

const ORDER: &str = "/base/v1/tools/their.order/calls/{id}";
const SWEEP: &str = "/base/v1/tools/their.sweep/calls/{id}";

/// A token that lives for a minute.
fn given() -> Step {
    reply(
        200,
        &json!({"access_token": "given", "token_type": "Bearer", "expires_in": 60,
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}),
    )
}

/// Calls with effects at `service`, proved by tokens of `issuer`.
fn proved(service: &Service, issuer: &Service) -> GatewaySnapshot {
    let mut snapshot = hosted(&service.url, |primitive| {
        primitive.set_mutation(Mutation::NonIdempotent);
        primitive.max_runtime_seconds = 3600;
        primitive.input_timeout_seconds = 300;
        shows_exchanged(primitive);
    });
    let_exchange(&mut snapshot, &issuer.url, vec![service.url.clone()]);
    snapshot
}

async fn order(fixture: &Fixture) -> Answer {
    let mut request = modern("order", json!({}));
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    request.send(fixture).await
}

#[tokio::test]
async fn a_call_left_behind_cannot_be_proved_by_its_callers_token_and_ends_before_anything_is_sent() {
    let issuer = Service::start([given()]).await;
    let service = Service::start([state("running", json!({"etag": "1"})), Step::Hang, done()]).await;
    let first = Fixture::telling(proved(&service, &issuer), asking(&issuer.url), CallHeaders::default());
    let fixture = first.clone();
    let _waiting = tokio::spawn(async move { order(&fixture).await });
    let sent = service.saw(&format!("GET {ORDER}")).await;
    assert_eq!(sent.header("authorization"), "Bearer given");

    let second = first.beside_asking(proved(&service, &issuer), asking(&issuer.url));
    tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&second.gateway)));
    let told = error(&order(&second).await);
    assert_eq!(told.1, "outcome_unknown", "{told:?}");
    assert!(told.0.contains("may or may not"), "{told:?}");
    assert_eq!(service.requests(), [format!("PUT {ORDER}"), format!("GET {ORDER}")]);
    assert!(!service.was_cancelled(), "not even that");
    assert_eq!(issuer.requests(), ["POST /token"], "nobody has a token to exchange");
}

#[tokio::test]
async fn a_call_whose_proof_ends_with_its_callers_token_is_of_unknown_outcome() {
    let issuer = Service::start([given(), reply(400, &json!({"error": "invalid_grant"}))]).await;
    let request = json!({"method": "elicitation/create", "params": {"message": "Which one?", "requestedSchema": {
        "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}});
    let asks = state(
        "awaitingElicitationResult",
        json!({"etag": "1", "elicitationRequest": request, "serverData": 1}),
    );
    let service = Service::start([asks, state("running", json!({"etag": "2"}))]).await;
    let fixture = Fixture::telling(proved(&service, &issuer), asking(&issuer.url), CallHeaders::default());
    let can = json!({"elicitation": {}});
    let asked = result(&modern("sweep", json!({})).capabilities(can.clone()).send(&fixture).await);
    assert_eq!(asked["resultType"], "input_required", "{asked}");

    // Its client answers with a fresh token, by which the call was not begun.
    let answers: serde_json::Map<String, Value> = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .map(|id| (id.clone(), json!({"action": "accept", "content": {"name": "Ada"}})))
        .collect();
    let extra = json!({"requestState": asked["requestState"], "inputResponses": answers});
    let mut answering = modern("sweep", extra).capabilities(can);
    answering.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
    let fresh = format!("Bearer {}", token_with_scopes("alice", "fresh"));
    let answering = answering.with("authorization", &fresh);
    let coming = fixture.clone();
    let waiting = tokio::spawn(async move { answering.send(&coming).await });
    service.saw(&format!("POST {SWEEP}/advance")).await;
    // What its issuer gave is over, and gives nothing any more for a token that has ended.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let told = error(&waiting.await.unwrap());
    assert_eq!(told.1, "outcome_unknown", "{told:?}");
    assert!(told.0.contains("may or may not"), "{told:?}");
    assert_eq!(issuer.requests().len(), 2);
}
