//! Results that are taken more slowly than they come: a slow store of artifacts, and a runtime that gave a call up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use asp_proto::plugin::{ArtifactData, ArtifactEmitted, client_message, server_message::Payload};
use asp_proto::supervisor::tunnel_event;
use asp_store::blobs::{BlobError, BlobId, BlobMeta, Blobs, MemoryBlobs, Upload};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{call, fixture, modern, progress};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Legacy};

/// A hang guard, far below the deadlines of calls.
const SOON: Duration = Duration::from_secs(20);

/// Blobs whose every write takes `pause`.
struct Slow {
    blobs: MemoryBlobs,
    pause: Duration,
}

struct SlowUpload {
    upload: Box<dyn Upload>,
    pause: Duration,
}

#[async_trait]
impl Blobs for Slow {
    async fn create(&self, id: BlobId, org: &str) -> Result<Box<dyn Upload>, BlobError> {
        let upload = self.blobs.create(id, org).await?;
        Ok(Box::new(SlowUpload { upload, pause: self.pause }))
    }

    async fn read(&self, org: &str, id: &BlobId) -> Result<Option<(BlobMeta, Bytes)>, BlobError> {
        self.blobs.read(org, id).await
    }

    async fn sweep(&self) -> Result<(), BlobError> {
        self.blobs.sweep().await
    }
}

#[async_trait]
impl Upload for SlowUpload {
    async fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        tokio::time::sleep(self.pause).await;
        self.upload.write(piece).await
    }

    async fn finish(self: Box<Self>, meta: BlobMeta) -> Result<(), BlobError> {
        self.upload.finish(meta).await
    }
}

fn slow(runtime: &Runtime, pause: Duration) -> Fixture {
    let blobs = Slow { blobs: MemoryBlobs::default(), pause };
    Fixture::with_runtimes_and(runtime.runtimes(), |stores| stores.blobs = Arc::new(blobs))
}

fn piece(request_id: &str, number: u64) -> Payload {
    Payload::ArtifactData(ArtifactData {
        request_id: request_id.into(),
        uri: "report://T1/large".into(),
        offset: number << 16,
        data: vec![7; 1 << 16],
    })
}

/// A worker that sends an artifact of so many pieces of 64 KiB, and then completes.
fn sends(pieces: u64) -> Script {
    Script::of(move |_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        for number in 0..pieces {
            worker.say(piece(&invoke.request_id, number)).await;
        }
        let end = ArtifactEmitted {
            request_id: invoke.request_id.clone(),
            uri: "report://T1/large".into(),
            size: pieces << 16,
            ..ArtifactEmitted::default()
        };
        worker.say(Payload::Artifact(end)).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    })
}

/// The result of `sweep` over such a store.
async fn result(pieces: u64, pause: Duration) -> Value {
    let runtime = Runtime::start(sends(pieces));
    let answer = call(&slow(&runtime, pause), "sweep", json!({})).await;
    // A stream begins when an answer takes long.
    let message = match answer.headers["content-type"] == "text/event-stream" {
        true => answer.events().pop().unwrap(),
        false => answer.json(),
    };
    message["result"].clone()
}

#[tokio::test]
async fn pieces_that_come_while_the_store_writes_are_one_write() {
    let began = Instant::now();
    // What the window lets through, since the script knows of none.
    let result = result(80, Duration::from_millis(400)).await;
    assert_eq!(result["content"].as_array().unwrap().last().unwrap()["size"], 80 << 16, "{result}");
    // One by one they take 32 s.
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_store_that_does_not_answer_loses_the_artifact_and_nothing_else() {
    let began = Instant::now();
    let result = result(40, Duration::from_secs(3600)).await;
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert!(result.to_string().contains("was not stored: the store is not available"), "{result}");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_cancel_reaches_the_worker_while_the_store_is_busy() {
    let (sender, told) = oneshot::channel();
    let sender = Arc::new(Mutex::new(Some(sender)));
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let sender = sender.lock().take();
        async move {
            let invoke = worker.begin(&[]).await;
            for number in 0..4 {
                worker.say(piece(&invoke.request_id, number)).await;
            }
            worker.say(progress(&invoke.request_id, 50.0)).await;
            if let Some(client_message::Payload::Cancel(cancel)) = worker.next().await {
                let _ = sender.unwrap().send(cancel.reason);
            }
        }
    }));
    let fixture = slow(&runtime, Duration::from_secs(3600));
    let client = Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                         "params": {"name": "sweep", "arguments": {}, "_meta": {"progressToken": 1}}});
    let mut body = client.open(&request).await.into_body();
    // What comes after the pieces is read while the first of them is being written.
    tokio::time::timeout(SOON, body.frame()).await.expect("progress").unwrap().unwrap();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    assert_eq!(client.post(&cancel).await.status.as_u16(), 202);
    let reason = tokio::time::timeout(SOON, told).await.expect("the worker hears of it").unwrap();
    assert_eq!(reason, "user_cancel");
}

#[tokio::test]
async fn a_call_that_the_runtime_gave_up_ends_at_once() {
    for (name, outcome) in [("sweep", "upstream_unavailable"), ("order", "outcome_unknown")] {
        let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
            let _invoke = worker.begin(&[]).await;
            worker.event(tunnel_event::Type::RuntimeOverload, "not read in time", &[]).await;
            std::future::pending::<()>().await;
        }));
        let fixture = fixture(&runtime);
        let answer = tokio::time::timeout(SOON, modern(name, json!({})).send(&fixture)).await;
        let result = answer.expect("the call ends").json()["result"].clone();
        assert_eq!(result["_meta"]["asp/reason"], outcome, "{name}: {result}");
    }
}
