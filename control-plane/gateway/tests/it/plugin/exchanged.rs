//! Plugins that show services a token of their caller's issuer, at a gateway where that cannot be had any more.
//!
//! A gateway of these tests has no lease, so that another one takes it for dead at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_proto::snapshot::{GatewaySnapshot, Mutation};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::json;

use super::last_result;
use super::resume::save;
use super::takeover::{call_id, request, row, row_ends, take_over};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::exchange::{asking, let_exchange, shows_exchanged};
use crate::support::{Fixture, snapshot};

/// An issuer that gives the token `given` for any other; how often it was asked.
struct Issuer {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    async fn start() -> Issuer {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let answer = move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            axum::Json(json!({"access_token": "given", "token_type": "Bearer", "expires_in": 60,
                       "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}))
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().route("/token", post(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Issuer { url, asked }
    }

    /// `fetch`, which may reach two services, shows them this issuer's tokens.
    fn snapshot(&self, mutation: Mutation) -> GatewaySnapshot {
        let mut snapshot = snapshot();
        for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "fetch") {
            primitive.set_mutation(mutation);
            primitive.scopes.clear();
            shows_exchanged(primitive);
        }
        let origins = ["https://api.example.com", "https://files.example.org"].map(String::from).to_vec();
        let_exchange(&mut snapshot, &self.url, origins);
        snapshot
    }
}

/// Another gateway with `living`, which has ended what it took over: a call that had saved once and shown a token.
async fn after_takeover(issuer: &Issuer, mutation: Mutation, living: &Runtime) -> Fixture {
    let shown = Arc::new(Mutex::new(String::new()));
    let seen = shown.clone();
    let dead = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let seen = seen.clone();
        async move {
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            *seen.lock() = invoke.access_token.clone();
            assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
            while worker.next().await.is_some() {}
        }
    }));
    let first = Fixture::lending(issuer.snapshot(mutation), asking(&issuer.url), dead.runtimes());
    let waiting = first.clone();
    tokio::spawn(async move { request("fetch", Some("k")).send(&waiting).await });
    row(&first, &dead, |row| row.seq == 1).await;
    assert_eq!(*shown.lock(), "given");
    let second = first.beside_lending(issuer.snapshot(mutation), asking(&issuer.url), living.runtimes());
    take_over(&second).await;
    row_ends(&first, call_id(&dead)).await;
    assert!(living.told.allocations.lock().is_empty(), "no worker was asked for");
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1, "nobody has a token to exchange");
    second
}

#[tokio::test]
async fn a_call_left_behind_is_run_by_no_worker_without_its_callers_token() {
    let issuer = Issuer::start().await;
    let living = Runtime::start(Script::of(|_, _| async { panic!("a worker got it") }));
    let second = after_takeover(&issuer, Mutation::NonIdempotent, &living).await;
    let told = last_result(&request("fetch", Some("k")).send(&second).await);
    assert_eq!(told["_meta"]["asp/reason"], "outcome_unknown", "{told}");
}

#[tokio::test]
async fn a_call_left_behind_that_may_be_repeated_runs_by_the_token_of_the_next_call() {
    let issuer = Issuer::start().await;
    let living = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        assert_eq!(invoke.access_token, "given");
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let second = after_takeover(&issuer, Mutation::Idempotent, &living).await;
    let told = last_result(&request("fetch", Some("k")).send(&second).await);
    assert_eq!(told["structuredContent"]["ok"], true, "{told}");
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 2);
}
