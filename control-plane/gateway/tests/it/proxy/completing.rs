//! `completion/complete` for what an upstream MCP server offers.

use asp_proto::snapshot::Completion;

use super::asking::{Server, connect, server};
use super::*;

/// An upstream that can do this, behind the prompt and the template.
async fn offered(can: Value) -> (Fixture, Arc<Server>) {
    let (address, server) = server(|talk| Box::pin(async move { talk.done(&json!("m")) })).await;
    *server.can.lock() = can;
    let mut snapshot = via_mcp(&["greeting", "item"], address);
    for (id, argument) in [("greeting", "name"), ("item", "id")] {
        let primitive = snapshot.primitives.iter_mut().find(|primitive| primitive.id == id).unwrap();
        let completion = Completion { argument: argument.into(), by_runtime: true, ..Completion::default() };
        primitive.completions = vec![completion];
    }
    (Fixture::of(snapshot), server)
}

fn asks(reference: Value, argument: &str) -> Value {
    let known = json!({"arguments": {"other": "o"}});
    json!({"ref": reference, "argument": {"name": argument, "value": "a"}, "context": known})
}

#[tokio::test]
async fn an_upstream_offers_values_for_its_own_prompts_and_templates() {
    let (fixture, server) = offered(json!({"completions": {}})).await;
    let client = connect(&fixture, json!({})).await;
    for (reference, argument, upstreams) in [
        (
            json!({"type": "ref/prompt", "name": "greeting"}),
            "name",
            json!({"type": "ref/prompt", "name": "greeting"}),
        ),
        (
            json!({"type": "ref/resource", "uri": "demo://items/{id}"}),
            "id",
            json!({"type": "ref/resource", "uri": "item"}),
        ),
    ] {
        let asked = asks(reference, argument);
        let legacy = client.request(2, "completion/complete", asked.clone()).await.json();
        let modern =
            Modern::new("demo", &token("alice"), "completion/complete", asked).send(&fixture).await.json();
        for answer in [legacy, modern] {
            let wanted = json!({"values": [format!("{argument}-a")], "total": 3, "hasMore": true});
            assert_eq!(answer["result"]["completion"], wanted, "{answer}");
        }
        let heard = server.heard.borrow();
        let sent = heard.iter().rfind(|message| message["method"] == "completion/complete").unwrap();
        assert_eq!(sent["params"]["ref"], upstreams, "{sent}");
        assert!(sent["params"].get("context").is_none(), "what is no argument is not handed on: {sent}");
    }
}

#[tokio::test]
async fn an_upstream_without_completions_is_asked_for_none() {
    let (fixture, server) = offered(json!({})).await;
    let client = connect(&fixture, json!({})).await;
    let asked = asks(json!({"type": "ref/prompt", "name": "greeting"}), "name");
    let answer = client.request(2, "completion/complete", asked).await.json();
    let none = json!({"values": [], "total": 0, "hasMore": false});
    assert_eq!(answer["result"]["completion"], none, "{answer}");
    assert!(server.heard.borrow().iter().all(|message| message["method"] != "completion/complete"));
}
