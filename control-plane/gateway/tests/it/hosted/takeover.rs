//! Hosted calls that outlive their gateway: another one over the same stores finds them at their service.
//!
//! A gateway of these tests has no lease, so that another one takes it for dead at once.

use std::sync::Arc;

use asp_gateway::gateway::Gateway;
use asp_proto::snapshot::{GatewaySnapshot, Mutation};
use asp_runtime_client::runtimes::Runtimes;
use serde_json::{Value, json};

use super::{Service, Step, done, error, hosted, modern, reply, result, state};
use crate::support::{Answer, Fixture};

const ID: &str = "/base/v1/tools/their.order/calls/{id}";

fn gateway(service: &Service) -> Fixture {
    Fixture::of(hosted(&service.url, |primitive| primitive.set_mutation(Mutation::NonIdempotent)))
}

/// Another gateway, which takes over what is left behind.
fn successor(first: &Fixture, service: &Service) -> Fixture {
    successor_with(first, service, |_| {})
}

fn successor_with(first: &Fixture, service: &Service, change: impl Fn(&mut GatewaySnapshot)) -> Fixture {
    let second = first.beside(Runtimes::none());
    let mut snapshot = hosted(&service.url, |primitive| primitive.set_mutation(Mutation::NonIdempotent));
    snapshot.revision = 2;
    change(&mut snapshot);
    second.gateway.apply(snapshot).unwrap();
    tokio::spawn(Gateway::take_over_calls(Arc::downgrade(&second.gateway)));
    second
}

async fn order(fixture: &Fixture) -> Answer {
    let mut request = modern("order", json!({}));
    request.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    request.send(fixture).await
}

/// Begins the order, and returns once its gateway waits for the service.
async fn begun(first: &Fixture, service: &Service) -> tokio::task::JoinHandle<Answer> {
    let fixture = first.clone();
    let waiting = tokio::spawn(async move { order(&fixture).await });
    service.saw(&format!("GET {ID}")).await;
    waiting
}

#[tokio::test]
async fn a_call_left_behind_is_found_at_its_service_and_its_key_gets_the_answer() {
    let service = Service::start([state("running", json!({"etag": "1"})), Step::Hang, done()]).await;
    let first = gateway(&service);
    let _waiting = begun(&first, &service).await;
    let second = successor(&first, &service);
    let answer = order(&second).await;
    assert_eq!(result(&answer)["structuredContent"], json!({"ok": true}), "{}", answer.text);
    let seen = service.seen();
    assert_eq!(service.requests(), [format!("PUT {ID}"), format!("GET {ID}"), format!("PUT {ID}")]);
    assert!(seen.iter().all(|again| again.id == seen[0].id));
    assert_eq!(seen[0].header("idempotency-key"), seen[2].header("idempotency-key"));
    assert_eq!(seen[0].body, seen[2].body);
    assert!(!service.was_cancelled());
}

#[tokio::test]
async fn a_call_left_behind_that_the_service_does_not_know_is_unknown() {
    let service =
        Service::start([state("running", json!({"etag": "1"})), Step::Hang, reply(404, &json!({}))]).await;
    let first = gateway(&service);
    let _waiting = begun(&first, &service).await;
    let second = successor(&first, &service);
    assert_eq!(error(&order(&second).await).1, "outcome_unknown");
}

#[tokio::test]
async fn a_call_left_behind_whose_service_cannot_be_reached_any_more_is_unknown() {
    let service = Service::start([state("running", json!({"etag": "1"})), Step::Hang]).await;
    let first = gateway(&service);
    let _waiting = begun(&first, &service).await;
    let second = successor_with(&first, &service, |snapshot| snapshot.upstreams.clear());
    assert_eq!(error(&order(&second).await).1, "outcome_unknown");
    // Its key says so to everybody, also when the service is there again.
    let third = successor(&first, &service);
    assert_eq!(error(&order(&third).await).1, "outcome_unknown");
    assert_eq!(service.requests(), [format!("PUT {ID}"), format!("GET {ID}")]);
}

#[tokio::test]
async fn a_gateway_that_ends_leaves_the_call_at_its_service_and_another_one_finishes_it() {
    let service = Service::start([state("running", json!({"etag": "1"})), Step::Hang, done()]).await;
    let first = gateway(&service);
    let waiting = begun(&first, &service).await;
    first.gateway.stop().await;
    let told: Value = result(&waiting.await.unwrap());
    assert_eq!(told["_meta"]["asp/reason"], "upstream_unavailable", "{told}");
    assert!(!service.was_cancelled());
    let second = successor(&first, &service);
    assert_eq!(result(&order(&second).await)["structuredContent"], json!({"ok": true}));
    assert!(!service.was_cancelled());
}
