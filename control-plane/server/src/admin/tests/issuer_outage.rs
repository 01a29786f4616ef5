//! An outage of an issuer for an hour, the load on its return, and the expiry of keys that can no longer be fetched.

use std::time::Duration;

use asp_issuers::refresh::FRESH;
use asp_issuers::trust::STALE;
use asp_store::control::Side;
use axum::body::Body;
use http::{Request, StatusCode, header};
use serde_json::{Value, json};

use super::issuers::{LOGIN, api, key, kids};
use super::publisher::{DISCOVERY, Publisher};
use super::{Answer, Api, read};
use crate::testkit::TestIssuer;

const OPS: &str = "/api/issuers/admins/ops";
const STEP: Duration = Duration::from_secs(1);

/// Advances timers and the clock by a second, and waits for due fetches.
async fn second(api: &Api) {
    tokio::time::pause();
    tokio::time::advance(STEP).await;
    tokio::time::resume();
    api.trust.clock().pass(STEP);
    api.keeper.wait_until_fetched().await;
}

async fn pass(api: &Api, time: Duration) {
    for _ in 0..time.as_secs() {
        second(api).await;
    }
}

async fn ask(api: &Api, token: &str) -> Answer {
    let request = Request::get("/api/audit")
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {token}"));
    read(api.raw(request.body(Body::empty()).unwrap()).await).await
}

/// An issuer of admins, whose key `one` is published, and a token of it.
async fn of_admins(publisher: &Publisher, signer: &TestIssuer) -> (Api, String) {
    publisher.publish(&[named(signer, "one")]);
    let api = api(publisher).await;
    let document = json!({ "iss": publisher.origin, "orgs": ["*"] });
    assert_eq!(api.put("platform", OPS, document).await.status, StatusCode::OK);
    let token = signer.admin_of(&publisher.origin, "one", "platform");
    assert_eq!(ask(&api, &token).await.status, StatusCode::OK);
    (api, token)
}

fn named(signer: &TestIssuer, kid: &str) -> Value {
    let mut jwk = signer.jwk().clone();
    jwk["kid"] = json!(kid);
    jwk
}

#[tokio::test]
async fn away_for_an_hour_its_known_keys_go_on_and_it_is_asked_about_once_a_minute() {
    let publisher = Publisher::start().await;
    let signer = TestIssuer::new();
    let (api, known) = of_admins(&publisher, &signer).await;
    publisher.go_down();
    let before = publisher.asked(DISCOVERY);
    pass(&api, Duration::from_secs(3_600)).await;
    let asked = publisher.asked(DISCOVERY) - before;
    // From its time on, ten minutes after the last answer: 5, 10, 20, 40 and then 60 s apart, each a tenth more or less.
    assert!((40..=65).contains(&asked), "{asked} requests in an hour");
    assert_eq!(ask(&api, &known).await.status, StatusCode::OK, "a known key");
    let unknown = signer.admin_of(&publisher.origin, "two", "platform");
    let before = publisher.asked(DISCOVERY);
    for _ in 0..20 {
        let refused = ask(&api, &unknown).await;
        assert_eq!(
            (refused.status, &refused.body["code"]),
            (StatusCode::UNAUTHORIZED, &json!("token_invalid"))
        );
    }
    assert!(publisher.asked(DISCOVERY) - before <= 1, "unknown keys ask it once in half a minute");
    publisher.publish(&[named(&signer, "one"), named(&signer, "two")]);
    let before = publisher.asked(DISCOVERY);
    for _ in 0..70 {
        second(&api).await;
        futures::future::join_all((0..20).map(|_| api.keeper.refresh_of(Side::Admins, "ops"))).await;
    }
    let asked = publisher.asked(DISCOVERY) - before;
    // Its own time has come once, and 1,400 requests for newer keys are one in half a minute.
    assert!((1..=4).contains(&asked), "{asked} requests on its return");
    assert_eq!(ask(&api, &unknown).await.status, StatusCode::OK, "the new key");
}

#[tokio::test]
async fn the_return_of_many_issuers_at_one_place_is_no_storm() {
    const ISSUERS: usize = 20;
    let publisher = Publisher::start().await;
    let mut api = api(&publisher).await;
    for number in 0..ISSUERS {
        let path = format!("/realms/{number}");
        publisher.publish_at(&path, &[key("one")]);
        let document = json!({ "iss": format!("{}{path}", publisher.origin), "orgs": ["acme"] });
        let put = api.put("platform", &format!("/api/issuers/clients/realm{number}"), document).await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    }
    let all = |snapshot: &asp_proto::snapshot::GatewaySnapshot| {
        let issuers = snapshot.edge.as_ref().unwrap().issuers.iter();
        issuers.filter(|issuer| issuer.name.starts_with("realm") && issuer.keys.len() == 1).count() == ISSUERS
    };
    api.published(all).await;
    publisher.go_down();
    pass(&api, FRESH + Duration::from_secs(1_200)).await;
    for number in 0..ISSUERS {
        publisher.publish_at(&format!("/realms/{number}"), &[key("one"), key("two")]);
    }
    let before = publisher.asked_in_all();
    let mut most = 0;
    let mut last = before;
    for _ in 0..90 {
        second(&api).await;
        most = most.max(publisher.asked_in_all() - last);
        last = publisher.asked_in_all();
    }
    assert_eq!(last - before, 2 * ISSUERS, "each is asked for its metadata and its keys, once");
    assert!(most <= ISSUERS, "{most} of {} requests in one second", 2 * ISSUERS);
}

#[tokio::test]
async fn keys_end_in_time_while_nothing_is_written() {
    let publisher = Publisher::start().await;
    publisher.publish(&[key("one")]);
    let mut api = api(&publisher).await;
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["one"]).await;
    publisher.go_down();
    let revision = api.store.revision().await.unwrap();
    // One minute less than they may serve.
    pass(&api, STALE - Duration::from_secs(60)).await;
    assert_eq!(api.store.revision().await.unwrap(), revision, "nothing is written");
    assert_eq!(api.trust.in_force().wanted[0].keys, 1);
    pass(&api, Duration::from_secs(70)).await;
    api.published(|snapshot| snapshot.revision > revision && kids(snapshot).is_empty()).await;
    let audit = api.get("platform", "/api/audit").await.body;
    assert_eq!(audit[0]["action"], "issuer.stale", "{audit}");
    let status = api.get("platform", "/api/snapshot").await.body;
    assert!(status["faults"].to_string().contains("fetched too long ago"), "{status}");
    let noted = api.store.revision().await.unwrap();
    pass(&api, Duration::from_secs(120)).await;
    assert_eq!(api.store.revision().await.unwrap(), noted, "it is said once");
}

#[tokio::test]
async fn an_admin_token_by_a_new_key_is_taken_at_once() {
    let publisher = Publisher::start().await;
    let (old, new) = (TestIssuer::new(), TestIssuer::new());
    let (api, known) = of_admins(&publisher, &old).await;
    let token = new.admin_of(&publisher.origin, "two", "platform");
    publisher.publish(&[named(&old, "one"), named(&new, "two")]);
    tokio::time::pause();
    tokio::time::advance(asp_issuers::refresh::ASKED_GAP).await;
    tokio::time::resume();
    let before = publisher.asked("/keys");
    assert_eq!(ask(&api, &token).await.status, StatusCode::OK, "it waits until the issuer was asked");
    assert_eq!(publisher.asked("/keys"), before + 1);
    assert_eq!(ask(&api, &known).await.status, StatusCode::OK, "the old key is published still");
    // By the old key under the new one's name.
    let forged = old.admin_of(&publisher.origin, "two", "platform");
    assert_eq!(ask(&api, &forged).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(publisher.asked("/keys"), before + 1, "a known key asks nobody");
}
