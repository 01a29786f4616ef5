//! Tests which of the known plugins is forgotten when there are too many.

use asp_proto::supervisor::EnsurePluginRequest;
use serde_json::json;

use super::harness::{Stack, install, reference, start};

/// Maximum number of plugins that a runtime knows.
const KNOWN: usize = 512;

async fn ask_for(stack: &Stack, plugin: &str) {
    let request = EnsurePluginRequest { plugin: Some(reference(plugin)), ..Default::default() };
    stack.client.clone().ensure_plugin(request).await.unwrap();
}

#[tokio::test]
async fn the_plugin_that_nobody_asked_for_longest_gives_way_whatever_its_name() {
    let name = |number: usize| format!("p{number:03}");
    let stack = start(&[(name(0).as_str(), json!({}))]).await;
    for number in 1..=KNOWN {
        install(&stack.plugins(), &name(number), "1.0.0", &json!({}));
    }
    for number in 0..KNOWN {
        ask_for(&stack, &name(number)).await;
    }
    ask_for(&stack, &name(0)).await;
    ask_for(&stack, &name(KNOWN)).await;
    let health = stack.health().await;
    let known = health["plugins"].as_object().unwrap();
    let missing: Vec<usize> =
        (0..=KNOWN).filter(|n| !known.contains_key(&format!("{}@1.0.0", name(*n)))).collect();
    assert_eq!(missing, [1], "the first by name was asked for again");
}
