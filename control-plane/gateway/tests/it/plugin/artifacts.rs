//! Artifacts: sent in pieces, linked in the result, read by their owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_proto::plugin::{ArtifactData, ArtifactEmitted, server_message::Payload};
use asp_store::blobs::{BlobError, BlobId, BlobMeta, Blobs, MemoryBlobs, Upload};
use asp_store::link::Link;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};

use super::{call, fixture, sweep};
use crate::issuers::{twins, two_issuers};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Legacy, Modern, token};

fn artifact_data(request_id: &str, uri: &str, offset: u64, data: &[u8]) -> Payload {
    Payload::ArtifactData(ArtifactData {
        request_id: request_id.into(),
        uri: uri.into(),
        offset,
        data: data.to_vec(),
    })
}

fn artifact(request_id: &str, uri: &str, size: u64) -> ArtifactEmitted {
    ArtifactEmitted {
        request_id: request_id.into(),
        r#type: "csv".into(),
        uri: uri.into(),
        content_type: "text/csv".into(),
        description: "The rows".into(),
        size,
        ..ArtifactEmitted::default()
    }
}

#[tokio::test]
async fn an_artifact_is_linked_in_the_result_and_read_by_its_owner_only() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let id = invoke.request_id.clone();
        let uri = "report://T1/rows.csv";
        worker.say(artifact_data(&id, uri, 0, b"a,b\n")).await;
        worker.say(artifact_data(&id, uri, 4, b"1,2\n")).await;
        worker.say(Payload::Artifact(artifact(&id, uri, 8))).await;
        worker.say(Payload::Artifact(artifact(&id, "https://example.com/x.csv", 0))).await;
        worker.complete(&invoke, &json!({"ok": true, "report": uri})).await;
    }));
    let fixture = Fixture::with(two_issuers(), 7, runtime.runtimes());
    let result = sweep(&fixture).await.json()["result"].clone();
    let links: Vec<&Value> = result["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|block| block["type"] == "resource_link")
        .collect();
    assert_eq!(links.len(), 2);
    assert_eq!(
        (&links[0]["name"], &links[0]["mimeType"], &links[0]["size"]),
        (&json!("rows.csv"), &json!("text/csv"), &json!(8))
    );
    assert_eq!(links[1]["uri"], "https://example.com/x.csv");
    let uri = links[0]["uri"].as_str().unwrap();
    assert!(uri.starts_with("asp-artifact://") && uri.ends_with("/rows.csv"), "{uri}");
    assert_eq!(result["structuredContent"]["report"], uri);

    let read = |user: &str, server: &str, uri: &str| {
        Modern::new(server, &token(user), "resources/read", json!({"uri": uri}))
    };
    let own = read("alice", "plugins", uri).send(&fixture).await.json();
    assert_eq!(
        own["result"]["contents"],
        json!([{"uri": uri, "mimeType": "text/csv", "text": "a,b\n1,2\n"}])
    );
    let legacy = Legacy::connect(&fixture, "plugins", "alice", "2025-06-18", json!({})).await;
    let own = legacy.request(3, "resources/read", json!({"uri": uri})).await.json();
    assert_eq!(own["result"]["contents"][0]["text"], "a,b\n1,2\n");

    // Hidden and unknown are the same (I-10).
    let nowhere = format!("asp-artifact://{}/rows.csv", "0".repeat(32));
    let unknown = read("alice", "plugins", &nowhere).send(&fixture).await.json()["error"].clone();
    assert_eq!((&unknown["code"], &unknown["data"]["uri"]), (&json!(-32602), &json!(nowhere)));
    let missing = read("alice", "plugins", "nothing://x").send(&fixture).await.json()["error"].clone();
    for (user, server, uri) in [
        ("bob", "plugins", uri),
        ("alice", "policy", uri),
        ("alice", "plugins", &uri.replace("rows", "other")),
    ] {
        let error = read(user, server, uri).send(&fixture).await.json()["error"].clone();
        let as_missing = missing.to_string().replace("nothing://x", uri);
        assert_eq!(error.to_string(), as_missing, "{user} {server}");
    }
    let twin = Modern::new("plugins", &twins("alice"), "resources/read", json!({"uri": uri}));
    let error = twin.send(&fixture).await.json()["error"].clone();
    assert_eq!(error.to_string(), missing.to_string().replace("nothing://x", uri), "another issuer's alice");
}

/// Blobs that are fetched by URLs, each another one.
#[derive(Default)]
struct Signed {
    blobs: MemoryBlobs,
    signed: AtomicUsize,
}

#[async_trait]
impl Blobs for Signed {
    async fn create(&self, id: BlobId, org: &str) -> Result<Box<dyn Upload>, BlobError> {
        self.blobs.create(id, org).await
    }

    async fn read(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, Bytes)>, BlobError> {
        self.blobs.read(org, id).await
    }

    async fn link(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, u64, Link)>, BlobError> {
        let number = self.signed.fetch_add(1, Ordering::AcqRel);
        let link = Link { url: format!("https://store.example/{number}"), expires_ms: 0 };
        // Large enough for a URL.
        Ok(self.blobs.read(org, id).await?.map(|(meta, _)| (meta, 1 << 20, link)))
    }

    async fn sweep(&self) -> Result<(), BlobError> {
        self.blobs.sweep().await
    }
}

#[tokio::test]
async fn a_signed_url_is_made_anew_for_a_read_under_the_same_key() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let uri = "report://T1/rows.csv";
        worker.say(artifact_data(&invoke.request_id, uri, 0, b"a,b\n")).await;
        worker.say(Payload::Artifact(artifact(&invoke.request_id, uri, 4))).await;
        worker.complete(&invoke, &json!({"ok": true, "report": uri})).await;
    }));
    let blobs = Arc::new(Signed::default());
    let fixture = Fixture::with_runtimes_and(runtime.runtimes(), |stores| stores.blobs = blobs);
    let made = sweep(&fixture).await.json();
    let uri = made["result"]["structuredContent"]["report"].clone();
    let mut read = Modern::new("plugins", &token("alice"), "resources/read", json!({"uri": uri}));
    read.body["params"]["_meta"]["asp/idempotencyKey"] = "k".into();
    for number in 0..2 {
        let read = read.send(&fixture).await.json();
        let text = &read["result"]["contents"][0]["text"];
        assert_eq!(*text, format!("https://store.example/{number}\r\n"), "{read}");
    }
}

#[tokio::test]
async fn a_server_whose_plugins_leave_artifacts_says_that_it_has_resources() {
    let runtime = Runtime::start(Script::of(|_, _| async {}));
    let discovered = Modern::new("plugins", &token("alice"), "server/discover", json!({}))
        .send(&fixture(&runtime))
        .await
        .json();
    assert!(discovered["result"]["capabilities"]["resources"].is_object(), "{discovered}");
}

#[tokio::test]
async fn an_artifact_that_is_not_what_it_says_ends_its_worker() {
    for fault in ["gap", "size", "digest", "link"] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            let id = invoke.request_id.clone();
            let uri = "report://T1/x";
            worker.say(artifact_data(&id, uri, 0, b"abc")).await;
            let mut end = artifact(&id, uri, 3);
            match fault {
                "gap" => worker.say(artifact_data(&id, uri, 4, b"d")).await,
                "size" => end.size = 2,
                "digest" => end.sha256 = "0".repeat(64),
                _ => end.uri = "javascript:alert(1)".into(),
            }
            worker.say(Payload::Artifact(end)).await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }));
        let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
        assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{fault}: {result}");
    }
}
