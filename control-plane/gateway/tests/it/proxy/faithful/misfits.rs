//! I-14: a result that does not fit its output schema is an error that holds what the service answered.

use super::*;

/// `echo` with an output schema.
fn promising(mut snapshot: GatewaySnapshot, schema: &Value) -> Fixture {
    open_echo(&mut snapshot, &json!({"type": "object"}));
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.output_schema = schema.to_string();
    }
    Fixture::of(snapshot)
}

fn integers() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}})
}

async fn result_of(fixture: &Fixture, is_modern: bool) -> Value {
    let answer = call(fixture, is_modern, "{}", r#""a/b":1"#).await;
    let message = answer.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&answer);
    serde_json::from_str::<Value>(message).unwrap()["result"].clone()
}

fn texts(result: &Value) -> Vec<&str> {
    result["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

#[tokio::test]
async fn a_result_of_an_mcp_upstream_that_does_not_fit_is_told_with_place_rule_and_content() {
    for (sent, place, kept) in [
        (
            r#"{"content":[{"type":"text","text":"it is three"}],"structuredContent":{"n":"3"},"_meta":{"a/b":1}}"#,
            "/n: ",
            &["it is three", r#"{"n":"3"}"#][..],
        ),
        (r#"{"structuredContent":{"n":"3"},"_meta":{"a/b":1}}"#, "/n: ", &[r#"{"n":"3"}"#]),
        (
            r#"{"content":[{"type":"text","text":"no data"}],"_meta":{"a/b":1}}"#,
            "a structured result is required",
            &["no data"],
        ),
    ] {
        let (address, _) = upstream(sent.into()).await;
        let fixture = promising(via_mcp(&["echo"], address), &integers());
        for is_modern in [true, false] {
            let result = result_of(&fixture, is_modern).await;
            assert_eq!(result["isError"], true, "{sent}: {result}");
            assert!(result.get("structuredContent").is_none(), "{sent}: {result}");
            assert_eq!(result["_meta"]["a/b"], 1, "{sent}: {result}");
            let texts = texts(&result);
            assert!(
                texts[0].contains("the call was completed") && texts[0].contains(place),
                "{sent}: {result}"
            );
            assert_eq!(&texts[1..], kept, "{sent}: {result}");
        }
    }
}

#[tokio::test]
async fn the_value_of_an_error_that_does_not_fit_becomes_text() {
    let sent =
        r#"{"content":[{"type":"text","text":"bad"}],"structuredContent":{"n":"line 121"},"isError":true}"#;
    let (address, _) = upstream(sent.into()).await;
    let fixture = promising(via_mcp(&["echo"], address), &integers());
    let result = result_of(&fixture, true).await;
    assert_eq!(texts(&result), ["bad", r#"{"n":"line 121"}"#], "{result}");
    assert!(result.get("structuredContent").is_none(), "{result}");
}

#[tokio::test]
async fn an_answer_of_an_http_service_that_does_not_fit_is_told_with_place_rule_and_body() {
    let service = axum::Router::new()
        .fallback(async |_: Request| ([("content-type", "application/json")], r#"{"n":1.50}"#));
    let upstream = format!("http://{}", serve(service).await);
    let snapshot = with_runtime("echo", Mode::ProxyHttp(http_mapping("/")), Mutation::ReadOnly, &upstream);
    let result = result_of(&promising(snapshot, &integers()), true).await;
    assert_eq!(result["isError"], true, "{result}");
    let texts = texts(&result);
    assert!(texts[0].contains("the call was completed") && texts[0].contains("/n: "), "{result}");
    assert_eq!(&texts[1..], [r#"{"n":1.50}"#], "{result}");
}
