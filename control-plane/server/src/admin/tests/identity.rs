//! Names of callers, accepted admin tokens, effects of revocations, and the audit of refusals.

use std::sync::Arc;

use asp_issuers::trust::{StaticIssuers, Trust};
use asp_issuers::trusted_issuer::{IssuerRules, MAX_TTL, TrustedIssuer};
use asp_platform::clock;
use asp_proto::snapshot::{EdgeSnapshot, GatewaySnapshot};
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use super::{Api, DEMO, read, sample};
use crate::admin::auth::Verifier;

fn edge(snapshot: &GatewaySnapshot) -> EdgeSnapshot {
    snapshot.edge.clone().unwrap()
}

fn denial(target: &str, primitive: &str) -> Value {
    json!({
        "target": { "type": "group", "idOrPattern": target },
        "primitive": { "name": primitive, "protocol": "*" },
        "allowed": false
    })
}

#[tokio::test]
async fn what_a_token_may_carry_can_be_bound_limited_revoked_and_put_in_a_path() {
    for (org, path) in [
        ("urn:acme", "urn%3Aacme"),
        ("acme/emea", "acme%2Femea"),
        ("Acme Holding", "Acme%20Holding"),
        ("株式会社", "%E6%A0%AA%E5%BC%8F%E4%BC%9A%E7%A4%BE"),
    ] {
        let mut api = Api::start().await;
        let role = format!("org:{path}");
        let bindings = format!("/api/policy/orgs/{path}/bindings");
        let put = api.put(&role, &bindings, denial("Domain Admins", "echo")).await;
        assert_eq!(put.status, StatusCode::OK, "{org}: {}", put.body);
        let limit =
            json!([{ "selector": { "user": "アリス/x y" }, "policy": { "capacity": 1, "refill": "1/s" } }]);
        let put = api.put(&role, &format!("/api/ratelimits/orgs/{path}"), limit).await;
        assert_eq!(put.status, StatusCode::OK, "{org}: {}", put.body);
        for body in [
            json!({ "type": "user", "org": org, "id": "CORP\\alice liddell" }),
            json!({ "type": "token", "id": "urn:jti/1 2" }),
            // Last: it hits the admin's own token too.
            json!({ "type": "org", "id": org }),
        ] {
            let revoked = api.send(&role, Method::POST, "/api/revocations", Some(body), &[]).await;
            assert_eq!(revoked.status, StatusCode::CREATED, "{org}: {}", revoked.body);
            assert_eq!(revoked.body["org"], org);
        }
        api.published(|snapshot| {
            let edge = edge(snapshot);
            snapshot.bindings.iter().any(|binding| binding.org == org && binding.target == "Domain Admins")
                && snapshot.limits.iter().any(|limit| limit.org == org)
                && edge.revoked_before.len() == 2
        })
        .await;
    }
}

#[tokio::test]
async fn what_no_token_may_carry_is_refused_by_the_api_too() {
    let api = Api::start().await;
    for name in ["a*b", " a", "a ", ".."] {
        let body = json!({ "type": "user", "org": "acme", "id": name });
        let refused = api.send("platform", Method::POST, "/api/revocations", Some(body), &[]).await;
        assert_eq!(refused.body["code"], "invalid_params", "{name}: {}", refused.body);
        let refused = api.put("platform", "/api/policy/orgs/acme/bindings", denial(name, "echo")).await;
        assert_eq!(refused.body["code"], "invalid_params", "{name}: {}", refused.body);
    }
    for path in ["%2A", "a%2A", "%20a", "a%0Ab"] {
        let refused = api.get("platform", &format!("/api/policy/orgs/{path}/bindings")).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn one_binding_is_removed_and_the_other_denials_stay_in_force() {
    let mut api = Api::start().await;
    let path = "/api/policy/orgs/acme/bindings";
    for target in ["ops", "Domain *", "staff"] {
        api.put("org:acme", path, denial(target, "echo")).await;
    }
    let key = format!("{path}?targetType=group&idOrPattern=Domain%20*&primitive=echo");
    let stale = [("if-match", "\"1\"")];
    let refused = api.send("org:acme", Method::DELETE, &key, None, &stale).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED, "{}", refused.body);
    assert_eq!(api.get("org:acme", path).await.body.as_array().unwrap().len(), 3);
    let tag = api.get("org:acme", path).await.etag.unwrap();
    let gone = api.send("org:acme", Method::DELETE, &key, None, &[("if-match", &tag)]).await;
    assert_eq!((gone.status, &gone.body["changed"]), (StatusCode::OK, &json!(true)), "{}", gone.body);
    let left = api.get("org:acme", path).await.body;
    let targets: Vec<&Value> = left.as_array().unwrap().iter().map(|b| &b["target"]["idOrPattern"]).collect();
    assert_eq!(targets, ["ops", "staff"]);
    let again = api.send("org:acme", Method::DELETE, &key, None, &[]).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    for part in ["targetType=group", "idOrPattern=ops&primitive=echo", "target=ops"] {
        let refused = api.send("org:acme", Method::DELETE, &format!("{path}?{part}"), None, &[]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{part}");
        assert_eq!(api.get("org:acme", path).await.body.as_array().unwrap().len(), 2, "{part}");
    }
    api.published(|snapshot| snapshot.bindings.len() == 2).await;
}

#[tokio::test]
async fn one_exception_is_removed_by_server_and_protocol() {
    let api = Api::start().await;
    let path = "/api/policy/orgs/acme/exposure";
    api.put("platform", DEMO, sample("demo")).await;
    for protocol in ["mcp", "a2a"] {
        let off = json!({ "server": "demo", "protocol": protocol, "enabled": false });
        api.put("org:acme", path, off).await;
    }
    let refused = api.send("org:acme", Method::DELETE, &format!("{path}?server=demo"), None, &[]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let one = format!("{path}?server=demo&protocol=a2a");
    assert_eq!(api.send("org:acme", Method::DELETE, &one, None, &[]).await.status, StatusCode::OK);
    assert_eq!(api.get("org:acme", path).await.body.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_revocation_cannot_be_lifted_early_or_promise_what_nothing_enforces() {
    let api = Api::start().await;
    let soon = clock::now_ms() / 1_000 + 60;
    for (body, says) in [
        (json!({ "type": "user", "org": "acme", "id": "alice", "exp": soon }), "exp"),
        (json!({ "type": "org", "id": "acme", "exp": soon }), "exp"),
        (json!({ "type": "user", "org": "acme", "id": "alice", "issuer": "x" }), "issuer"),
        (json!({ "type": "linked_token", "id": "github", "exp": soon }), "exp"),
        (json!({ "type": "linked_token", "org": "acme", "id": "github", "issuer": "x" }), "issuer"),
        (json!({ "type": "linked_token", "org": "acme", "id": "github/" }), "provider/user"),
        (json!({ "type": "linked_token", "org": "acme", "id": "/bob" }), "provider/user"),
    ] {
        let refused = api.send("platform", Method::POST, "/api/revocations", Some(body.clone()), &[]).await;
        assert_eq!(
            (refused.status, &refused.body["code"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_params"))
        );
        assert!(refused.body["detail"].as_str().unwrap().contains(says), "{body}: {}", refused.body);
    }
    let token = json!({ "type": "token", "id": "j", "exp": soon });
    let taken = api.send("platform", Method::POST, "/api/revocations", Some(token), &[]).await;
    assert_eq!(taken.status, StatusCode::CREATED);
}

#[tokio::test]
async fn an_admin_is_revoked_as_a_user_and_with_the_org_and_by_jti_within_the_org_only() {
    let mut api = Api::start().await;
    let ask = |token: &str| {
        let request = Request::builder()
            .uri("/api/policy/orgs/acme/bindings")
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        request.body(Body::empty()).unwrap()
    };
    let acmes = api.token("org:acme");
    let platforms = api.token("platform");
    let foreign = json!({ "type": "user", "org": "globex", "id": "ops" });
    api.send("platform", Method::POST, "/api/revocations", Some(foreign), &[]).await;
    api.published(|snapshot| edge(snapshot).revoked_before.len() == 1).await;
    assert_eq!(read(api.raw(ask(&acmes)).await).await.status, StatusCode::OK, "another org's");
    let own = json!({ "type": "user", "org": "acme", "id": "ops" });
    api.send("platform", Method::POST, "/api/revocations", Some(own), &[]).await;
    api.published(|snapshot| edge(snapshot).revoked_before.len() == 2).await;
    let refused = read(api.raw(ask(&acmes)).await).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::UNAUTHORIZED, &json!("token_revoked")));
    assert_eq!(read(api.raw(ask(&platforms)).await).await.status, StatusCode::OK, "the platform's");
    let platform = json!({ "type": "user", "org": "", "id": "ops" });
    api.send("platform", Method::POST, "/api/revocations", Some(platform), &[]).await;
    api.published(|snapshot| edge(snapshot).revoked_before.len() == 3).await;
    assert_eq!(read(api.raw(ask(&platforms)).await).await.status, StatusCode::UNAUTHORIZED);
}

/// A verifier of the test issuer's tokens under other rules.
fn verifier(api: &Api, change: impl FnOnce(&mut IssuerRules)) -> Verifier {
    let TrustedIssuer { kid, algorithm, key, rules } = api.issuer.trusted();
    let mut changed = IssuerRules::of(&rules.iss);
    change(&mut changed);
    let admins = vec![TrustedIssuer { kid, algorithm, key, rules: Arc::new(changed) }];
    Verifier::new(Trust::new(StaticIssuers { admins, ..StaticIssuers::default() }))
}

#[tokio::test]
async fn an_admin_token_obeys_every_rule_of_its_issuer() {
    let api = Api::start().await;
    let now = clock::now_ms() / 1_000;
    let token = |role: &str| api.token(role);
    let code = |verifier: &Verifier, token: &str| {
        verifier.verify(token, &[], now).err().map(|problem| problem.code().as_str())
    };
    let plain = verifier(&api, |_| {});
    assert_eq!(code(&plain, &token("platform")), None);
    let short = api.issuer.admin("platform", MAX_TTL.as_secs() / 2);
    let half = verifier(&api, |rules| rules.max_lifetime = MAX_TTL.as_secs() / 2);
    assert_eq!((code(&half, &short), code(&half, &token("platform"))), (None, Some("token_invalid")));
    let typ = verifier(&api, |rules| rules.typ = vec!["jwt".into()]);
    assert_eq!(code(&typ, &short), Some("token_invalid"));
    let audience = verifier(&api, |rules| rules.audiences = vec!["urn:ops".into()]);
    assert_eq!(code(&audience, &short), Some("token_invalid"));
    let claim = verifier(&api, |rules| rules.role_claim = "asp_role".into());
    assert_eq!(code(&claim, &short), Some("token_invalid"));
    let bound = verifier(&api, |rules| rules.orgs = vec!["acme".into(), "team-*".into()]);
    for (role, expected) in [
        ("org:acme", None),
        ("org:team-1:read", None),
        ("org:globex", Some("token_invalid")),
        ("platform", Some("token_invalid")),
        ("platform:read", Some("token_invalid")),
    ] {
        assert_eq!(code(&bound, &token(role)), expected, "{role}");
    }
    let any = verifier(&api, |rules| rules.orgs = vec!["*".into()]);
    assert_eq!(code(&any, &token("platform")), None);
}

/// An issuer signs more than access tokens, with the same key and for the same client.
#[tokio::test]
async fn what_is_no_access_token_or_asks_for_more_than_is_understood_opens_nothing() {
    let api = Api::start().await;
    let code = async |header: Value, claims: Value| {
        let token = api.issuer.admin_with(&header, &claims);
        let request = Request::builder()
            .uri("/api/schemas")
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        let answer = read(api.raw(request.body(Body::empty()).unwrap()).await).await;
        (answer.status, answer.body["code"].as_str().unwrap_or_default().to_owned())
    };
    let none = json!({});
    for claims in [none.clone(), json!({ "typ": "Bearer" })] {
        assert_eq!(code(none.clone(), claims.clone()).await.0, StatusCode::OK, "{claims}");
    }
    let refused = (StatusCode::UNAUTHORIZED, "token_invalid".to_owned());
    for claims in [
        json!({ "typ": "ID" }),
        json!({ "typ": "Refresh" }),
        json!({ "typ": "Offline" }),
        json!({ "typ": "Logout" }),
        json!({ "typ": 1 }),
        json!({ "nonce": "n" }),
        json!({ "at_hash": "h" }),
        json!({ "events": {} }),
        json!({ "cnf": { "jkt": "k" } }),
    ] {
        assert_eq!(code(none.clone(), claims.clone()).await, refused, "claims {claims}");
    }
    for header in [
        json!({ "crit": ["exp"], "exp": 1 }),
        json!({ "crit": ["b64"], "b64": true }),
        json!({ "crit": [] }),
        json!({ "typ": "JWT" }),
        json!({ "typ": "logout+jwt" }),
        json!({ "typ": null }),
    ] {
        assert_eq!(code(header.clone(), none.clone()).await, refused, "header {header}");
    }
}

#[tokio::test]
async fn a_refused_write_is_in_the_audit_with_who_tried_what() {
    let api = Api::start().await;
    api.put("platform", DEMO, sample("demo")).await;
    let off = json!({ "server": "demo", "protocol": "mcp", "enabled": false });
    api.put("org:acme", "/api/policy/orgs/globex/exposure", off.clone()).await;
    api.put("org:acme:read", "/api/policy/orgs/acme/exposure", off.clone()).await;
    api.put("org:acme", DEMO, sample("demo")).await;
    let stale = [("if-match", "\"999\"")];
    api.send("org:acme", Method::PUT, "/api/policy/orgs/acme/exposure?force=true", Some(off), &stale).await;
    api.put("org:acme", "/api/policy/orgs/acme/exposure", json!({ "server": 1 })).await;
    let rows = api.get("org:acme", "/api/audit").await.body;
    let told: Vec<(&str, &str)> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["resource"].as_str().unwrap(), row["detail"].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            ("/api/policy/orgs/acme/exposure", "PUT 412 precondition_failed"),
            (DEMO, "PUT 403 forbidden"),
            ("/api/policy/orgs/acme/exposure", "PUT 403 forbidden"),
            ("/api/policy/orgs/globex/exposure", "PUT 404 not_found"),
        ]
    );
    assert!(
        rows.as_array().unwrap().iter().all(|row| row["action"] == "refused" && row["actor"] == "ops@acme")
    );
    assert_eq!(api.get("org:globex", "/api/audit").await.body, json!([]), "none of the other org's");
    for _ in 0..50 {
        api.put("org:acme", DEMO, json!({})).await;
        api.send("org:acme", Method::DELETE, DEMO, None, &[]).await;
    }
    let rows = api.get("org:acme", "/api/audit").await.body;
    assert_eq!(rows.as_array().unwrap().len(), 10, "a flood is bounded");
}
