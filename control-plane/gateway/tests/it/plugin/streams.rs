//! The stream that a gateway's calls share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{ResultChunk, client_message};
use serde_json::json;
use tonic::Status;

use super::{call, fixture, sweep, until};
use crate::runtime::{Runtime, Script, Worker};

#[tokio::test]
async fn calls_share_a_stream_and_a_lost_one_takes_its_calls_with_it_and_is_replaced() {
    let runtime = Runtime::start(Script::of(|n, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        match n {
            // Until the stream is cut.
            1 => assert!(worker.next().await.is_none()),
            2 => worker.cut(Status::internal("broken")).await,
            _ => worker.complete(&invoke, &json!({"ok": true})).await,
        }
    }));
    let fixture = fixture(&runtime);
    assert_eq!(sweep(&fixture).await.json()["result"]["structuredContent"]["ok"], true);
    let (first, second) = tokio::join!(sweep(&fixture), sweep(&fixture));
    // Both were lost with the stream and may be repeated.
    for answer in [first, second] {
        assert_eq!(answer.json()["result"]["structuredContent"]["ok"], true, "{}", answer.text);
    }
    assert_eq!(runtime.told.allocations.lock().len(), 5);
    assert_eq!(*runtime.told.streams.lock(), 2);
}

#[tokio::test]
async fn a_call_that_is_not_read_holds_up_no_other_and_goes_on_when_it_is() {
    let acknowledged = Arc::new(AtomicBool::new(false));
    let heard = acknowledged.clone();
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
        let heard = heard.clone();
        async move {
            let invoke = worker.begin(&[]).await;
            // Three quarters of the tunnel's window.
            for _ in 0..384 {
                let request_id = invoke.request_id.clone();
                let chunk = ResultChunk { request_id, text: "x".into(), ..ResultChunk::default() };
                worker.say(Payload::Chunk(chunk)).await;
            }
            // The call's own deadline is the hang guard.
            let told = worker.told.clone();
            while *told.acknowledged.lock() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            heard.store(true, Ordering::Relaxed);
            worker.complete(&invoke, &json!({"ok": true})).await;
        }
    }));
    let result = sweep(&fixture(&runtime)).await;
    assert!(acknowledged.load(Ordering::Relaxed), "{}", result.text);
}

#[tokio::test]
async fn a_place_for_a_call_that_is_gone_is_closed_and_what_it_cost_is_noted() {
    let runtime = Runtime::start(
        Script::of(|_, mut worker: Worker| async move { while worker.next().await.is_some() {} })
            .taking(Duration::from_secs(1)),
    );
    let fixture = fixture(&runtime);
    tokio::select! {
        _ = sweep(&fixture) => panic!("the caller goes before the runtime has decided"),
        () = until("the runtime is asked", || *runtime.told.frames.lock() > 0) => {}
    }
    until("the place is closed", || !runtime.told.closed.lock().is_empty()).await;
    // It may have had its work.
    fixture.gateway.flush().await;
    let metrics = fixture.send(http::Method::GET, "/metrics", &[], "").await.text;
    assert!(metrics.contains(r#"asp_worker_cpu_seconds_total{language="python"} 0.25"#), "{metrics}");
}

#[tokio::test]
async fn a_frame_of_no_tunnel_changes_nothing() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let Some(client_message::Payload::Init(_)) = worker.next().await else { panic!("no init") };
        let Some(client_message::Payload::Invoke(invoke)) = worker.next().await else { panic!("no invoke") };
        let own = std::mem::replace(&mut worker.tunnel_id, "nobody's".into());
        worker.complete(&invoke, &json!({"ok": false})).await;
        worker.tunnel_id = own;
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let answer = call(&fixture(&runtime), "sweep", json!({})).await.json();
    assert_eq!(answer["result"]["structuredContent"]["ok"], true, "{answer}");
}
