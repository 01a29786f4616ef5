//! `/all/mcp`: the tools of every server that a caller may use, listed and called by each server's own rules.

use asp_proto::snapshot::Issuer;
use asp_registry::{Inputs, assemble};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, Modern, PUBLIC_URL, claims, inputs, sign, token, token_with_scopes};

#[path = "all_servers/catalog.rs"]
mod catalog;
#[path = "all_servers/policies.rs"]
mod policies;

/// The inputs with these servers alone, and the one that stands for them.
fn inputs_of(servers: &[&str]) -> Inputs {
    let mut inputs = Inputs { all_servers: true, ..inputs() };
    inputs.servers.retain(|server| servers.contains(&server.server.name.as_str()));
    inputs
}

fn fixture() -> Fixture {
    Fixture::of(assemble(inputs_of(&["policy", "shop"])))
}

fn names(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn listed(fixture: &Fixture, server: &str, token: &str) -> Vec<String> {
    names(&Modern::new(server, token, "tools/list", json!({})).send(fixture).await.json())
}

fn call(token: &str, name: &str, arguments: Value) -> Modern {
    Modern::new("all", token, "tools/call", json!({"name": name, "arguments": arguments}))
}

/// A call of the same tool by `call_tool`.
fn wrapped(token: &str, name: &str, arguments: Value) -> Modern {
    call(token, "call_tool", json!({"name": name, "arguments": arguments}))
}

#[tokio::test]
async fn the_tools_of_every_server_are_listed_in_both_eras() {
    let fixture = fixture();
    let mut expected = Vec::new();
    for server in ["policy", "shop"] {
        let own = listed(&fixture, server, &token("alice")).await;
        expected.extend(own.into_iter().map(|tool| format!("{server}__{tool}")));
    }
    assert!(expected.len() == 9, "{expected:?}");
    assert_eq!(listed(&fixture, "all", &token("alice")).await, expected);
    for revision in ["2025-03-26", "2025-11-25"] {
        let client = Legacy::connect(&fixture, "all", "alice", revision, json!({})).await;
        assert_eq!(names(&client.request(2, "tools/list", json!({})).await.json()), expected, "{revision}");
        for (method, list) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
            let answer = client.request(3, method, json!({})).await.json();
            assert_eq!(answer["result"][list], json!([]), "tools only");
        }
    }
    let discovered = Modern::new("all", &token("alice"), "server/discover", json!({})).send(&fixture).await;
    assert_eq!(discovered.json()["result"]["capabilities"], json!({"tools": {}, "logging": {}}));
}

#[tokio::test]
async fn a_call_has_the_result_of_the_same_call_at_its_server() {
    let fixture = fixture();
    let alice = token("alice");
    let arguments = json!({"message": "hello"});
    let params = json!({"name": "send_mail", "arguments": arguments});
    let own = Modern::new("shop", &alice, "tools/call", params.clone()).send(&fixture).await.json();
    for through in [call, wrapped] {
        let answer = through(&alice, "shop__send_mail", arguments.clone()).send(&fixture).await.json();
        assert_eq!(answer, own);
    }
    let own = Legacy::connect(&fixture, "shop", "alice", "2025-11-25", json!({})).await;
    let own = own.request(2, "tools/call", params).await.json()["result"].clone();
    let client = Legacy::connect(&fixture, "all", "alice", "2025-11-25", json!({})).await;
    let direct = json!({"name": "shop__send_mail", "arguments": arguments});
    let by_name = json!({"name": "call_tool", "arguments": direct.clone()});
    for (id, params) in [(2, direct), (3, by_name)] {
        assert_eq!(client.request(id, "tools/call", params).await.json()["result"], own);
    }
}

#[tokio::test]
async fn what_does_not_exist_is_unknown() {
    let fixture = fixture();
    let alice = token("alice");
    for name in [
        "nothing",
        "shop__nothing",
        "nowhere__send_mail",
        "all__find_tools",
        "shop__",
        "__",
        "all__shop__send_mail",
    ] {
        for through in [call, wrapped] {
            let answer = through(&alice, name, json!({})).send(&fixture).await;
            assert_eq!(answer.reason(), "unknown_primitive", "{name}");
        }
    }
    for arguments in [json!({}), json!({"name": 7}), json!({"arguments": {}})] {
        let answer = call(&alice, "call_tool", arguments).send(&fixture).await;
        assert_eq!(answer.reason(), "invalid_params");
    }
    let faulty = call(&alice, "call_tool", json!({"name": "shop__send_mail", "arguments": []}));
    assert_eq!(faulty.send(&fixture).await.reason(), "invalid_params");
    let mirrored = call(&alice, "shop__send_mail", json!({})).with("mcp-name", "send_mail");
    assert_eq!(mirrored.send(&fixture).await.reason(), "header_mismatch");
}

/// Without the setting, `all` is a name like any other.
#[tokio::test]
async fn it_is_served_only_if_the_platform_turned_it_on() {
    let fixture = Fixture::of(assemble(Inputs { all_servers: false, ..inputs_of(&["shop"]) }));
    let answer = Modern::new("all", &token("alice"), "tools/list", json!({})).send(&fixture).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::NOT_FOUND, "unknown_server"));
}

#[tokio::test]
async fn a_server_that_refuses_the_caller_contributes_nothing() {
    let mut inputs = inputs_of(&["policy", "shop"]);
    let policy = inputs.servers.iter_mut().find(|server| server.server.name == "policy").unwrap();
    policy.edge.scopes = vec!["special".into()];
    let fixture = Fixture::of(assemble(inputs));
    let servers = async |token: &str| {
        let listed = listed(&fixture, "all", token).await;
        let mut servers: Vec<String> =
            listed.iter().map(|name| name.split_once("__").unwrap().0.to_owned()).collect();
        servers.dedup();
        servers
    };
    let plain = token("alice");
    let special = token_with_scopes("alice", "special");
    assert_eq!(servers(&plain).await, ["shop"]);
    assert_eq!(servers(&special).await, ["policy", "shop"]);
    for through in [call, wrapped] {
        let open = async |token: &str| through(token, "policy__policy.open", json!({})).send(&fixture).await;
        assert_eq!(open(&plain).await.reason(), "unknown_primitive");
        assert_eq!(open(&special).await.json()["result"]["isError"], false);
    }
}

#[tokio::test]
async fn without_a_token_the_open_servers_of_development_are_reached() {
    let fixture = Fixture::of(assemble(inputs_of(&["conformance", "shop"])));
    let list = Modern::new("all", &token("alice"), "tools/list", json!({}));
    let anonymous = names(&list.clone().without("authorization").send(&fixture).await.json());
    assert!(!anonymous.is_empty(), "it asks for no token");
    assert!(anonymous.iter().all(|name| name.starts_with("conformance__")), "{anonymous:?}");
    let alice = names(&list.send(&fixture).await.json());
    assert_eq!(alice.len(), anonymous.len() + 4, "{alice:?}");
}

#[tokio::test]
async fn the_address_is_an_audience_of_servers_that_list_none() {
    let mut inputs = inputs_of(&["policy", "shop"]);
    let shop = inputs.servers.iter_mut().find(|server| server.server.name == "shop").unwrap();
    shop.edge.audiences = vec!["api://shop".into()];
    let fixture = Fixture::of(assemble(inputs));
    let of = |audience: &str| {
        let mut claims = claims("alice");
        claims["aud"] = audience.into();
        sign(&claims)
    };
    for (audience, tool) in
        [(format!("{PUBLIC_URL}/all/mcp"), "policy__"), ("api://shop".to_owned(), "shop__")]
    {
        let listed = listed(&fixture, "all", &of(&audience)).await;
        assert!(
            !listed.is_empty() && listed.iter().all(|name| name.starts_with(tool)),
            "{audience}: {listed:?}"
        );
    }
    let elsewhere = Modern::new("all", &of("api://elsewhere"), "tools/list", json!({})).send(&fixture).await;
    assert_eq!((elsewhere.status, elsewhere.reason().as_str()), (StatusCode::UNAUTHORIZED, "token_invalid"));
}

#[tokio::test]
async fn a_missing_scope_is_challenged_for_the_address_of_the_request() {
    let answer = call(&token("alice"), "policy__policy.scoped", json!({})).send(&fixture()).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::FORBIDDEN, "insufficient_scope"));
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("/.well-known/oauth-protected-resource/all/mcp"), "{challenge}");
}

#[tokio::test]
async fn calls_are_recorded_under_their_own_server_and_limited_by_it() {
    let fixture = fixture();
    let alice = token("alice");
    for through in [call, wrapped] {
        through(&alice, "policy__policy.few", json!({})).send(&fixture).await;
    }
    let third =
        Modern::new("policy", &alice, "tools/call", json!({"name": "policy.few"})).send(&fixture).await;
    assert_eq!(third.json()["result"]["_meta"]["asp/reason"], "rate_limited", "one limit for both addresses");
    fixture.gateway.flush().await;
    let events: Vec<Value> =
        fixture.audit.events().iter().map(|event| serde_json::from_str(&event.event).unwrap()).collect();
    assert_eq!(events.len(), 6);
    for event in events {
        assert_eq!((&event["server"], &event["primitive"]), (&json!("policy"), &json!("policy.few@1.0.0")));
    }
}

#[tokio::test]
async fn a_modern_client_is_asked_and_asks_again_with_the_answer() {
    let fixture = fixture();
    let alice = token("alice");
    for through in [call, wrapped] {
        let asking = |more: Value| {
            let mut call = through(&alice, "policy__policy.wipe", json!({"message": "gone"}));
            let params = call.body["params"].as_object_mut().unwrap();
            params.extend(more.as_object().unwrap().clone());
            call.capabilities(json!({"elicitation": {}}))
        };
        let asked = asking(json!({})).send(&fixture).await.json()["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (key, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let answer = json!({"action": "accept", "content": {"approve": true}});
        let again = json!({"requestState": asked["requestState"], "inputResponses": {key: answer}});
        let done = asking(again).send(&fixture).await.json()["result"].clone();
        assert_eq!(done["structuredContent"], json!({"message": "gone"}), "{done}");
    }
}

#[tokio::test]
async fn a_legacy_client_is_asked_on_its_stream_and_can_resume_it() {
    let fixture = fixture();
    let client = Legacy::connect(&fixture, "all", "alice", "2025-11-25", json!({"elicitation": {}})).await;
    let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                      "params": {"name": "policy__policy.wipe", "arguments": {"message": "gone"}}});
    let mut body = client.open(&call).await.into_body();
    let mut text = String::new();
    while !text.contains("elicitation/create") {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
    }
    let line = text.lines().filter_map(|line| line.strip_prefix("data: ")).find(|data| !data.is_empty());
    let asked: Value = serde_json::from_str(line.unwrap()).unwrap();
    let position = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    drop(body);
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"approve": true}}});
    assert_eq!(client.post(&answer).await.status, StatusCode::ACCEPTED);
    let mut headers = client.headers();
    headers.push(("last-event-id", position.to_owned()));
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let resumed = fixture.send(Method::GET, "/all/mcp", &headers, "").await;
    assert_eq!(resumed.last()["result"]["structuredContent"], json!({"message": "gone"}), "{}", resumed.text);
}

#[tokio::test]
async fn the_public_list_of_servers_does_not_hold_it_and_its_metadata_is_public() {
    let fixture = fixture();
    let list = fixture.send(Method::GET, "/v0.1/servers", &[], "").await.json();
    assert_eq!(list["metadata"]["count"], 2, "{list}");
    let path = "/.well-known/oauth-protected-resource/all/mcp";
    let document = fixture.send(Method::GET, path, &[], "").await.json();
    assert_eq!(document["resource"], format!("{PUBLIC_URL}/all/mcp"));
}

/// Issuers of servers that are not open to every org would reveal who the tenants are.
#[tokio::test]
async fn public_documents_name_only_the_issuers_of_open_servers() {
    const RESOURCE: &str = "/.well-known/oauth-protected-resource";
    for is_open in [true, false] {
        let mut inputs = inputs_of(&["policy", "shop"]);
        let iss = "https://partner.example.com";
        let partner = Issuer { name: "partner".into(), iss: iss.into(), ..inputs.issuers[0].clone() };
        inputs.issuers.push(partner);
        let policy = inputs.servers.iter_mut().find(|server| server.server.name == "policy").unwrap();
        policy.edge.issuers.push("partner".into());
        policy.edge.default_allow = is_open;
        let fixture = Fixture::of(assemble(inputs));
        for path in [RESOURCE.to_owned(), format!("{RESOURCE}/all/mcp")] {
            let document = fixture.send(Method::GET, &path, &[], "").await.json();
            let named = document.get("authorization_servers");
            assert_eq!(named, is_open.then_some(&json!([iss])), "{path}: {document}");
        }
    }
}

/// A server of that name that was stored before the name was reserved.
#[tokio::test]
async fn a_teams_server_of_the_name_is_an_ordinary_one_without_the_setting() {
    let mut inputs = Inputs { all_servers: false, ..inputs_of(&["shop"]) };
    for server in &mut inputs.servers {
        server.edge.name = "all".into();
        server.server.name = "all".into();
    }
    let fixture = Fixture::of(assemble(inputs));
    assert!(listed(&fixture, "all", &token("alice")).await.contains(&"send_mail".to_owned()));
}
