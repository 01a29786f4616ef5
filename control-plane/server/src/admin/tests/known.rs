//! Unknown names in exposure, bindings and limits.

use asp_platform::clock;
use asp_store::audit::{AuditLog, CallEvent};
use asp_store::usage::{DAY_MS, UsageBatch, UsageCounts, UsageKey, UsageStore};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Api, DEMO, sample};

const ACME: &str = "/api/policy/orgs/acme";

async fn put(api: &Api, role: &str, path: &str, body: &Value) -> Answer {
    api.send(role, Method::PUT, path, Some(body.clone()), &[]).await
}

async fn refused(api: &Api, role: &str, path: &str, body: Value) -> String {
    let answer = put(api, role, path, &body).await;
    assert_eq!(
        (answer.status, &answer.body["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("unknown_name")),
        "{body}: {}",
        answer.body
    );
    let forced = put(api, role, &format!("{path}?force=true"), &body).await;
    assert_eq!(forced.status, StatusCode::OK, "{body}: {}", forced.body);
    answer.body["detail"].as_str().unwrap().to_owned()
}

async fn stored(api: &Api, role: &str, path: &str, body: Value) {
    let answer = put(api, role, path, &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{path} {body}: {}", answer.body);
}

fn binding(primitive: &str) -> Value {
    json!({ "target": { "type": "user", "idOrPattern": "bobb" }, "primitive": { "name": primitive }, "allowed": false })
}

fn exposure(server: &str) -> Value {
    json!({ "server": server, "protocol": "mcp", "enabled": true })
}

fn limits(selectors: &[Value]) -> Value {
    let policy = json!({ "capacity": 1, "refill": "1/s" });
    selectors.iter().map(|selector| json!({ "selector": selector, "policy": policy })).collect()
}

/// A platform with the server `demo` and a call of acme.
async fn start() -> Api {
    let api = Api::start().await;
    assert!(api.put("platform", DEMO, sample("demo")).await.status.is_success());
    let call = CallEvent { at_ms: 1, org: "acme".into(), event: "{}".into() };
    api.calls.append(&[call]).await.unwrap();
    api
}

#[tokio::test]
async fn a_mistyped_primitive_server_or_pattern_is_refused_with_the_one_that_was_meant() {
    let api = start().await;
    let bindings = format!("{ACME}/bindings");
    let detail = refused(&api, "platform", &bindings, binding("ecko")).await;
    assert!(detail.starts_with("no primitive is called ecko: did you mean echo?"), "{detail}");
    assert!(detail.ends_with("--force (API: ?force=true) stores it all the same"), "{detail}");
    let detail = refused(&api, "org:acme", &bindings, binding("ecko*")).await;
    assert!(detail.starts_with("no primitive's id begins with ecko: did you mean echo*?"), "{detail}");
    let detail = refused(&api, "platform", &format!("{ACME}/exposure"), exposure("demoo")).await;
    assert!(detail.starts_with("no server is called demoo: did you mean demo?"), "{detail}");
    let list =
        limits(&[json!({ "user": "bobb" }), json!({ "server": "dem" }), json!({ "primitive": "ehco" })]);
    let detail = refused(&api, "platform", "/api/ratelimits/orgs/acme", list).await;
    assert!(detail.contains("called dem: did you mean demo?"), "{detail}");
    assert!(detail.contains("called ehco: did you mean echo?"), "{detail}");
    let many: Vec<Value> = (0..9).map(|number| json!({ "primitive": format!("none.{number}") })).collect();
    let detail = refused(&api, "platform", "/api/ratelimits/orgs/acme", limits(&many)).await;
    assert!(detail.contains("; and 4 more. "), "{detail}");

    stored(&api, "platform", &bindings, binding("echo")).await;
    stored(&api, "org:acme", &bindings, binding("ec*")).await;
    stored(&api, "platform", &bindings, binding("*")).await;
    stored(&api, "platform", &format!("{ACME}/exposure"), exposure("demo")).await;
    let list = limits(&[json!({}), json!({ "server": "demo", "primitive": "echo" })]);
    stored(&api, "org:acme", "/api/ratelimits/orgs/acme", list).await;
}

#[tokio::test]
async fn an_org_is_known_by_its_calls_its_records_its_issuers_or_its_own_admin_and_by_no_refusal() {
    let api = start().await;
    let bindings = |org: &str| format!("/api/policy/orgs/{org}/bindings");
    stored(&api, "platform", &bindings("acme"), binding("echo")).await;
    let detail = refused(&api, "platform", &bindings("acmee"), binding("echo")).await;
    assert!(detail.starts_with("no org is called acmee"), "{detail}");
    stored(&api, "platform", &bindings("acmee"), binding("echo*")).await;
    stored(&api, "org:other", &bindings("other"), binding("echo")).await;
    let key = json!({ "machine": "press-7" });
    let made = api.send("platform", Method::POST, "/api/machines/orgs/factory/keys", Some(key), &[]).await;
    assert!(made.status.is_success(), "{}", made.body);
    stored(&api, "platform", &bindings("factory"), binding("echo")).await;
    for _ in 0..2 {
        let again = put(&api, "platform", &bindings("nobody"), &binding("echo")).await;
        assert_eq!(again.body["code"], "unknown_name", "a refused write leaves no trace that makes it good");
    }
}

#[tokio::test]
async fn an_admin_of_an_org_is_answered_alike_for_a_hidden_server_and_for_none() {
    let api = start().await;
    let mut hidden = sample("demo");
    for file in hidden["files"].as_array_mut().unwrap() {
        let text = file["text"].as_str().unwrap();
        let text = text
            .replace("defaultExposure: allow", "defaultExposure: deny")
            .replace("name: demo\n", "name: secret\n");
        file["text"] = json!(text);
        file["path"] =
            json!(file["path"].as_str().unwrap().replace("demo/server.yaml", "secret/server.yaml"));
    }
    let made = api.put("platform", "/api/registry/servers/secret", hidden).await;
    assert!(made.status.is_success(), "{}", made.body);
    let exposures = format!("{ACME}/exposure");
    let says = async |name: &str| {
        let detail = put(&api, "org:acme", &exposures, &exposure(name)).await.body["detail"].clone();
        detail.as_str().unwrap().replace(name, "NAME")
    };
    assert_eq!(says("secret").await, says("absent").await);
    assert_eq!(put(&api, "org:acme", &exposures, &exposure("secret")).await.status, StatusCode::NOT_FOUND);
    assert!(!says("secre").await.contains("did you mean") && !says("absent").await.contains("--force"));
    // Nor does an answer to a forced write tell them apart.
    let forced = async |path: &str, body: Value, name: &str| {
        let answer = put(&api, "org:acme", &format!("{path}?force=true"), &body).await;
        (answer.status, answer.body.to_string().replace(name, "NAME"))
    };
    let on_server =
        |name: &str| limits(&[json!({ "server": name }), json!({ "server": name, "primitive": "echo" })]);
    for (path, of) in [
        (exposures.as_str(), exposure as fn(&str) -> Value),
        ("/api/ratelimits/orgs/acme", on_server),
        ("/api/ratelimits/orgs/acme", |name| limits(&[json!({ "primitive": name })])),
    ] {
        let hidden = forced(path, of("secret"), "secret").await;
        assert_eq!(hidden, forced(path, of("absent"), "absent").await, "{path}");
        assert_eq!(hidden.0.is_success(), path != exposures, "{path}");
    }
    let detail = refused(&api, "platform", &exposures, exposure("secre")).await;
    assert!(detail.contains("did you mean secret?"), "{detail}");
    let offer = "/api/registry/servers/secret/offers/acme";
    assert_eq!(api.send("platform", Method::PUT, offer, None, &[]).await.status, StatusCode::OK);
    stored(&api, "org:acme", &exposures, exposure("secret")).await;
}

/// A platform with the server `demo`, whose primitive `echo` is exposed as `say`.
async fn exposing_say() -> Api {
    let api = start().await;
    let mut files = sample("demo");
    for file in files["files"].as_array_mut().unwrap() {
        let text = file["text"].as_str().unwrap();
        file["text"] = json!(text.replace("- ref: demo/echo\n", "- {ref: demo/echo, as: say}\n"));
    }
    let stored = api.put("platform", &format!("{DEMO}?force=true"), files).await;
    assert!(stored.status.is_success(), "{}", stored.body);
    let primitives = api.get("org:acme", "/api/registry/orgs/acme/primitives").await.body;
    assert!(primitives.to_string().contains("\"say\""), "{primitives}");
    api
}

#[tokio::test]
async fn an_exposed_name_stands_for_the_id_in_bindings_limits_and_explanations() {
    let api = exposing_say().await;
    let bindings = format!("{ACME}/bindings");
    stored(&api, "org:acme", &bindings, binding("say")).await;
    let written = api.get("org:acme", &bindings).await.body;
    assert_eq!(written[0]["primitive"]["name"], "echo", "{written}");
    let path = "/api/ratelimits/orgs/acme";
    stored(&api, "platform", path, limits(&[json!({ "primitive": "say" })])).await;
    assert_eq!(api.get("platform", path).await.body[0]["selector"]["primitive"], "echo");
    let twice = limits(&[json!({ "primitive": "say" }), json!({ "primitive": "echo" })]);
    let refused = put(&api, "platform", path, &twice).await;
    assert_eq!(refused.body["code"], "invalid_params", "they are one primitive: {}", refused.body);

    let question =
        json!({ "org": "acme", "user": "bobb", "server": "demo", "primitive": "say", "protocol": "mcp" });
    let path = "/api/policy/explain";
    let answer = api.send("org:acme", Method::POST, path, Some(question.clone()), &[]).await.body;
    assert_eq!((&answer["outcome"], &answer["primitive"]), (&json!("denied"), &json!("echo")), "{answer}");
    let mut by_id = question;
    by_id["primitive"] = json!("echo");
    let answer = api.send("org:acme", Method::POST, path, Some(by_id), &[]).await.body;
    assert_eq!((&answer["outcome"], answer.get("primitive")), (&json!("denied"), None));
}

#[tokio::test]
async fn the_audit_log_is_searched_by_an_exposed_name() {
    let api = exposing_say().await;
    let event = |primitive: &str| {
        let event = json!({ "event": "call.finish", "server": "demo", "primitive": primitive });
        CallEvent { at_ms: 5, org: "acme".into(), event: event.to_string() }
    };
    // The last one is of a primitive that was deleted.
    api.calls.append(&["echo@1.0.0", "echo.loud@1.0.0", "gone@1.0.0"].map(event)).await.unwrap();
    for (role, query, wanted) in [
        ("org:acme", "primitive=say", vec!["echo@1.0.0"]),
        ("org:acme", "primitive=say&server=demo", vec!["echo@1.0.0"]),
        ("platform", "primitive=say&server=demo", vec!["echo@1.0.0"]),
        ("org:acme", "primitive=say&server=shop", vec![]),
        ("org:acme", "primitive=echo", vec!["echo@1.0.0"]),
        ("org:acme", "primitive=gone", vec!["gone@1.0.0"]),
        ("org:acme", "primitive=sa", vec![]),
    ] {
        let found = api.get(role, &format!("/api/audit/calls?{query}")).await;
        let rows = found.body.as_array().unwrap_or_else(|| panic!("{query}: {}", found.body));
        let found: Vec<&str> = rows.iter().map(|row| row["event"]["primitive"].as_str().unwrap()).collect();
        assert_eq!(found, wanted, "{query} as {role}");
    }
}

#[tokio::test]
async fn usage_is_summed_by_an_exposed_name() {
    let api = exposing_say().await;
    let row = |(primitive, calls): (&str, u64)| {
        let key = UsageKey {
            org: "acme".into(),
            day: i64::try_from(clock::now_ms()).unwrap() / DAY_MS,
            user: "alice".into(),
            issuer: "dev".into(),
            server: "demo".into(),
            primitive: primitive.into(),
        };
        (key, UsageCounts { calls, ..UsageCounts::default() })
    };
    // The last one is a primitive that was deleted.
    let rows = [("echo", 1), ("echo.loud", 2), ("gone", 4)].map(row);
    let batch = UsageBatch { writer: [1; 16], number: 1, rows: rows.into() };
    api.call_usage.add_usage(&batch).await.unwrap();
    for (role, query, calls) in [
        ("org:acme", "primitive=say", 1),
        ("org:acme:read", "primitive=say&server=demo", 1),
        ("platform", "primitive=say", 1),
        ("org:acme", "primitive=say&server=shop", 0),
        ("org:acme", "primitive=echo", 1),
        ("org:acme", "primitive=gone", 4),
        ("org:acme", "primitive=sa", 0),
    ] {
        let report = api.get(role, &format!("/api/usage?by=user&{query}")).await.body;
        assert_eq!(report["total"]["calls"], calls, "{query} as {role}: {report}");
    }
}
