//! Credentials that a gateway leases to a runtime for a plugin's requests, and that no worker gets (I-8).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_identity::issuers::IssuerDeps;
use asp_identity::issuers::credentials::{Credential as Kept, Kind, OauthClient};
use asp_proto::snapshot::service_auth::Kind as Way;
use asp_proto::snapshot::{GatewaySnapshot, ServiceAuth};
use asp_proto::supervisor::{Credential, EnsurePluginRequest, tunnel_event};
use axum::routing::post;
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};

use super::{call, last_result, until};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, snapshot};

const SECRET: &str = "t0ken-t0ken-t0ken";

/// `fetch`, which may reach `api.example.com`, works with the credential of this name.
fn with_credential(name: &str) -> GatewaySnapshot {
    let mut snapshot = snapshot();
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "fetch") {
        primitive.service_auth = Some(ServiceAuth { kind: Some(Way::Credential(name.into())) });
        primitive.scopes.clear();
    }
    snapshot
}

fn gateway(runtime: &Runtime, name: &str, origin: &str, primitives: &[&str], kind: Kind) -> Fixture {
    let primitives = primitives.iter().map(|pattern| (*pattern).to_owned()).collect();
    let kept = Kept { origin: origin.to_owned(), primitives, kind };
    let credentials = HashMap::from([("crm".to_owned(), kept)]);
    let deps = IssuerDeps { credentials, ..IssuerDeps::default() };
    Fixture::lending(with_credential(name), deps, runtime.runtimes())
}

const SERVICE: &str = "https://api.example.com";
const EVERY: &[&str] = &["plugins/*"];

fn bearer() -> Kind {
    Kind::Bearer(SECRET.into())
}

#[tokio::test]
async fn a_credential_goes_to_the_runtime_with_the_request_for_a_worker_and_to_no_worker() {
    let given = Arc::new(Mutex::new(Vec::new()));
    let seen = given.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let seen = seen.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            seen.lock().push(invoke.encode_to_vec());
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let fixture = gateway(&runtime, "crm", SERVICE, EVERY, bearer());
    let result = last_result(&call(&fixture, "fetch", json!({})).await);
    assert_eq!(result["structuredContent"]["ok"], true, "{result}");
    let allocation = runtime.told.allocations.lock()[0].clone();
    let lent = allocation.credential.clone().unwrap();
    assert_eq!((lent.origin.as_str(), lent.header.as_str()), (SERVICE, "authorization"));
    assert_eq!(lent.value, format!("Bearer {SECRET}"));
    assert_eq!(allocation.plugin.as_ref().unwrap().credential, "crm");
    let work = allocation.work.as_ref().map(|work| work.value.clone()).unwrap_or_default();
    for message in given.lock().iter().chain([&work]) {
        assert!(!String::from_utf8_lossy(message).contains(SECRET));
    }
    let is_its = |request: &EnsurePluginRequest| {
        request.plugin.as_ref().is_some_and(|plugin| plugin.credential == "crm")
    };
    // Nobody waits for that beside the call.
    until("its workers are prepared", || runtime.told.ensured.lock().iter().any(is_its)).await;
}

#[tokio::test]
async fn a_credential_that_the_primitive_may_not_use_or_whose_service_it_may_not_reach_is_not_lent() {
    for (name, origin, primitives, said) in [
        ("crm", "https://crm.example.com", EVERY, "allowedDomains"),
        ("crm", "https://example.com", EVERY, "allowedDomains"),
        ("crm", SERVICE, &["other/*", "plugins/order"][..], "could not authenticate"),
        ("crm", SERVICE, &[][..], "could not authenticate"),
        ("unknown", SERVICE, EVERY, "could not authenticate"),
    ] {
        let runtime = Runtime::start(Script::of(|_, _| async {}));
        let fixture = gateway(&runtime, name, origin, primitives, bearer());
        let result = last_result(&call(&fixture, "fetch", json!({})).await).to_string();
        assert!(
            result.contains(said) && result.contains("upstream_unavailable"),
            "{name} {origin}: {result}"
        );
        assert!(!result.contains(SECRET));
        assert!(runtime.told.allocations.lock().is_empty(), "no worker is asked for");
    }
}

/// The token endpoint of an issuer, whose tokens live so long and are numbered; and the client that asks there.
async fn issuer(seconds: f64) -> Kind {
    let count = Arc::new(AtomicUsize::new(0));
    let answer = move || {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let token: Value =
            json!({"access_token": format!("given-{number}"), "token_type": "Bearer", "expires_in": seconds});
        async move { axum::Json(token) }
    };
    let router = axum::Router::new().route("/token", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let token_url = format!("http://{}/token", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Kind::Client(OauthClient {
        token_url,
        id: "gateway".into(),
        secret: "s3cret".into(),
        scopes: Vec::new(),
        audience: None,
    })
}

/// The next credential that the runtime is sent for the tunnel.
async fn renewed(worker: &mut Worker) -> String {
    let any = worker.any().await.unwrap();
    assert_eq!(any.type_url, "type.googleapis.com/asp.runtime.supervisor.v1.Credential");
    let credential = Credential::decode(any.value.as_slice()).unwrap();
    assert_eq!(credential.origin, SERVICE);
    credential.value
}

#[tokio::test]
async fn a_token_that_ends_while_the_call_runs_is_renewed_for_the_worker() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let values = [renewed(&mut worker).await, renewed(&mut worker).await];
        worker.complete(&invoke, &json!({ "ok": true, "values": values })).await;
    }));
    let fixture = gateway(&runtime, "crm", SERVICE, EVERY, issuer(0.4).await);
    let result = last_result(&call(&fixture, "fetch", json!({})).await);
    assert_eq!(
        result["structuredContent"]["values"],
        json!(["Bearer given-2", "Bearer given-3"]),
        "{result}"
    );
    let first = runtime.told.allocations.lock()[0].credential.clone().unwrap();
    assert_eq!(first.value, "Bearer given-1");
}

#[tokio::test]
async fn a_token_that_the_service_refuses_is_renewed_when_it_is_no_longer_young() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let refused = tunnel_event::Type::CredentialRefused;
        // It is as young as it can be: the service takes none, whatever it is.
        worker.event(refused, "", &[]).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        tokio::time::resume();
        worker.event(refused, "", &[]).await;
        let value = renewed(&mut worker).await;
        worker.complete(&invoke, &json!({ "ok": true, "value": value })).await;
    }));
    let fixture = gateway(&runtime, "crm", SERVICE, EVERY, issuer(300.0).await);
    let result = last_result(&call(&fixture, "fetch", json!({})).await);
    assert_eq!(result["structuredContent"]["value"], "Bearer given-2", "{result}");
}
