//! The fixtures of the official conformance suite: exactly what it documents, where the suite itself takes any answer of
//! the kind.

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::message::modern;
use crate::trial::Shared;

const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SILENCE: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![shared.trial("conformance::fixtures_answer_what_the_suite_documents", |shared| async move {
        fixtures(&shared).await
    })]
}

async fn fixtures(shared: &Shared) -> Result<()> {
    let stack = shared.plugin_stack().await?;
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": PIXEL, "mimeType": "image/png"});
    let resource = |uri: &str, kind: &str, text: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}});
    let embedded =
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.");
    let mixed =
        resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#);
    let rows = [
        ("test_simple_text", false, json!([text("This is a simple text response for testing.")])),
        ("test_image_content", false, json!([image])),
        ("test_audio_content", false, json!([{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}])),
        ("test_embedded_resource", false, json!([embedded])),
        ("test_multiple_content_types", false, json!([text("Multiple content types test:"), image, mixed])),
        ("test_error_handling", true, json!([text("This tool intentionally returns an error for testing")])),
    ];
    for (name, is_error, content) in rows {
        // Nobody signs in: the server is open, in development mode alone.
        let mut request = modern("", "tools/call", json!({"name": name}), &[("mcp-name", name)]);
        request.headers.retain(|(header, _)| header != "authorization");
        request.target = "/conformance/mcp".into();
        let answer = http1::send(stack.edge(), &request).await.context(name)?.json()?;
        let result: &Value = &answer["result"];
        ensure!(result["content"] == content && result["isError"] == is_error, "{name}: {answer}");
    }
    Ok(())
}
