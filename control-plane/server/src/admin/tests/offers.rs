//! Offers of servers, and the limits of an org's admin (I-12).

use asp_store::control::{Change, ExposureRecord, MAX_OFFERS_PER_SERVER, OfferRecord};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::issuers::{LOGIN, key, kids};
use super::publisher::Publisher;
use super::{Api, sample};

/// Its file has `defaultExposure: deny`.
const HIDDEN: &str = "webex-compliance";
const SERVER: &str = "/api/registry/servers/webex-compliance";
const TO_ACME: &str = "/api/registry/servers/webex-compliance/offers/acme";
/// Nothing speaks of acme yet.
const OFFER: &str = "/api/registry/servers/webex-compliance/offers/acme?force=true";
const EXPOSURE: &str = "/api/policy/orgs/acme/exposure";

fn switch(server: &str, enabled: bool) -> Value {
    json!({ "server": server, "protocol": "mcp", "enabled": enabled })
}

/// Whether the published edge and gateway snapshots have it open to acme over MCP.
fn opens(snapshot: &asp_proto::snapshot::GatewaySnapshot) -> bool {
    let of_acme = |e: &asp_proto::snapshot::ExposureException| {
        (e.org.as_str(), e.server.as_str(), e.enabled) == ("acme", HIDDEN, true)
    };
    snapshot.edge.as_ref().unwrap().exposure_exceptions.iter().any(of_acme)
}

async fn with_hidden() -> Api {
    let api = Api::start().await;
    let stored = api.put("platform", SERVER, sample(HIDDEN)).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
    api
}

async fn explained(api: &Api, role: &str, server: &str, primitive: &str) -> Value {
    let question = json!({
        "org": "acme", "user": "alice", "server": server, "primitive": primitive, "protocol": "mcp"
    });
    let mut answer = api.send(role, Method::POST, "/api/policy/explain", Some(question), &[]).await.body;
    answer.as_object_mut().unwrap().remove("revision");
    answer
}

#[tokio::test]
async fn what_is_offered_to_too_many_is_switched_on_for_no_more_and_nothing_is_half_written() {
    let api = with_hidden().await;
    let change = Change::unconditional("ops", 1);
    for org in 0..MAX_OFFERS_PER_SERVER {
        let offer = OfferRecord { server: HIDDEN.into(), org: format!("org-{org}") };
        api.store.put_offer(&change, &offer).await.unwrap();
    }
    let refused = api.put("platform", EXPOSURE, switch(HIDDEN, true)).await;
    assert_eq!(refused.body["code"], "limit_reached", "{}", refused.body);
    assert!(refused.body["detail"].as_str().unwrap().contains("offers of one server"), "{}", refused.body);
    assert_eq!(api.store.exposure("acme").await.unwrap().value, [], "it would count later");
    let known = "/api/policy/orgs/org-7/exposure";
    assert_eq!(api.put("platform", known, switch(HIDDEN, true)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_org_admin_opens_nothing_that_is_not_offered_and_is_answered_as_for_nothing() {
    let mut api = with_hidden().await;
    for enabled in [true, false] {
        let hidden = api.put("org:acme", EXPOSURE, switch(HIDDEN, enabled)).await;
        let unknown = api.put("org:acme", EXPOSURE, switch("nowhere", enabled)).await;
        assert_eq!((hidden.status, unknown.status), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
        assert_eq!(hidden.body, unknown.body);
    }
    let listed = api.get("org:acme", "/api/registry/orgs/acme/primitives").await.body;
    assert!(!listed.to_string().contains(HIDDEN), "{listed}");
    api.published(|snapshot| snapshot.servers.iter().any(|server| server.name == HIDDEN)).await;
    let hidden = explained(&api, "org:acme", HIDDEN, "cc.compliance.search").await;
    for (server, primitive) in [("nowhere", "x"), (HIDDEN, "nothing")] {
        assert_eq!(explained(&api, "org:acme", server, primitive).await, hidden);
    }
    assert_eq!(explained(&api, "platform", "nowhere", "x").await["outcome"], "unknown_server");
    let standing = "/api/registry/orgs/acme/servers";
    for server in [HIDDEN, "nowhere"] {
        assert_eq!(api.get("org:acme", &format!("{standing}/{server}")).await.status, StatusCode::NOT_FOUND);
    }

    let offered = api.send("platform", Method::PUT, OFFER, None, &[]).await;
    assert_eq!(offered.status, StatusCode::OK, "{}", offered.body);
    assert_eq!(offered.body["offers"], json!([{ "org": "acme", "by": "offer" }]));
    let listed = api.get("org:acme", "/api/registry/orgs/acme/primitives").await.body;
    let exposure = listed.as_array().unwrap().iter().find(|entry| entry["server"] == HIDDEN).unwrap();
    assert_eq!(exposure["exposure"]["mcp"], Value::Null, "offered, and off");
    assert_eq!(api.put("org:acme", EXPOSURE, switch(HIDDEN, true)).await.status, StatusCode::OK);
    api.published(opens).await;
    let seen = api.get("org:acme", &format!("{standing}/{HIDDEN}")).await.body;
    assert_eq!((&seen["offered"], &seen["on"][0]["on"]), (&json!(true), &json!(true)), "{seen}");
    assert_eq!(
        api.put("org:other", "/api/policy/orgs/other/exposure", switch(HIDDEN, true)).await.status,
        404
    );

    let withdrawn = api.send("platform", Method::DELETE, TO_ACME, None, &[]).await;
    assert_eq!(withdrawn.status, StatusCode::OK);
    api.published(|snapshot| !opens(snapshot)).await;
    assert_eq!(api.put("org:acme", EXPOSURE, switch(HIDDEN, true)).await.status, StatusCode::NOT_FOUND);
    api.send("platform", Method::PUT, OFFER, None, &[]).await;
    api.published(opens).await;
}

#[tokio::test]
async fn an_explanation_names_no_issuer_of_a_server_that_is_not_offered() {
    let publisher = Publisher::start().await;
    publisher.publish(&[key("one")]);
    let mut api = Api::with_issuers(vec![publisher.origin.clone()]).await;
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["one"]).await;
    let mut files = sample(HIDDEN);
    for file in files["files"].as_array_mut().unwrap() {
        file["text"] =
            file["text"].as_str().unwrap().replace("issuers: [dev]", "issuers: [dev, login]").into();
    }
    let stored = api.put("platform", SERVER, files).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
    api.published(|snapshot| snapshot.servers.iter().any(|server| server.name == HIDDEN)).await;
    let hidden = explained(&api, "org:acme", HIDDEN, "cc.compliance.search").await;
    assert_eq!(hidden, explained(&api, "org:acme", "nowhere", "x").await);
    let known = explained(&api, "platform", HIDDEN, "cc.compliance.search").await;
    assert_eq!(known["issuers"], json!(["dev", "login"]), "both speak for acme: {known}");
}

#[tokio::test]
async fn a_server_is_offered_by_the_platform_and_its_own_admins_alone() {
    let api = with_hidden().await;
    let offer = async |role: &str, method: Method| api.send(role, method, OFFER, None, &[]).await.status;
    for role in ["org:acme", "platform:read", "server:webex-compliance:read"] {
        assert_eq!(offer(role, Method::PUT).await, StatusCode::FORBIDDEN, "{role}");
    }
    for role in ["server:demo", "installer"] {
        assert_eq!(offer(role, Method::PUT).await, StatusCode::NOT_FOUND, "{role}");
    }
    assert_eq!(offer("server:webex-compliance", Method::GET).await, StatusCode::NOT_FOUND);
    assert_eq!(offer("server:webex-compliance", Method::PUT).await, StatusCode::OK);
    assert_eq!(offer("server:webex-compliance", Method::GET).await, StatusCode::OK);
    let audit = api.get("org:acme", "/api/audit").await.body;
    assert_eq!(
        (&audit[0]["action"], &audit[0]["actor"]),
        (&json!("offer.put"), &json!("ops@server:webex-compliance"))
    );
    let list = api.get("platform", &format!("{SERVER}/offers")).await;
    let stale = [("if-match", "\"1\"")];
    let refused = api.send("platform", Method::DELETE, TO_ACME, None, &stale).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED);
    let etag = list.etag.unwrap();
    let fresh = [("if-match", etag.as_str())];
    assert_eq!(api.send("platform", Method::DELETE, TO_ACME, None, &fresh).await.status, StatusCode::OK);
    assert_eq!(offer("platform", Method::DELETE).await, StatusCode::NOT_FOUND);
    let pattern = "/api/registry/servers/webex-compliance/offers/ac*";
    assert_eq!(api.send("platform", Method::PUT, pattern, None, &[]).await.status, StatusCode::BAD_REQUEST);
    let unknown = "/api/registry/servers/nowhere/offers/acme";
    assert_eq!(api.send("platform", Method::PUT, unknown, None, &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_the_file_offers_is_withdrawn_in_the_file_and_what_the_platform_switches_on_is_offered() {
    let mut api = with_hidden().await;
    let mut files = sample(HIDDEN);
    let list = files["files"].as_array_mut().unwrap();
    let file = list.iter_mut().find(|file| file["path"] == "webex-compliance/server.yaml").unwrap();
    let text = file["text"].as_str().unwrap().replace("deny\n", "deny\nofferedTo: [globex]\n");
    file["text"] = json!(text);
    let stored = api.put("platform", SERVER, files).await;
    assert_eq!(stored.body["changed"], true, "{}", stored.body);
    let globex = format!("{SERVER}/offers/globex");
    let by_file = api.get("platform", &globex).await.body;
    assert_eq!(by_file["by"], "server.yaml");
    let refused = api.send("platform", Method::DELETE, &globex, None, &[]).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::CONFLICT, &json!("offered_by_server")));
    let on = api.put("org:globex", "/api/policy/orgs/globex/exposure", switch(HIDDEN, true)).await;
    assert_eq!(on.status, StatusCode::OK);

    assert_eq!(api.put("platform", EXPOSURE, switch(HIDDEN, true)).await.status, StatusCode::OK);
    assert_eq!(api.get("platform", TO_ACME).await.body["by"], "offer");
    api.published(opens).await;
}

#[tokio::test]
async fn what_was_switched_on_before_there_were_offers_opens_nothing_and_is_found() {
    let mut api = with_hidden().await;
    let record =
        ExposureRecord { org: "acme".into(), server: HIDDEN.into(), protocol: "mcp".into(), enabled: true };
    let change = Change::unconditional("before", 1);
    api.store.put_exposure(&change, &record).await.unwrap();
    api.send(
        "platform",
        Method::PUT,
        "/api/registry/servers/webex-compliance/offers/other?force=true",
        None,
        &[],
    )
    .await;
    api.published(|snapshot| snapshot.revision == 3).await;
    assert!(!opens(&api.xds_state.borrow().snapshot.clone().unwrap().whole()));
    let compiler = crate::catalog::Compiler::new(crate::catalog::StaticConfig {
        public_url: "http://127.0.0.1:8080".into(),
        dev: true,
        workers: 1,
        trust: api.trust.clone(),
        upstreams: Vec::new(),
        default_agent: String::new(),
        agent_hosts: Vec::new(),
        all_servers: false,
        unauthenticated_rate: 0,
    });
    let vain =
        async || crate::catalog::offers::ineffective_exposures(&compiler, &api.store.load().await.unwrap());
    assert_eq!(vain().await, [record]);
    let offer = OfferRecord { server: HIDDEN.into(), org: "acme".into() };
    api.store.put_offer(&change, &offer).await.unwrap();
    assert_eq!(vain().await, []);
}

#[tokio::test]
async fn an_offer_to_an_org_that_nothing_speaks_of_is_refused_unless_forced_and_makes_it_no_better_known() {
    let mut api = with_hidden().await;
    api.put("platform", EXPOSURE, switch(HIDDEN, true)).await;
    api.published(opens).await;
    let mistyped = format!("{SERVER}/offers/acmee");
    let offered = async |role: &str, path: &str| api.send(role, Method::PUT, path, None, &[]).await;
    let refused = offered("platform", &mistyped).await;
    let detail = refused.body["detail"].as_str().unwrap();
    assert_eq!(
        (refused.status, &refused.body["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("unknown_name"))
    );
    assert!(detail.starts_with("no org is called acmee: did you mean acme?"), "{detail}");
    assert_eq!(api.send("platform", Method::GET, &mistyped, None, &[]).await.status, StatusCode::NOT_FOUND);

    assert_eq!(offered("platform", &format!("{mistyped}?force=true")).await.status, StatusCode::OK);
    let other = offered("platform", &mistyped).await;
    assert_eq!(other.body["code"], "unknown_name", "an offer does not make an org known");
    assert_eq!(offered("platform", TO_ACME).await.status, StatusCode::OK, "what it switched on does");
}

#[tokio::test]
async fn the_admins_of_a_server_are_answered_alike_for_an_org_that_there_is_and_for_none() {
    let mut api = with_hidden().await;
    api.put("platform", EXPOSURE, switch(HIDDEN, true)).await;
    api.published(opens).await;
    let mut answers = Vec::new();
    for org in ["acme", "nobody"] {
        let path = format!("{SERVER}/offers/{org}");
        // What the platform switched on was offered with it.
        api.send("platform", Method::DELETE, &path, None, &[]).await;
        let answer = api.send("server:webex-compliance", Method::PUT, &path, None, &[]).await;
        answers.push((answer.status, answer.body.to_string().replace(org, "ORG")));
        api.send("platform", Method::DELETE, &path, None, &[]).await;
    }
    assert_eq!(answers[0].0, StatusCode::OK, "{}", answers[0].1);
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test]
async fn a_server_that_there_is_not_is_named_to_the_platform_with_the_one_that_was_meant() {
    let api = with_hidden().await;
    for path in
        ["/api/registry/orgs/acme/servers/webex-complianse", "/api/registry/servers/webex-complianse/offers"]
    {
        let seen = api.get("platform:read", path).await;
        assert_eq!((seen.status, &seen.body["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
        assert_eq!(
            seen.body["detail"],
            "no server is called webex-complianse: did you mean webex-compliance?"
        );
    }
    let hidden = api.get("org:acme", "/api/registry/orgs/acme/servers/webex-compliance").await;
    let unknown = api.get("org:acme", "/api/registry/orgs/acme/servers/webex-complianse").await;
    assert_eq!((hidden.status, hidden.body), (StatusCode::NOT_FOUND, unknown.body));
}
