//! Resources and prompts of a service that hosts calls.

use serde_json::{Value, json};

use super::{Service, Step, fixture, reply, with_header};
use crate::support::{Fixture, Modern, token};

async fn ask(fixture: &Fixture, method: &str, params: Value) -> Value {
    Modern::new("plugins", &token("alice"), method, params).send(fixture).await.json()
}

fn bytes(kind: &str, body: &[u8]) -> Step {
    let step = Step::Reply(200, Vec::new(), body.to_vec());
    with_header(step, "content-type", kind)
}

#[tokio::test]
async fn a_resource_is_the_services_bytes() {
    let rows: [(&str, &[u8], Value); 4] = [
        ("text/markdown; charset=utf-8", b"# T", json!({"text": "# T"})),
        ("application/json", b"{}", json!({"text": "{}"})),
        ("image/png", b"\x89PNG", json!({"blob": "iVBORw=="})),
        ("text/plain", b"\xff", json!({"blob": "/w=="})),
    ];
    for (kind, body, expected) in rows {
        let service = Service::start([Step::Reply(503, Vec::new(), Vec::new()), bytes(kind, body)]).await;
        let answer = ask(&fixture(&service), "resources/read", json!({"uri": "page://a%20b"})).await;
        let contents = &answer["result"]["contents"][0];
        assert_eq!(contents["uri"], "page://a%20b", "{answer}");
        assert_eq!(contents["mimeType"], kind);
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&contents[name], value);
        }
        assert_eq!(service.requests()[1], "GET /base/v1/resources/their.page?id=a+b");
    }
}

#[tokio::test]
async fn a_resource_that_is_not_there_is_unknown() {
    let service = Service::start([reply(404, &json!({}))]).await;
    let answer = ask(&fixture(&service), "resources/read", json!({"uri": "page://x"})).await;
    assert!(answer["error"].is_object(), "{answer}");
    assert!(answer.to_string().contains("page://x"), "{answer}");
}

/// A service and a plugin both treat the variable as a name.
#[tokio::test]
async fn a_resources_variable_is_no_dot_segment() {
    let service = Service::start([bytes("text/plain", b"x")]).await;
    for uri in ["page://..", "page://%2e%2e", "page://..%2fadmin", "page://%252e."] {
        let answer = ask(&fixture(&service), "resources/read", json!({"uri": uri})).await;
        assert_eq!(answer["error"]["data"]["reason"], "invalid_params", "{answer}");
        assert_eq!(answer["error"]["data"]["pointer"], "/id", "{answer}");
    }
    assert!(service.seen().is_empty());
}

#[tokio::test]
async fn a_prompt_is_the_services_messages() {
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "hi"}}]);
    let service = Service::start([reply(200, &json!({"description": "d", "messages": messages}))]).await;
    let params = json!({"name": "advice", "arguments": {"topic": "x"}});
    let answer = ask(&fixture(&service), "prompts/get", params.clone()).await;
    assert_eq!(answer["result"]["messages"], messages, "{answer}");
    assert_eq!(answer["result"]["description"], "d");
    assert_eq!(service.requests(), ["POST /base/v1/prompts/their.advice"]);
    assert_eq!(service.seen()[0].body, json!({"topic": "x"}));
    for bad in [json!({}), json!({"messages": [{"role": "system", "content": {}}]}), json!([])] {
        let service = Service::start([reply(200, &bad)]).await;
        let answer = ask(&fixture(&service), "prompts/get", params.clone()).await;
        assert!(answer["error"].is_object(), "{bad}: {answer}");
    }
}
