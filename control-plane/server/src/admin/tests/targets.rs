//! Targets of policy and limits: users of one issuer, and machines.

use asp_edge::MACHINE_ISSUER;
use asp_proto::snapshot::GatewaySnapshot;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::issuers::{LOGIN, key, kids};
use super::publisher::Publisher;
use super::{Api, DEMO, sample};

const BINDINGS: &str = "/api/policy/orgs/acme/bindings";
const LIMITS: &str = "/api/ratelimits/orgs/acme";

fn binding(target: Value, allowed: bool) -> Value {
    json!({ "target": target, "primitive": { "name": "echo", "protocol": "*" }, "allowed": allowed })
}

fn limit(selector: Value) -> Value {
    json!([{ "selector": selector, "policy": { "capacity": 1, "refill": "1/s" } }])
}

fn whole(api: &Api) -> GatewaySnapshot {
    api.xds_state.borrow().snapshot.clone().unwrap().whole()
}

async fn with_demo() -> Api {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    api
}

#[tokio::test]
async fn a_binding_of_one_issuer_or_of_a_machine_is_stored_published_and_deleted_by_its_target() {
    let mut api = with_demo().await;
    let alice = binding(json!({ "type": "user", "idOrPattern": "alice" }), true);
    let of_dev = binding(json!({ "type": "user", "idOrPattern": "alice", "issuer": "dev" }), false);
    let machine = binding(json!({ "type": "machine", "idOrPattern": "alice" }), false);
    for body in [&alice, &of_dev, &machine] {
        let stored = api.put("org:acme", BINDINGS, body.clone()).await;
        assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
    }
    let listed = api.get("org:acme", BINDINGS).await.body;
    assert_eq!(listed, json!([machine, alice, of_dev]), "three bindings");
    api.published(|snapshot| snapshot.bindings.len() == 3).await;
    let snapshot = whole(&api);
    let mut issuers: Vec<&str> = snapshot.bindings.iter().map(|binding| binding.issuer.as_str()).collect();
    issuers.sort_unstable();
    assert_eq!(issuers, ["", MACHINE_ISSUER, "dev"]);
    let gone = format!("{BINDINGS}?targetType=user&idOrPattern=alice&primitive=echo&issuer=dev");
    assert_eq!(api.send("org:acme", Method::DELETE, &gone, None, &[]).await.status, StatusCode::OK);
    assert_eq!(api.get("org:acme", BINDINGS).await.body, json!([machine, alice]));
}

#[tokio::test]
async fn a_target_that_makes_no_sense_or_names_an_unknown_issuer_is_refused() {
    let api = with_demo().await;
    for target in [
        json!({ "type": "machine", "idOrPattern": "press", "issuer": "dev" }),
        json!({ "type": "user", "idOrPattern": "alice", "issuer": MACHINE_ISSUER }),
        json!({ "type": "user", "idOrPattern": "alice", "issuer": "d*" }),
    ] {
        let refused = api.put("org:acme", BINDINGS, binding(target, true)).await;
        assert_eq!(refused.body["code"], "invalid_params", "{}", refused.body);
    }
    for selector in [
        json!({ "machine": "press", "user": "alice" }),
        json!({ "machine": "press", "issuer": "dev" }),
        json!({ "machine": "p*" }),
        json!({ "issuer": MACHINE_ISSUER }),
    ] {
        let refused = api.put("org:acme", LIMITS, limit(selector)).await;
        assert_eq!(refused.body["code"], "invalid_params", "{}", refused.body);
    }
    let typo = binding(json!({ "type": "user", "idOrPattern": "alice", "issuer": "dex" }), true);
    let refused = api.put("org:acme", &format!("{BINDINGS}?force=false"), typo.clone()).await;
    assert_eq!(refused.body["code"], "unknown_name", "{}", refused.body);
    assert!(refused.body["detail"].as_str().unwrap().contains("did you mean dev?"), "{}", refused.body);
    let path = format!("{LIMITS}?force=false");
    let refused = api.put("org:acme", &path, limit(json!({ "issuer": "dex" }))).await;
    assert_eq!(refused.body["code"], "unknown_name", "{}", refused.body);
    let forced = api.put("org:acme", &format!("{BINDINGS}?force=true"), typo).await;
    assert_eq!(forced.status, StatusCode::OK, "{}", forced.body);
}

/// Two issuers serve acme: the development issuer, and `login`.
async fn with_two_issuers(publisher: &Publisher) -> Api {
    publisher.publish(&[key("one")]);
    let mut api = Api::with_issuers(vec![publisher.origin.clone()]).await;
    api.put("platform", DEMO, sample("demo")).await;
    let alice = binding(json!({ "type": "user", "idOrPattern": "alice" }), true);
    let put = api.put("org:acme", BINDINGS, alice).await;
    assert_eq!(put.status, StatusCode::OK, "one issuer alone: {}", put.body);
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["one"]).await;
    api
}

#[tokio::test]
async fn what_allows_a_name_says_of_which_issuer_where_several_speak_for_the_org() {
    let publisher = Publisher::start().await;
    let mut api = with_two_issuers(&publisher).await;
    let target = |kind: &str, name: &str| json!({ "type": kind, "idOrPattern": name });
    for open in
        [target("user", "alice"), target("user", "al*"), target("group", "finance"), target("wcit", "t-1")]
    {
        // No force stores it.
        let refused = api.put("org:acme", BINDINGS, binding(open, true)).await;
        assert_eq!(
            (refused.status, &refused.body["code"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("ambiguous_name")),
            "{}",
            refused.body
        );
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.contains("dev; login") && detail.contains("--issuer"), "{detail}");
    }
    let observed = json!({
        "target": target("user", "bob"), "primitive": { "name": "echo" }, "allowed": true, "observe": true,
    });
    let of = |issuer: &str| json!({ "type": "user", "idOrPattern": "bob", "issuer": issuer });
    for body in [
        binding(target("user", "bob"), false),
        binding(target("user", "*"), true),
        binding(target("machine", "press"), true),
        binding(of("login"), true),
        binding(of("*"), true),
        observed,
    ] {
        let stored = api.put("org:acme", BINDINGS, body.clone()).await;
        assert_eq!(stored.status, StatusCode::OK, "{body}: {}", stored.body);
    }
    // What was stored before stays in force, and so does what is about every issuer on purpose.
    api.published(|snapshot| {
        let allows = |name: &str| {
            snapshot.bindings.iter().any(|one| one.allowed && one.target == name && one.issuer.is_empty())
        };
        allows("alice") && allows("bob")
    })
    .await;
    let listed = api.get("org:acme", BINDINGS).await.body;
    assert!(listed.as_array().unwrap().contains(&binding(of("*"), true)), "as it was put: {listed}");
    let gone = format!("{BINDINGS}?targetType=user&idOrPattern=bob&primitive=echo&issuer=*");
    assert_eq!(api.send("org:acme", Method::DELETE, &gone, None, &[]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_explanation_names_the_assumed_issuer_where_several_speak_for_the_org() {
    let publisher = Publisher::start().await;
    let mut api = with_two_issuers(&publisher).await;
    let bob = json!({ "type": "user", "idOrPattern": "bob" });
    api.put("org:acme", BINDINGS, binding(bob, false)).await;
    api.published(|snapshot| snapshot.bindings.iter().any(|one| one.target == "bob")).await;
    let ask = async |whose: Value| {
        let mut question = json!({ "org": "acme", "server": "demo", "primitive": "echo", "protocol": "mcp" });
        whose.as_object().unwrap().iter().for_each(|(name, value)| question[name] = value.clone());
        api.send("org:acme", Method::POST, "/api/policy/explain", Some(question), &[]).await.body
    };
    let denied = ask(json!({ "user": "bob" })).await;
    assert_eq!((&denied["outcome"], &denied["issuer"]), (&json!("denied"), &json!("dev")), "{denied}");
    for named in [json!({ "user": "bob", "issuer": "dev" }), json!({ "machine": "press" })] {
        assert_eq!(ask(named).await.get("issuer"), None);
    }
    let of_assumed = json!({ "type": "user", "idOrPattern": "bob", "issuer": denied["issuer"] });
    let stored = api.put("org:acme", BINDINGS, binding(of_assumed, true)).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
}

#[tokio::test]
async fn only_what_allows_is_about_every_issuer_on_purpose() {
    let api = with_demo().await;
    for (kind, allowed) in [("user", false), ("machine", true)] {
        let target = json!({ "type": kind, "idOrPattern": "bob", "issuer": "*" });
        let refused = api.put("org:acme", BINDINGS, binding(target, allowed)).await;
        assert_eq!(refused.body["code"], "invalid_params", "{}", refused.body);
    }
}

#[tokio::test]
async fn a_limit_of_a_machine_or_an_issuer_is_stored_as_it_was_put() {
    let mut api = with_demo().await;
    let list = json!([
        limit(json!({ "user": "alice", "issuer": "dev" }))[0],
        limit(json!({ "machine": "each" }))[0],
        limit(json!({ "user": "each" }))[0],
    ]);
    let stored = api.put("org:acme", LIMITS, list).await.body;
    let selectors: Vec<&Value> = stored.as_array().unwrap().iter().map(|limit| &limit["selector"]).collect();
    let all = json!({ "server": "*", "primitive": "*", "user": "*", "wcit": "*" });
    let with = |members: Value| {
        let mut selector = all.clone();
        members.as_object().unwrap().iter().for_each(|(name, value)| selector[name] = value.clone());
        selector
    };
    let wanted = [
        with(json!({ "user": "alice", "issuer": "dev" })),
        with(json!({ "machine": "each" })),
        with(json!({ "user": "each" })),
    ];
    assert_eq!(selectors, wanted.iter().collect::<Vec<_>>());
    // Edges hear of them later.
    let at_edges = |snapshot: &GatewaySnapshot| snapshot.edge.as_ref().unwrap().coarse_limits.len();
    api.published(|snapshot| snapshot.limits.len() == 3 && at_edges(snapshot) == 2).await;
    let snapshot = whole(&api);
    let mut said: Vec<(&str, &str)> =
        snapshot.limits.iter().map(|limit| (limit.user.as_str(), limit.issuer.as_str())).collect();
    said.sort_unstable();
    assert_eq!(said, [("alice", "dev"), ("each", ""), ("each", MACHINE_ISSUER)]);
    let at_edges = &snapshot.edge.as_ref().unwrap().coarse_limits;
    assert_eq!(at_edges.len(), 2, "edges know no machines: {at_edges:?}");
}

#[tokio::test]
async fn an_explanation_is_about_a_user_of_one_issuer_or_a_machine() {
    let mut api = with_demo().await;
    let machine = binding(json!({ "type": "machine", "idOrPattern": "*" }), false);
    let of_dev = binding(json!({ "type": "user", "idOrPattern": "bob", "issuer": "dev" }), false);
    api.put("org:acme", BINDINGS, machine.clone()).await;
    api.put("org:acme", BINDINGS, of_dev.clone()).await;
    api.put("org:acme", LIMITS, limit(json!({ "machine": "each" }))).await;
    api.published(|snapshot| snapshot.bindings.len() == 2 && snapshot.limits.len() == 1).await;
    let ask = async |whose: Value| {
        let mut question = json!({ "org": "acme", "server": "demo", "primitive": "echo", "protocol": "mcp" });
        whose.as_object().unwrap().iter().for_each(|(name, value)| question[name] = value.clone());
        api.send("org:acme", Method::POST, "/api/policy/explain", Some(question), &[]).await.body
    };
    let press = ask(json!({ "machine": "press" })).await;
    assert_eq!((&press["outcome"], &press["decidedBy"]["binding"]), (&json!("denied"), &machine), "{press}");
    assert_eq!(press["limits"][0]["buckets"], "one for each machine", "{press}");
    assert_eq!(press["limits"][0]["selector"]["machine"], "each", "{press}");
    let alice = ask(json!({ "user": "alice" })).await;
    assert_eq!((&alice["outcome"], alice.get("limits")), (&json!("allowed"), None), "{alice}");
    assert_eq!(alice.get("issuer"), None, "one issuer alone: {alice}");
    for bob in [json!({ "user": "bob" }), json!({ "user": "bob", "issuer": "dev" })] {
        assert_eq!(
            ask(bob).await["decidedBy"]["binding"],
            of_dev,
            "the only issuer is meant where none is named"
        );
    }
    assert_eq!(ask(json!({ "user": "bob", "issuer": "other" })).await["outcome"], "allowed");
    let both = ask(json!({ "user": "bob", "machine": "press" })).await;
    assert_eq!(both["code"], "invalid_params", "{both}");
}
