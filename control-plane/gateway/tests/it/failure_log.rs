//! I-2: each failed call has one line in the log, whatever its protocol, and the trace that its client got finds it.

use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{GatewaySnapshot, Mutation, Protocol, ProxyHttp, Runtime, Upstream};
use asp_registry::assemble;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::rest::Rest;
use crate::support::log_lines::LogLines;
use crate::support::{Fixture, Modern, inputs, token};

/// Returns the test servers over every protocol, with `echo` at a service to which nothing listens.
fn without_service() -> GatewaySnapshot {
    let mut inputs = inputs();
    for server in &mut inputs.servers {
        for protocol in [Protocol::Rest, Protocol::A2a].map(i32::from) {
            if !server.edge.protocols.contains(&protocol) {
                server.edge.protocols.push(protocol);
            }
        }
        for listing in &mut server.server.listings {
            if !listing.rest_name.is_empty() {
                listing.a2a_skill = listing.id.clone();
            }
        }
    }
    let mut snapshot = assemble(inputs);
    let mapping = ProxyHttp {
        method: "POST".into(),
        url: "http://service.internal/things".into(),
        body: "args".into(),
        ..ProxyHttp::default()
    };
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.runtime = Some(Runtime { mode: Some(Mode::ProxyHttp(mapping.clone())) });
        primitive.output_schema.clear();
        primitive.set_mutation(Mutation::ReadOnly);
    }
    // The port was free a moment ago.
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    snapshot.upstreams.push(Upstream {
        name: "service.internal".into(),
        url: format!("http://{unused}"),
        primitives: vec!["*".into()],
    });
    snapshot
}

fn trace_id(number: u32) -> String {
    format!("{number:032x}")
}

fn traceparent(number: u32) -> String {
    format!("00-{}-b7ad6b7169203331-01", trace_id(number))
}

fn call(name: &str, arguments: Value) -> Modern {
    Modern::new("demo", &token("alice"), "tools/call", json!({"name": name, "arguments": arguments}))
}

#[tokio::test]
async fn a_failed_call_has_one_line_with_its_upstream_over_every_protocol() {
    let (lines, _listening) = LogLines::listen();
    let fixture = Fixture::of(without_service());
    let arguments = json!({"message": "secret"});
    call("echo", arguments.clone()).with("traceparent", &traceparent(1)).send(&fixture).await;
    let rest = Rest::at(&fixture, "/demo/rest/tools/echo/calls/1").with("traceparent", &traceparent(2));
    rest.put(&arguments).await;
    let message = json!({"messageId": "m-log", "role": "ROLE_USER",
        "parts": [{"data": {"skill": "echo", "arguments": arguments}}]});
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": message}});
    let bearer = format!("Bearer {}", token("alice"));
    let sent = traceparent(3);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("traceparent", sent.as_str()),
    ];
    fixture.send(Method::POST, "/demo/a2a", &headers, &body.to_string()).await;
    for (number, protocol) in [(1, "mcp"), (2, "rest"), (3, "a2a")] {
        let found = lines.with("trace", &trace_id(number));
        assert_eq!(found.len(), 1, "{protocol}: {found:?}");
        let line = &found[0];
        let expected = [
            ("level", "WARN"),
            ("message", "call failed"),
            ("org", "acme"),
            ("server", "demo"),
            ("primitive", "echo"),
            ("protocol", protocol),
            ("upstream", "service.internal"),
            ("reason", "upstream_unavailable"),
            ("outcome", "failed"),
        ];
        for (field, value) in expected {
            assert_eq!(line[field], value, "{protocol}: {field} of {line}");
        }
        let text = line.to_string();
        assert!(!text.contains("secret") && !text.contains("alice"), "{text}");
    }
}

#[tokio::test]
async fn the_level_is_that_of_the_side_at_fault() {
    let (lines, _listening) = LogLines::listen();
    let mut snapshot = assemble(inputs());
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.output_schema = json!({"type": "object", "required": ["absent"]}).to_string();
    }
    let fixture = Fixture::of(snapshot);
    for (number, name, arguments, level, reason) in [
        (1, "echo", json!({"message": "hi"}), "ERROR", "internal"),
        (2, "echo", json!({"message": 7}), "INFO", "invalid_params"),
        (3, "nope", json!({}), "INFO", "unknown_primitive"),
    ] {
        call(name, arguments).with("traceparent", &traceparent(number)).send(&fixture).await;
        let found = lines.with("trace", &trace_id(number));
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!(
            (&found[0]["level"], &found[0]["reason"]),
            (&json!(level), &json!(reason)),
            "{}",
            found[0]
        );
    }
    call("count", json!({"to": 1, "delayMs": 0})).with("traceparent", &traceparent(4)).send(&fixture).await;
    assert_eq!(lines.with("trace", &trace_id(4)), Vec::<Value>::new(), "a call that ends well has none");
}

#[tokio::test]
async fn a_refusal_by_the_pipeline_is_not_logged_again_with_its_response() {
    let (lines, _listening) = LogLines::listen();
    let fixture = Fixture::new();
    let scoped = Modern::new("policy", &token("alice"), "tools/call", json!({"name": "policy.scoped"}));
    let answer = scoped.with("traceparent", &traceparent(1)).send(&fixture).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let rest = Rest::of(&fixture, "policy.open", "1").with("traceparent", &traceparent(2));
    assert_eq!(rest.put(&json!({"message": 7})).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    for number in [1, 2] {
        let found = lines.with("trace", &trace_id(number));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&found[0]["message"], &found[0]["server"]), (&json!("call failed"), &json!("policy")));
    }
}

#[tokio::test]
async fn a_flood_of_bad_calls_is_counted_and_not_logged_one_by_one() {
    const SENT: u64 = 300;
    let (lines, _listening) = LogLines::listen();
    let fixture = Fixture::new();
    for _ in 0..SENT {
        call("echo", json!({"message": 7})).send(&fixture).await;
    }
    fixture.gateway.pipeline.sweep();
    let logged = lines.with("message", "call failed").len() as u64;
    // A hundred at once, and one every three seconds.
    assert!((100..200).contains(&logged), "{logged}");
    let counted = lines.with("reason", "invalid_params");
    let counted: Vec<&Value> = counted.iter().filter(|line| line["left_out"].is_u64()).collect();
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert_eq!(counted[0]["left_out"], SENT - logged);
    assert_eq!(counted[0]["org"], "acme");
}
