//! Exposure, bindings, limits, revocations, and explanations of decisions.

use std::time::{Duration, Instant};

use asp_store::control::{Change, Note};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Api, DEMO, sample};

#[tokio::test]
async fn policy_bodies_are_taken_as_json_and_as_yaml() {
    let mut api = Api::start().await;
    let exposure = json!({ "server": "demo", "protocol": "a2a", "enabled": false });
    let answer = api.put("platform", "/api/policy/orgs/acme/exposure", exposure.clone()).await;
    assert_eq!(answer.body, json!([exposure]));

    let binding = json!({
        "target": { "type": "user", "idOrPattern": "*" },
        "primitive": { "name": "cc.compliance.search", "protocol": "mcp" },
        "allowed": true
    });
    let answer = api.put("platform", "/api/policy/orgs/acme/bindings", binding.clone()).await;
    assert_eq!(answer.body, json!([binding]));

    let yaml = "\
- selector: { server: \"*\", primitive: \"*\", user: \"*\", wcit: \"*\" }
  policy:
    { type: \"token-bucket\", capacity: 1000, refill: \"100/s\" }
- selector: { primitive: \"cc.compliance.search\", user: \"*\", wcit: \"*\" }
  policy:
    { capacity: 20, refill: \"1/s\" }
";
    let answer = api
        .send(
            "platform",
            Method::PUT,
            "/api/ratelimits/orgs/acme?force=true",
            Some(json!(yaml)),
            &[("content-type", "application/yaml")],
        )
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.body[1]["selector"]["server"], "*", "a missing selector is *");
    assert_eq!(answer.body[1]["policy"]["type"], "token-bucket", "a missing type is token-bucket");
    api.published(|snapshot| snapshot.limits.len() == 2 && snapshot.bindings.len() == 1).await;
}

/// A binding with other members.
fn bound(extra: Value) -> Value {
    let mut binding = json!({
        "target": { "type": "user", "idOrPattern": "*" },
        "primitive": { "name": "echo", "protocol": "*" },
        "allowed": false
    });
    for (name, value) in extra.as_object().unwrap() {
        binding[name] = value.clone();
    }
    binding
}

#[tokio::test]
async fn bindings_with_conditions_stand_beside_plain_ones_and_are_deleted_by_their_names() {
    let mut api = Api::start().await;
    let path = "/api/policy/orgs/acme/bindings";
    let plain = bound(json!({ "allowed": true }));
    let large = json!([{ "pointer": "/amount", "range": { "min": 1000 } }, { "pointer": "/to", "glob": "*@example.com" }]);
    let asks = bound(json!({ "allowed": true, "when": large, "approval": true, "name": "large" }));
    let seen = bound(json!({ "observe": true, "name": "trial" }));
    for body in [&plain, &asks, &seen] {
        let answer = api.put("org:acme", path, body.clone()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
    assert_eq!(api.get("org:acme", path).await.body, json!([plain, asks, seen]));
    api.published(|snapshot| snapshot.bindings.len() == 2 && snapshot.observed_bindings.len() == 1).await;
    let bindings = api.xds_state.borrow().snapshot.as_ref().unwrap().whole().bindings;
    let rule = bindings.iter().find(|binding| binding.name == "large").unwrap();
    assert_eq!((rule.allowed, rule.approval, rule.when.len()), (false, true, 2), "an older reader denies");
    let rows = api.get("org:acme", "/api/audit").await.body;
    assert!(rows.to_string().contains("name=large approval when="), "{rows}");

    let yaml = "target: {type: user, idOrPattern: '*'}\nprimitive: {name: echo}\nallowed: false\nname: yaml\n\
                when: [{pointer: /n, in: [1, 'a', true, null]}]\n";
    let headers = [("content-type", "application/yaml")];
    let forced = format!("{path}?force=true");
    let answer = api.send("org:acme", Method::PUT, &forced, Some(json!(yaml)), &headers).await;
    assert_eq!(answer.body[3]["when"], json!([{ "pointer": "/n", "in": [1, "a", true, null] }]));
    let one = format!("{path}?targetType=user&idOrPattern=*&primitive=echo");
    for (name, status) in [("&name=large", 200), ("&name=large", 404), ("", 200), ("&name=trial", 200)] {
        let gone = api.send("org:acme", Method::DELETE, &format!("{one}{name}"), None, &[]).await;
        assert_eq!(gone.status.as_u16(), status, "{name}: {}", gone.body);
    }
    assert_eq!(api.get("org:acme", path).await.body.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_binding_with_approvers_is_a_denial_for_an_older_reader() {
    let mut api = Api::start().await;
    let path = "/api/policy/orgs/acme/bindings";
    let all = bound(json!({ "allowed": true, "approval": true, "name": "all" }));
    let by = json!({ "allowed": true, "approval": true, "approvers": { "group": "finance" }, "name": "by" });
    for body in [&all, &bound(by.clone())] {
        let answer = api.put("org:acme", path, body.clone()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }
    assert_eq!(api.get("org:acme", path).await.body, json!([all, bound(by)]));
    api.published(|snapshot| snapshot.bindings.len() == 2).await;
    let bindings = api.xds_state.borrow().snapshot.as_ref().unwrap().whole().bindings;
    let find = |name: &str| bindings.iter().find(|binding| binding.name == name).unwrap();
    assert_eq!((find("all").allowed, find("all").approval), (false, true));
    assert_eq!((find("by").allowed, find("by").approval, &*find("by").approvers), (false, false, "finance"));
}

#[tokio::test]
async fn approvers_that_make_no_sense_are_refused() {
    let api = Api::start().await;
    for (extra, said) in [
        (json!({ "approvers": { "group": "finance" } }), "needs `approval`"),
        (json!({ "allowed": true, "approval": true, "approvers": { "group": "" } }), "approvers.group"),
        (json!({ "allowed": true, "approval": true, "approvers": { "group": "fin*" } }), "approvers.group"),
        (
            json!({ "allowed": true, "approval": true, "approvers": { "group": "a", "issuer": "x:y" } }),
            "approvers.issuer",
        ),
    ] {
        let answer = api.put("org:acme", "/api/policy/orgs/acme/bindings", bound(extra.clone())).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{extra}: {}", answer.body);
        assert!(answer.body["detail"].as_str().unwrap().contains(said), "{extra}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_binding_whose_conditions_make_no_sense_is_refused_with_their_place() {
    let api = Api::start().await;
    let put = async |extra: Value| {
        let answer = api.put("org:acme", "/api/policy/orgs/acme/bindings", bound(extra.clone())).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{extra}: {}", answer.body);
        let text = |name: &str| answer.body[name].as_str().unwrap().to_owned();
        (text("code"), text("detail"))
    };
    let when = |condition: Value| json!({ "when": [condition] });
    let at = |test: &str, value: Value| json!({ "when": [{ "pointer": "/a", test: value }] });
    let good = json!({ "pointer": "/a", "equals": 1 });
    for (extra, said) in [
        (json!({ "approval": true }), "`allowed` set to true"),
        (json!({ "approval": true, "when": [good] }), "`allowed` set to true"),
        (json!({ "allowed": true, "when": [good] }), "allows nothing"),
        (json!({ "when": vec![good.clone(); 9] }), "at most 8"),
        (json!({ "when": [good, { "pointer": "a", "equals": 1 }] }), "when[1]: pointer"),
        (when(json!({ "pointer": "/a" })), "when[0]: exactly one of"),
        (when(json!({ "pointer": "/a", "equals": 1, "glob": "*" })), "when[0]: exactly one of"),
        (when(json!({ "pointer": format!("/{}", "x".repeat(256)), "equals": 1 })), "when[0]: pointer"),
        (when(json!({ "pointer": "/~2", "equals": 1 })), "when[0]: pointer"),
        (at("equals", json!([1])), "when[0]: equals"),
        (at("equals", json!({})), "when[0]: equals"),
        (at("equals", json!("x".repeat(511))), "when[0]: equals"),
        (at("equals", json!(1e300)), "when[0]: equals: a number beyond"),
        (at("in", json!([])), "when[0]: in"),
        (at("in", json!(vec![1; 65])), "when[0]: in"),
        (at("in", json!([[1]])), "when[0]: in"),
        (at("glob", json!("x".repeat(513))), "when[0]: glob"),
        (at("range", json!({})), "when[0]: range"),
        (at("range", json!({ "min": 2, "max": 1 })), "when[0]: range"),
        (at("range", json!({ "min": 9_007_199_254_740_993.5 })), "when[0]: range"),
        (json!({ "name": "Large" }), "name must be"),
        (json!({ "name": "a b" }), "name must be"),
        (json!({ "name": "x".repeat(65) }), "name must be"),
    ] {
        let (code, detail) = put(extra).await;
        assert!(code == "invalid_params" && detail.contains(said), "{said}: {code} {detail}");
    }
    for extra in [
        when(json!({ "equals": 1 })),
        when(json!({ "pointer": "/a", "matches": "x" })),
        when(json!({ "pointer": 1, "equals": 1 })),
        when(json!("/a")),
        at("range", json!({ "above": 1 })),
        at("range", json!({ "min": "1" })),
        at("in", json!(1)),
        at("glob", json!(1)),
        json!({ "when": {} }),
        json!({ "observe": "yes" }),
        json!({ "approve": true }),
        json!({ "name": 1 }),
    ] {
        assert_eq!(put(extra).await.0, "invalid_body");
    }
    assert_eq!(api.get("org:acme", "/api/policy/orgs/acme/bindings").await.body, json!([]));
}

#[tokio::test]
async fn explain_shows_what_rules_say_of_arguments_and_what_is_only_observed() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let path = "/api/policy/orgs/acme/bindings";
    let loud = json!([{ "pointer": "/message", "glob": "*!" }]);
    let secret = json!([{ "pointer": "/message", "equals": "secret" }]);
    let asks = bound(json!({ "allowed": true, "approval": true, "when": loud, "name": "loud" }));
    let denies = bound(json!({ "when": secret, "name": "secret" }));
    let trial = bound(json!({ "observe": true, "name": "trial" }));
    for body in [&asks, &denies, &trial] {
        api.put("org:acme", path, body.clone()).await;
    }
    api.published(|snapshot| snapshot.revision == 4).await;
    let ask = async |arguments: Option<Value>| {
        let mut question = json!({ "org": "acme", "user": "alice", "server": "demo", "primitive": "echo", "protocol": "mcp" });
        if let Some(arguments) = arguments {
            question["arguments"] = arguments;
        }
        let answer =
            api.send("org:acme:read", Method::POST, "/api/policy/explain", Some(question), &[]).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        answer.body
    };
    let none = ask(None).await;
    assert_eq!((&none["outcome"], none.get("observed")), (&json!("allowed"), None));
    let rule = |binding: &Value, holds: Value| json!({ "binding": binding, "holds": holds });
    assert_eq!(
        none["rules"],
        json!([rule(&asks, json!(null)), rule(&denies, json!(null)), rule(&trial, json!(true))])
    );
    let quiet = ask(Some(json!({ "message": "hi" }))).await;
    assert_eq!((&quiet["outcome"], &quiet["decidedBy"]["stage"]), (&json!("allowed"), &json!("bindings")));
    assert_eq!(quiet["observed"], json!({ "outcome": "denied", "binding": trial }));
    assert_eq!(quiet["rules"][0]["holds"], false);
    let loud = ask(Some(json!({ "message": "hi!" }))).await;
    assert_eq!((&loud["outcome"], &loud["allowed"]), (&json!("needs_approval"), &json!(true)));
    assert_eq!(loud["decidedBy"], json!({ "stage": "arguments", "binding": asks }));
    assert_eq!(loud["rules"][0]["holds"], true);
    let secret = ask(Some(json!({ "message": "secret" }))).await;
    assert_eq!((&secret["outcome"], &secret["allowed"]), (&json!("denied"), &json!(false)));
    assert_eq!(secret["decidedBy"], json!({ "stage": "arguments", "binding": denies }));
    let misfit = ask(Some(json!({ "message": 1 }))).await;
    assert_eq!(
        (&misfit["outcome"], &misfit["decidedBy"]["pointer"]),
        (&json!("invalid_arguments"), &json!("/message"))
    );
}

#[tokio::test]
async fn a_limit_that_makes_no_sense_is_refused_with_its_place() {
    let api = Api::start().await;
    let with = |selector: Value, policy: Value| json!([{ "selector": selector, "policy": policy }]);
    let good = json!({ "capacity": 1, "refill": "1/s" });
    for body in [
        with(json!({}), json!({ "capacity": 0, "refill": "1/s" })),
        with(json!({}), json!({ "capacity": 1, "refill": "fast" })),
        with(json!({}), json!({ "type": "leaky", "capacity": 1, "refill": "1/s" })),
        with(json!({ "user": "a*" }), good.clone()),
        with(json!({ "primitive": "" }), good),
    ] {
        let answer = api.put("platform", "/api/ratelimits/orgs/acme", body).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_params"))
        );
        assert!(answer.body["detail"].as_str().unwrap().starts_with("limit 0"), "{}", answer.body);
    }
    let typo = with(json!({ "usr": "a" }), json!({ "capacity": 1, "refill": "1/s" }));
    assert_eq!(api.put("platform", "/api/ratelimits/orgs/acme", typo).await.body["code"], "invalid_body");
}

#[tokio::test]
async fn a_revocation_is_listed_published_and_taken_back() {
    let mut api = Api::start().await;
    let body = json!({ "type": "token", "org": "acme", "id": "jti-1", "reason": "lost" });
    let created = api.send("org:acme", Method::POST, "/api/revocations", Some(body), &[]).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let edge = |snapshot: &asp_proto::snapshot::GatewaySnapshot| snapshot.edge.clone().unwrap();
    api.published(|snapshot| edge(snapshot).revoked.len() == 16).await;
    let user = json!({ "type": "user", "org": "acme", "id": "alice" });
    api.send("platform", Method::POST, "/api/revocations", Some(user), &[]).await;
    api.published(|snapshot| edge(snapshot).revoked_before.len() == 1).await;

    let listed = api.get("org:acme", "/api/revocations").await;
    assert_eq!(listed.body.as_array().unwrap().len(), 2);
    assert_eq!(api.get("org:other", "/api/revocations").await.body, json!([]));
    let one = format!("/api/revocations/{}", created.body["revocation"].as_str().unwrap());
    assert_eq!(api.send("org:other", Method::DELETE, &one, None, &[]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.send("org:acme", Method::DELETE, &one, None, &[]).await.status, StatusCode::NO_CONTENT);
    api.published(|snapshot| edge(snapshot).revoked.is_empty()).await;

    let same = Some(json!({ "type": "user", "org": "acme", "id": "alice" }));
    let gone = api.send("platform", Method::DELETE, "/api/revocations", same.clone(), &[]).await;
    assert_eq!((gone.status, gone.body.as_array().unwrap().len()), (StatusCode::OK, 1));
    api.published(|snapshot| edge(snapshot).revoked_before.is_empty()).await;
    let again = api.send("org:acme", Method::DELETE, "/api/revocations", same, &[]).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn many_tokens_are_revoked_by_one_write() {
    let mut api = Api::start().await;
    let batch = async |role: &str, body: Value| {
        api.send(role, Method::POST, "/api/revocations/batch", Some(body), &[]).await
    };
    let ids = ["jti-1", "jti-2", "jti-3", "jti-2"];
    let made =
        batch("org:acme", json!({ "type": "token", "ids": ids, "issuer": "i", "reason": "leak" })).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let made = made.body.as_array().unwrap().clone();
    let named: Vec<&str> = made.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(named, ["jti-1", "jti-2", "jti-3"]);
    assert!(made.iter().all(|one| (&one["org"], &one["reason"]) == (&json!("acme"), &json!("leak"))));
    for (role, body, status) in [
        ("platform", json!({ "type": "user", "org": "acme", "ids": ["bob"] }), StatusCode::BAD_REQUEST),
        ("platform", json!({ "type": "token", "ids": [] }), StatusCode::BAD_REQUEST),
        ("platform", json!({ "type": "token", "ids": vec!["a"; 1_001] }), StatusCode::BAD_REQUEST),
        ("platform", json!({ "type": "token", "ids": ["fine", " no name"] }), StatusCode::BAD_REQUEST),
        ("org:acme", json!({ "type": "token", "org": "other", "ids": ["a"] }), StatusCode::NOT_FOUND),
    ] {
        let refused = batch(role, body).await;
        assert_eq!(refused.status, status, "{}", refused.body);
    }
    let audit = api.get("platform", "/api/audit").await.body;
    let writes = audit.as_array().unwrap().iter().filter(|row| row["action"] == "revocation.add");
    assert_eq!(writes.count(), 1, "one write, and none of what was refused: {audit}");
    let listed = api.get("org:acme", "/api/revocations").await;
    assert_eq!(listed.body.as_array().unwrap().len(), 3);
    api.published(|snapshot| snapshot.edge.as_ref().unwrap().revoked.len() == 3 * 16).await;
}

#[tokio::test]
async fn a_revocation_says_that_new_tokens_work_and_which_commands_keep_a_user_out() {
    let api = Api::start().await;
    let allow = json!({ "target": { "type": "group", "idOrPattern": "ops" }, "primitive": { "name": "echo" },
        "allowed": true });
    assert_eq!(
        api.put("platform", "/api/policy/orgs/acme/bindings?force=true", allow).await.status,
        StatusCode::OK
    );
    let revoke = async |body: Value| {
        let answer = api.send("platform", Method::POST, "/api/revocations", Some(body), &[]).await;
        assert_eq!((answer.status, &answer.body["newTokensWork"]), (StatusCode::CREATED, &json!(true)));
        answer.body
    };
    let user = revoke(json!({ "type": "user", "org": "acme", "id": "bob b" })).await;
    let keep_out =
        ["asp policy acme --deny '*' --user 'bob b'", "asp policy acme --deny echo --user 'bob b' --force"];
    assert_eq!(user["keepOut"], json!(keep_out));
    assert_eq!(user["keepOutOmitted"], 0);
    assert_eq!(user["issuedUntil"], user["createdAt"].as_u64().unwrap() / 1_000 + asp_edge::LEEWAY_SECONDS);
    assert_eq!(
        revoke(json!({ "type": "org", "id": "other" })).await["keepOut"],
        json!(["asp policy other --deny '*' --force"])
    );
    for body in [json!({ "type": "token", "id": "j1" }), json!({ "type": "user", "org": "", "id": "ops" })] {
        let answer = revoke(body).await;
        assert_eq!(
            (&answer["keepOut"], answer["issuedUntil"].is_u64()),
            (&json!([]), answer["type"] == "user")
        );
    }
}

#[tokio::test]
async fn a_revocation_that_names_nothing_is_refused() {
    let api = Api::start().await;
    for body in [
        json!({ "type": "user", "id": "alice" }),
        json!({ "type": "token_hash", "id": "abc" }),
        json!({ "type": "session", "id": "x" }),
        json!({ "type": "token", "id": "" }),
        json!({ "type": "org", "org": "a", "id": "b" }),
    ] {
        let answer = api.send("platform", Method::POST, "/api/revocations", Some(body), &[]).await;
        assert_eq!(answer.body["code"], "invalid_params", "{}", answer.body);
    }
    let foreign = json!({ "type": "org", "id": "other" });
    let answer = api.send("org:acme", Method::POST, "/api/revocations", Some(foreign), &[]).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn explain_names_the_rule_that_decides() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let binding = json!({
        "target": { "type": "group", "idOrPattern": "ops" },
        "primitive": { "name": "echo", "protocol": "mcp" },
        "allowed": false
    });
    api.put("org:acme", "/api/policy/orgs/acme/bindings", binding.clone()).await;
    let off = json!({ "server": "conformance", "protocol": "mcp", "enabled": false });
    api.put("platform", "/api/registry/servers/conformance", sample("conformance")).await;
    api.put("org:acme", "/api/policy/orgs/acme/exposure", off).await;
    api.published(|snapshot| snapshot.edge.as_ref().unwrap().exposure_exceptions.len() == 1).await;
    let ask = |server: &str, primitive: &str, protocol: &str, groups: Value| {
        let question = json!({
            "org": "acme", "user": "alice", "groups": groups,
            "server": server, "primitive": primitive, "protocol": protocol
        });
        let api = &api;
        async move {
            api.send("org:acme:read", Method::POST, "/api/policy/explain", Some(question), &[]).await.body
        }
    };
    let denied = ask("demo", "echo", "mcp", json!(["ops"])).await;
    assert_eq!((&denied["outcome"], &denied["decidedBy"]["binding"]), (&json!("denied"), &binding));
    let allowed = ask("demo", "echo", "mcp", json!([])).await;
    assert_eq!((&allowed["outcome"], &allowed["allowed"]), (&json!("allowed"), &json!(true)));
    let unknown = ask("demo", "echo", "a2a", json!([])).await;
    assert_eq!(unknown["outcome"], "unknown_primitive", "the server does not list a2a: {unknown}");
    let over_rest = ask("demo", "echo", "rest", json!([])).await;
    assert_eq!((&over_rest["outcome"], &over_rest["allowed"]), (&json!("allowed"), &json!(true)));
    let hidden = ask("conformance", "echo", "mcp", json!([])).await;
    assert_eq!(
        (&hidden["outcome"], &hidden["decidedBy"]["rule"]),
        (&json!("not_exposed"), &json!("the org's exception"))
    );
    assert_eq!(hidden["switches"], json!([{ "protocol": "mcp", "on": false }]), "{hidden}");
    let both = json!([{ "protocol": "mcp", "on": true }, { "protocol": "rest", "on": true }]);
    assert_eq!(over_rest["switches"], both, "{over_rest}");
    // For an offered server, an org learns which primitives exist.
    for (server, outcome) in [("nowhere", "not_offered"), ("demo", "unknown_primitive")] {
        assert_eq!(ask(server, "nothing", "mcp", json!([])).await["outcome"], outcome);
    }
    let foreign = json!({ "org": "other", "server": "demo", "primitive": "echo", "protocol": "mcp" });
    let answer = api.send("org:acme", Method::POST, "/api/policy/explain", Some(foreign), &[]).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn explain_does_not_wait_for_what_changes_nothing_of_the_snapshot() {
    let mut api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    api.published(|snapshot| !snapshot.servers.is_empty()).await;
    let change = Change::unconditional("ops", 1);
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let note = Note { action: "artifact.put", resource: "artifact/x", org: "", detail: "" };
        api.store.note(&change, note).await.unwrap();
        let question = json!({ "org": "acme", "server": "demo", "primitive": "echo", "protocol": "mcp" });
        let began = Instant::now();
        let answer = api.send("platform", Method::POST, "/api/policy/explain", Some(question), &[]).await;
        assert_eq!(answer.body["outcome"], "allowed", "{}", answer.body);
        fastest = fastest.min(began.elapsed());
    }
    assert!(fastest < Duration::from_millis(900), "{fastest:?}: the longest wait is a second");
}

#[tokio::test]
async fn a_question_with_more_groups_or_scopes_than_its_bound_is_refused() {
    let mut api = Api::start().await;
    api.published(|_| true).await;
    let ask = async |member: &str, count: usize| {
        let mut question = json!({ "org": "acme", "server": "demo", "primitive": "echo", "protocol": "mcp" });
        question[member] = (0..count).map(|number| json!(number.to_string())).collect();
        api.send("org:acme", Method::POST, "/api/policy/explain", Some(question), &[]).await
    };
    for member in ["groups", "scopes"] {
        assert_eq!(ask(member, 256).await.status, StatusCode::OK, "{member}");
        let refused = ask(member, 257).await;
        let code = (refused.status, &refused.body["code"]);
        assert_eq!(code, (StatusCode::BAD_REQUEST, &json!("invalid_params")), "{member}");
        assert!(refused.body["detail"].as_str().unwrap().contains("at most 256"), "{}", refused.body);
    }
}

#[tokio::test]
async fn what_the_platform_revoked_in_an_org_is_not_the_orgs_to_take_back() {
    let api = Api::start().await;
    let body = json!({ "type": "user", "org": "acme", "id": "mallory" });
    let revoke =
        async |role: &str, method| api.send(role, method, "/api/revocations", Some(body.clone()), &[]).await;
    let of_platform = revoke("platform", Method::POST).await.body["revocation"].as_str().unwrap().to_owned();
    let own = revoke("org:acme", Method::POST).await.body["revocation"].as_str().unwrap().to_owned();
    let delete = async |role: &str, id: &str| {
        let path = format!("/api/revocations/{id}");
        api.send(role, Method::DELETE, &path, None, &[]).await.status
    };
    assert_eq!(delete("org:acme", &of_platform).await, StatusCode::FORBIDDEN);
    let refused = revoke("org:acme", Method::DELETE).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")));
    assert!(refused.body["detail"].as_str().unwrap().contains(&of_platform), "{}", refused.body);
    let listed = api.get("org:acme", "/api/revocations").await.body;
    assert_eq!(listed.as_array().unwrap().len(), 2, "neither is gone: {listed}");
    assert_eq!(delete("org:acme", &own).await, StatusCode::NO_CONTENT);
    assert_eq!(delete("platform", &of_platform).await, StatusCode::NO_CONTENT);
}
