//! Bodies of a service's 2xx answers, of any type (I-14): never an unknown outcome, never other bytes.

use std::sync::Arc;

use asp_proto::snapshot::{Mutation, runtime::Mode};
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{echo, http_mapping, serve, with_runtime};
use crate::support::{Fixture, Modern, token};

type Answer = (u16, Option<&'static str>, &'static [u8]);

/// The result of a call whose service gives this answer.
async fn result_of(mutation: Mutation, pointer: &str, answer: Answer) -> Value {
    echo(&fixture("echo", mutation, pointer, answer).await, "m").await["result"].clone()
}

/// The response to a client that gets a prompt whose service gives this answer.
async fn prompt_of(answer: Answer) -> Value {
    let fixture = fixture("greeting", Mutation::ReadOnly, "", answer).await;
    let params = json!({"name": "greeting", "arguments": {"name": "Ada"}});
    Modern::new("demo", &token("alice"), "prompts/get", params).send(&fixture).await.json()
}

/// A gateway where a service gives this answer to calls of a primitive.
async fn fixture(id: &str, mutation: Mutation, pointer: &str, answer: Answer) -> Fixture {
    let answer = Arc::new(answer);
    let service = axum::Router::new().fallback(async move |_: Request| {
        let (status, kind, body) = *answer;
        let mut response = Response::builder().status(status);
        if let Some(kind) = kind {
            response = response.header("content-type", kind);
        }
        response.body(Body::from(body)).unwrap()
    });
    let upstream = format!("http://{}", serve(service).await);
    let mapping = asp_proto::snapshot::ProxyHttp { result: pointer.into(), ..http_mapping("/") };
    Fixture::of(with_runtime(id, Mode::ProxyHttp(mapping), mutation, &upstream))
}

#[tokio::test]
async fn a_2xx_without_a_body_is_an_empty_result_whatever_its_type() {
    for (status, kind) in [
        (200, Some("application/json")),
        (201, Some("application/json")),
        (202, Some("text/plain")),
        (204, Some("application/json")),
        (204, None),
        (205, Some("application/problem+json")),
        (200, Some("image/png")),
        (200, None),
    ] {
        for body in [&b""[..], b" \r\n", b"\xef\xbb\xbf"] {
            let is_content = kind == Some("image/png") || kind == Some("text/plain") && body == b" \r\n";
            if !body.is_empty() && (matches!(status, 204 | 205) || is_content) {
                continue;
            }
            let result = result_of(Mutation::NonIdempotent, "", (status, kind, body)).await;
            assert_eq!(result["isError"], false, "{status} {kind:?}: {result}");
            assert_eq!(result["content"], json!([]), "{status} {kind:?}");
        }
    }
    let result = result_of(Mutation::NonIdempotent, "/data", (204, Some("application/json"), b"")).await;
    assert_eq!(result["isError"], false, "a mapped result: {result}");
}

#[tokio::test]
async fn text_of_any_type_and_charset_arrives_as_it_was_meant() {
    for (kind, body, text) in [
        (Some("application/x-ndjson"), &b"{\"a\":1}\n{\"a\":2}\n"[..], "{\"a\":1}\n{\"a\":2}\n"),
        (Some("application/json"), b"{\"a\":1}\n{\"a\":2}\n", "{\"a\":1}\n{\"a\":2}\n"),
        (Some("application/json"), b"it is done", "it is done"),
        (Some("text/plain; charset=iso-8859-1"), b"gr\xfc\xdfe", "grüße"),
        (Some("Text/HTML; Charset=\"windows-1252\""), b"\x80 5", "€ 5"),
        (Some("text/csv; charset=utf-16le"), b"a\0,\0b\0", "a,b"),
        (Some("application/xml"), b"<a/>", "<a/>"),
        (Some("application/toml"), b"a = 1\n", "a = 1\n"),
        (Some("application/x-javascript"), b"go();", "go();"),
        (Some("text/plain"), b" \r\n", " \r\n"),
        (Some("text/csv"), b"\n", "\n"),
        (None, b"plain words", "plain words"),
    ] {
        let result = result_of(Mutation::NonIdempotent, "", (200, kind, body)).await;
        assert_eq!(result["isError"], false, "{kind:?}: {result}");
        assert_eq!(result["content"], json!([{"type": "text", "text": text}]), "{kind:?}");
    }
}

#[tokio::test]
async fn json_is_read_by_its_type_in_any_letters_with_a_mark_and_without_a_type() {
    for (kind, body) in [
        (Some("application/json"), &b"\xef\xbb\xbf{\"a\":1}"[..]),
        (Some("Application/Problem+JSON; charset=UTF-8"), b"{\"a\":1}"),
        (Some("application/json; charset=utf-16le"), b"{\0\"\0a\0\"\0:\x001\0}\0"),
        (Some("application/x-amz-json-1.1"), b"{\"a\":1}"),
        (Some("application/x-json"), b"{\"a\":1}"),
        (None, b"{\"a\":1}"),
    ] {
        let result = result_of(Mutation::NonIdempotent, "", (200, kind, body)).await;
        assert_eq!(result["structuredContent"], json!({"a": 1}), "{kind:?}: {result}");
    }
}

#[tokio::test]
async fn bytes_arrive_as_mcp_content_and_unchanged() {
    let bytes = &b"\x89PNG\r\n\x1a\n\x00\xff\xfe"[..];
    for (kind, place, named) in [
        (Some("image/png"), "", "image/png"),
        (Some("Image/PNG; x=1"), "", "image/png"),
        (Some("image/svg+xml"), "", "image/svg+xml"),
        (Some("audio/ogg"), "", "audio/ogg"),
        (Some("application/pdf"), "/resource", "application/pdf"),
        (Some("font/woff2"), "/resource", "font/woff2"),
        (Some("application/octet-stream"), "/resource", "application/octet-stream"),
        (Some("application/toml"), "/resource", "application/toml"),
        (Some("text/plain; charset=utf-8"), "/resource", "text/plain"),
        (Some("application/json"), "/resource", "application/json"),
        (None, "/resource", "application/octet-stream"),
    ] {
        let result = result_of(Mutation::NonIdempotent, "", (200, kind, bytes)).await;
        assert_eq!(result["isError"], false, "{kind:?}: {result}");
        let block = result["content"][0].pointer(place).unwrap();
        let data = block[if place.is_empty() { "data" } else { "blob" }].as_str().unwrap();
        assert_eq!(STANDARD.decode(data).unwrap(), bytes, "{kind:?}");
        assert_eq!(block["mimeType"], named, "{kind:?}");
    }
}

/// A model reads images in the result; it cannot read other bytes.
#[tokio::test]
async fn many_bytes_are_an_artifact_that_only_the_caller_reads() {
    let bytes: &'static [u8] = vec![0xff; (64 << 10) + 1].leak();
    let answer = (200, Some("application/pdf"), bytes);
    let fixture = fixture("echo", Mutation::NonIdempotent, "", answer).await;
    let result = echo(&fixture, "m").await["result"].clone();
    let link = &result["content"][0];
    assert_eq!(
        (&link["type"], &link["name"], &link["mimeType"], &link["size"]),
        (&json!("resource_link"), &json!("answer"), &json!("application/pdf"), &json!(bytes.len())),
        "{link}"
    );
    let read = async |user: &str| {
        let params = json!({"uri": link["uri"]});
        Modern::new("demo", &token(user), "resources/read", params).send(&fixture).await.json()
    };
    let own = read("alice").await;
    let blob = own["result"]["contents"][0]["blob"].as_str().unwrap();
    assert_eq!(STANDARD.decode(blob).unwrap(), bytes);
    assert!(read("bob").await["result"].is_null());

    let image = result_of(Mutation::NonIdempotent, "", (200, Some("image/png"), bytes)).await;
    assert_eq!(image["content"][0]["type"], "image");
    let large: &'static [u8] = vec![0xff; (1 << 20) + 1].leak();
    let image = result_of(Mutation::NonIdempotent, "", (200, Some("image/png"), large)).await;
    assert_eq!(image["content"][0]["type"], "resource_link", "{image}");
}

#[tokio::test]
async fn a_done_call_whose_answer_lacks_the_mapped_result_is_not_unknown() {
    let result = result_of(Mutation::NonIdempotent, "/data", (200, Some("application/json"), b"{}")).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("succeeded at the service") && text.contains("/data"), "{text}");
    assert_ne!(result["_meta"]["asp/reason"], "outcome_unknown");
}

#[tokio::test]
async fn messages_of_a_prompt_are_those_of_mcp_or_an_error_that_names_what_is_wrong() {
    let json = Some("application/json");
    for (body, fault) in [
        (&br#"{"messages":"hello"}"#[..], "messages is not an array"),
        (br#"{"messages":["a"]}"#, "messages/0"),
        (br#"{"messages":[{"role":"system","content":{"type":"text","text":"a"}}]}"#, "messages/0"),
        (br#"{"messages":[{"role":"user","content":{"type":"text"}}]}"#, "messages/0"),
    ] {
        let answer = prompt_of((200, json, body)).await;
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(said.contains("malformed") && said.contains(fault), "{answer}");
    }
    for (body, text) in [
        (&br#"{"messages":[{"role":"assistant","content":{"type":"text","text":"a"}}]}"#[..], "a"),
        (br#"{"n":1}"#, r#"{"n":1}"#),
    ] {
        let answer = prompt_of((200, json, body)).await;
        assert_eq!(answer["result"]["messages"][0]["content"]["text"], text, "{answer}");
    }
    let described = br#"{"description":"Greets","messages":[],"_meta":{"a/b":1,"asp/x":1}}"#;
    let answer = prompt_of((200, json, described)).await;
    let result = &answer["result"];
    assert_eq!((&result["description"], &result["_meta"]["a/b"]), (&json!("Greets"), &json!(1)), "{result}");
    assert!(result["_meta"].get("asp/x").is_none(), "{result}");
}

#[tokio::test]
async fn a_body_that_is_compressed_unasked_is_bytes_under_a_true_name() {
    for (coding, body, kind) in [
        ("gzip", &b"\x1f\x8b\x08"[..], Some("application/gzip")),
        ("br", b"\x0b\x02\x80", Some("application/octet-stream")),
        ("UTF-8", b"{\"ok\":true}", None),
    ] {
        let service = axum::Router::new().fallback(async move |request: Request| {
            let asked = request.headers()["accept-encoding"].to_str().unwrap().to_owned();
            assert_eq!(asked, "identity");
            let response = Response::builder().header("content-type", "application/json");
            response.header("content-encoding", coding).body(Body::from(body)).unwrap()
        });
        let upstream = format!("http://{}", serve(service).await);
        let mode = Mode::ProxyHttp(http_mapping("/"));
        let answer = echo(&Fixture::of(with_runtime("echo", mode, Mutation::ReadOnly, &upstream)), "m").await;
        let result = &answer["result"];
        match kind {
            Some(kind) => {
                let resource = &result["content"][0]["resource"];
                assert_eq!(resource["mimeType"], kind, "{answer}");
                assert_eq!(resource["blob"], STANDARD.encode(body), "{answer}");
            }
            None => assert_eq!(result["structuredContent"], json!({"ok": true}), "{answer}"),
        }
    }
}
