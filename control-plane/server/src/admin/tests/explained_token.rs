//! Explanations by a caller's token (I-12).

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Api, DEMO, sample};

const AUDIENCE: &str = "http://127.0.0.1:8080";

async fn ask(api: &Api, role: &str, token: &str, server: &str) -> Answer {
    let question = json!({ "token": token, "server": server, "primitive": "echo" });
    api.send(role, Method::POST, "/api/explain", Some(question), &[]).await
}

async fn with_demo() -> Api {
    let api = Api::start().await;
    let stored = api.put("platform", DEMO, sample("demo")).await;
    assert_eq!(stored.status, StatusCode::OK, "{}", stored.body);
    api
}

#[tokio::test]
async fn a_token_is_explained_by_its_claims_and_never_repeated() {
    let api = with_demo().await;
    let token = api.issuer.client("acme", "alice", AUDIENCE);
    for role in ["platform", "platform:read", "org:acme", "server:demo"] {
        let answer = ask(&api, role, &token, "demo").await;
        assert_eq!(answer.status, StatusCode::OK, "{role}: {}", answer.body);
        assert_eq!(answer.body["outcome"], "allowed", "{role}: {}", answer.body);
        let caller = &answer.body["caller"];
        assert_eq!((&caller["org"], &caller["user"]), (&json!("acme"), &json!("alice")), "{role}");
        assert!(!answer.body.to_string().contains(&token), "{role}");
    }
    let id = ask(&api, "platform", &token, "demo").await.body["caller"]["wcit"].clone();
    let revoked = json!({ "type": "token", "org": "acme", "id": id });
    api.send("org:acme", Method::POST, "/api/revocations", Some(revoked), &[]).await;
    assert_eq!(ask(&api, "org:acme", &token, "demo").await.body["outcome"], "token_revoked");
}

#[tokio::test]
async fn a_refused_token_is_explained_by_the_fault_and_an_unknown_server_by_its_absence() {
    let api = with_demo().await;
    let token = api.issuer.client("acme", "alice", AUDIENCE);
    let elsewhere = api.issuer.client("acme", "alice", "https://elsewhere.example");
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let altered = format!("{signed}.{}", signature.chars().rev().collect::<String>());
    for (token, fault) in
        [(elsewhere.as_str(), "aud"), (altered.as_str(), "token"), ("x", "token"), ("", "token")]
    {
        let answer = ask(&api, "platform", token, "demo").await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        assert_eq!(answer.body["outcome"], "token_refused", "{}", answer.body);
        assert_eq!(answer.body.get("caller"), None);
        let rule = answer.body["decidedBy"]["rule"].as_str().unwrap_or_default();
        assert!(rule.starts_with("the token is refused: ") && rule.contains(fault), "{rule}");
    }
    let unknown = ask(&api, "platform", &token, "nowhere").await.body;
    assert_eq!((&unknown["outcome"], &unknown["allowed"]), (&json!("unknown_server"), &Value::Bool(false)));
}

#[tokio::test]
async fn who_has_no_access_to_the_callers_org_learns_nothing_of_the_token() {
    let api = with_demo().await;
    let token = api.issuer.client("acme", "alice", AUDIENCE);
    for (role, server) in [("org:globex", "demo"), ("server:other", "demo"), ("installer", "demo")] {
        let answer = ask(&api, role, &token, server).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{role}: {}", answer.body);
    }
    for token in [token.as_str(), "x"] {
        let answer = ask(&api, "auditor", token, "demo").await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "an auditor reads the audit: {}", answer.body);
    }
    let misspelt = json!({ "token": 7, "server": "demo", "primitive": "echo" });
    let answer = api.send("platform", Method::POST, "/api/explain", Some(misspelt), &[]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
}
