//! I-10: list and call agree; hidden and unknown are the same; a missing scope is a challenge.

use asp_proto::snapshot::{Binding, ExposureException, Protocol, TargetKind};
use asp_registry::assemble;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, Modern, inputs, token, token_with_scopes};

fn names(list: &Value) -> Vec<String> {
    list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn what_a_binding_denies_is_neither_listed_nor_known() {
    let mut inputs = inputs();
    inputs.bindings.push(Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "bob".into(),
        primitive: "clock".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    });
    let fixture = Fixture::of(assemble(inputs));
    for (user, sees) in [("alice", true), ("bob", false)] {
        let client = Legacy::connect(&fixture, "demo", user, "2025-11-25", json!({})).await;
        let listed = names(&client.request(2, "tools/list", json!({})).await.json());
        assert_eq!(listed.contains(&"clock".to_owned()), sees, "{user}");
        let called = client.request(3, "tools/call", json!({"name": "clock"})).await.json();
        assert_eq!(called.get("result").is_some(), sees, "{user}");
        if !sees {
            let unknown = client.request(3, "tools/call", json!({"name": "clocc"})).await.text;
            assert_eq!(
                called.to_string(),
                serde_json::from_str::<Value>(&unknown.replace("clocc", "clock")).unwrap().to_string()
            );
        }
    }
}

#[tokio::test]
async fn a_server_switched_off_for_an_org_is_unknown_to_it() {
    let mut inputs = inputs();
    inputs.exposure.push(ExposureException {
        org: "acme".into(),
        server: "demo".into(),
        protocol: Protocol::Mcp.into(),
        enabled: false,
    });
    let fixture = Fixture::of(assemble(inputs));
    let answer = Modern::new("demo", &token("alice"), "tools/list", json!({})).send(&fixture).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::NOT_FOUND, "unknown_server"));
    let nobody = Modern::new("nope", &token("alice"), "tools/list", json!({})).send(&fixture).await;
    assert_eq!(answer.text, nobody.text);
}

#[tokio::test]
async fn a_missing_scope_is_listed_and_answered_with_a_challenge() {
    let fixture = Fixture::new();
    let list = Modern::new("policy", &token("alice"), "tools/list", json!({})).send(&fixture).await.json();
    assert!(names(&list).contains(&"policy.scoped".to_owned()));
    let call = |token: &str| Modern::new("policy", token, "tools/call", json!({"name": "policy.scoped"}));
    let answer = call(&token_with_scopes("alice", "x:read")).send(&fixture).await;
    assert_eq!((answer.status, answer.reason().as_str()), (StatusCode::FORBIDDEN, "insufficient_scope"));
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    assert_eq!(
        challenge,
        "Bearer error=\"insufficient_scope\", error_description=\"the bearer token lacks a required scope\", scope=\"x:read x:write\", \
         resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource/policy/mcp\""
    );
    let answer = call(&token_with_scopes("alice", "x:read x:write other")).send(&fixture).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.json()["result"]["isError"], false);
}

#[tokio::test]
async fn a_deprecated_tool_says_so_in_lists_and_refuses_calls_only_if_its_spec_wants_that() {
    let spec = |id: &str, deprecated: &str| {
        let text = format!(
            "id: {id}\nname: Echo\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: Says it again.\n\
             mutation: read_only\nprimitiveSchema: {{input_schema: {{type: object}}}}\n{deprecated}\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n"
        );
        asp_registry::Source { path: format!("ageing/{id}.yaml"), text }
    };
    let server = "apiVersion: asp/v1\nname: ageing\ndescription: For tests.\nprotocols: [mcp]\ndefaultExposure: allow\n\
                  auth: {schemes: [jwt], issuers: [dev]}\n\
                  primitives: [{ref: ageing/kept}, {ref: ageing/refused}, {ref: ageing/later}]\n";
    let report = asp_registry::check(&[
        asp_registry::Source { path: "ageing/server.yaml".into(), text: server.into() },
        spec("kept", "deprecated: {until: 2020-01-01, use: later}"),
        spec("refused", "deprecated: {until: 2020-01-01, use: later, reason: It is slow., refuse: true}"),
        spec("later", "deprecated: {until: 9999-01-01, refuse: true}"),
    ]);
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
    let mut inputs = inputs();
    inputs.servers.extend(report.catalog.unwrap().servers);
    let fixture = Fixture::of(assemble(inputs));
    let client = Legacy::connect(&fixture, "ageing", "alice", "2025-11-25", json!({})).await;
    let list = client.request(2, "tools/list", json!({})).await.json();
    let listed =
        list["result"]["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "refused").unwrap();
    let note =
        "Says it again.\n\nDeprecated: calls are refused from 2020-01-01 on. Use later instead. It is slow.";
    assert_eq!(listed["description"], note);
    let meta = json!({"until": "2020-01-01", "use": "later", "reason": "It is slow.", "refuse": true});
    assert_eq!(listed["_meta"]["asp/deprecated"], meta);
    for (id, name, refused) in [(3, "kept", false), (4, "refused", true), (5, "later", false)] {
        let answer = client.request(id, "tools/call", json!({"name": name, "arguments": {}})).await.json();
        let why = "refused is not supported since 2020-01-01; use later instead";
        assert_eq!(answer.to_string().contains(why), refused, "{name}: {answer}");
    }
}

/// Two major versions of `both.echo`, whose arguments differ: 2.0.0 and an `older` one, of major version 1.
pub(crate) fn with_two_versions(older: &str) -> asp_registry::Inputs {
    let spec = |version: &str, argument: &str| {
        format!(
            "id: both.echo\nname: Echo\ntype: tool\nversion: {version}\nowner: both\nsummary: Says it again.\n\
             mutation: read_only\nprimitiveSchema:\n  input_schema:\n    type: object\n    required: [{argument}]\n    \
             properties: {{{argument}: {{type: string}}}}\n    additionalProperties: false\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n"
        )
    };
    let server = "apiVersion: asp/v1\nname: both\ndescription: Two versions.\nprotocols: [mcp, rest]\ndefaultExposure: allow\n\
                  auth: {schemes: [jwt], issuers: [dev]}\n\
                  primitives: [{ref: both/both.echo, as: echo}, {ref: both/both.echo@1, as: echo_v1}]\n";
    let source = |file: &str, text: String| asp_registry::Source { path: format!("both/{file}.yaml"), text };
    let sources = [
        source("server", server.into()),
        source("echo", spec("2.0.0", "message")),
        source("echo-1", spec(older, "text")),
    ];
    let report = asp_registry::check(&sources);
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
    let mut inputs = inputs();
    inputs.servers.extend(report.catalog.unwrap().servers);
    inputs
}

#[tokio::test]
async fn two_major_versions_have_names_and_arguments_of_their_own_and_one_policy() {
    let mut inputs = with_two_versions("1.3.0");
    inputs.bindings.push(Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "bob".into(),
        primitive: "both.echo".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    });
    let fixture = Fixture::of(assemble(inputs));
    let client = Legacy::connect(&fixture, "both", "alice", "2025-11-25", json!({})).await;
    assert_eq!(names(&client.request(2, "tools/list", json!({})).await.json()), ["echo", "echo_v1"]);
    for (id, name, argument, fits) in [
        (3, "echo", "message", true),
        (4, "echo", "text", false),
        (5, "echo_v1", "text", true),
        (6, "echo_v1", "message", false),
    ] {
        let params = json!({"name": name, "arguments": {argument: "hello"}});
        let answer = client.request(id, "tools/call", params).await.json();
        let refused = answer["result"]["isError"] == true || answer.get("error").is_some();
        assert_eq!(!refused, fits, "{name} {argument}: {answer}");
    }
    let bob = Legacy::connect(&fixture, "both", "bob", "2025-11-25", json!({})).await;
    assert_eq!(names(&bob.request(2, "tools/list", json!({})).await.json()), [""; 0]);
}
