//! `completion/complete`: what the spec lists, for those who see the primitive.

use asp_proto::snapshot::{Binding, Completion, GatewaySnapshot, Protocol, TargetKind};
use asp_registry::{Inputs, assemble};
use serde_json::{Value, json};

use crate::support::{Fixture, Legacy, Modern, inputs, token};

/// The demo server's prompt and its template with values to offer.
fn offering(inputs: Inputs) -> GatewaySnapshot {
    let mut snapshot = assemble(inputs);
    for (id, argument, values) in [
        ("greeting", "name", (0..150).map(|number| format!("name-{number}")).collect()),
        ("item", "id", vec!["7".to_owned(), "17".to_owned()]),
    ] {
        let primitive = snapshot.primitives.iter_mut().find(|primitive| primitive.id == id).unwrap();
        primitive.completions.push(Completion { argument: argument.into(), values, ..Completion::default() });
    }
    snapshot
}

fn asks(reference: Value, argument: &str, value: &str) -> Value {
    json!({"ref": reference, "argument": {"name": argument, "value": value}})
}

fn greeting() -> Value {
    json!({"type": "ref/prompt", "name": "greeting"})
}

#[tokio::test]
async fn what_was_typed_is_completed_in_every_revision() {
    let fixture = Fixture::of(offering(inputs()));
    let typed = asks(greeting(), "name", "NAME-14");
    let wanted = json!({
        "values": ["name-14", "name-140", "name-141", "name-142", "name-143", "name-144", "name-145", "name-146",
            "name-147", "name-148", "name-149"],
        "total": 11,
        "hasMore": false,
    });
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let client = Legacy::connect(&fixture, "demo", "alice", revision, json!({})).await;
        let answer = client.request(2, "completion/complete", typed.clone()).await.json();
        assert_eq!(answer["result"], json!({"completion": wanted}), "{revision}");
    }
    let answer =
        Modern::new("demo", &token("alice"), "completion/complete", typed).send(&fixture).await.json();
    assert_eq!(answer["result"]["completion"], wanted);
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(answer["result"].get("ttlMs"), None, "nobody keeps it");
}

#[tokio::test]
async fn a_hundred_values_are_given_and_all_are_counted() {
    let fixture = Fixture::of(offering(inputs()));
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    let complete = async |params: Value| client.request(2, "completion/complete", params).await.json();
    let all = complete(asks(greeting(), "name", "")).await["result"]["completion"].clone();
    assert_eq!(all["values"].as_array().unwrap().len(), 100);
    assert_eq!((&all["total"], &all["hasMore"]), (&json!(150), &json!(true)));
    let of_template = asks(json!({"type": "ref/resource", "uri": "demo://items/{id}"}), "id", "7");
    assert_eq!(complete(of_template).await["result"]["completion"]["values"], json!(["7", "17"]));
    let without = complete(asks(greeting(), "other", "")).await["result"]["completion"].clone();
    assert_eq!(without, json!({"values": [], "total": 0, "hasMore": false}));
}

#[tokio::test]
async fn the_capability_is_named_where_there_is_something_to_offer() {
    for (snapshot, offers) in [(offering(inputs()), true), (assemble(inputs()), false)] {
        let fixture = Fixture::of(snapshot);
        let discovered =
            Modern::new("demo", &token("alice"), "server/discover", json!({})).send(&fixture).await.json();
        assert_eq!(discovered["result"]["capabilities"].get("completions").is_some(), offers);
        let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
        let answer = client.request(2, "completion/complete", asks(greeting(), "name", "n")).await.json();
        assert_eq!(answer["error"]["code"] == json!(-32601), !offers, "{answer}");
    }
}

#[tokio::test]
async fn bad_references_are_refused_and_hidden_ones_look_unknown() {
    let mut inputs = inputs();
    inputs.bindings.push(Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "bob".into(),
        primitive: "greeting".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    });
    let fixture = Fixture::of(offering(inputs));
    let client = Legacy::connect(&fixture, "demo", "alice", "2025-11-25", json!({})).await;
    for params in [
        json!({}),
        json!({"ref": greeting()}),
        json!({"ref": greeting(), "argument": {"name": "name"}}),
        json!({"ref": greeting(), "argument": {"name": 1, "value": "a"}}),
        asks(json!({"type": "ref/prompt"}), "name", "n"),
        asks(json!({"type": "ref/tool", "name": "echo"}), "name", "n"),
        asks(json!({"type": "ref/prompt", "name": "item"}), "id", "7"),
        asks(json!({"type": "ref/resource", "uri": "demo://items/7"}), "id", "7"),
        asks(json!("greeting"), "name", "n"),
    ] {
        let answer = client.request(2, "completion/complete", params.clone()).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{params}");
    }
    let bob = Legacy::connect(&fixture, "demo", "bob", "2025-11-25", json!({})).await;
    let ask = async |name: &str| {
        let reference = json!({"type": "ref/prompt", "name": name});
        bob.request(2, "completion/complete", asks(reference, "name", "n")).await.json()["error"].clone()
    };
    let mut hidden = ask("greeting").await;
    let mut unknown = ask("nothing").await;
    for error in [&mut hidden, &mut unknown] {
        error["data"].as_object_mut().unwrap().remove("traceId");
    }
    assert_eq!(hidden, unknown);
}
