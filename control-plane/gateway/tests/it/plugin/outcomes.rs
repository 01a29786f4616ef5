//! Cancels, lost workers and broken protocol.

use asp_proto::plugin::{
    CancelResponse, Failed, cancel_request::Mode, client_message, server_message::Payload,
};
use asp_proto::snapshot::RevokedBefore;
use asp_registry::assemble;
use http_body_util::BodyExt;
use serde_json::json;
use tonic::Status;

use super::{call, fixture, modern, progress, until};
use crate::runtime::{Runtime, Script, Worker, queued};
use crate::support::{Legacy, inputs};

#[tokio::test]
async fn a_cancel_before_readiness_cancels_the_allocation() {
    let script = Script::of(|_, mut worker: Worker| async move { while worker.next().await.is_some() {} });
    let runtime = Runtime::start(script.admitting(|n| queued(n, 1.0, 1.0)));
    let fixture = fixture(&runtime);
    let response = modern("order", json!({})).open(&fixture).await;
    // Closing the response is the cancel of this era.
    drop(response);
    until("the allocation is cancelled", || !runtime.told.cancelled.lock().is_empty()).await;
    assert_eq!(runtime.told.cancelled.lock()[0].tunnel_id, "t-0");
    assert_eq!(runtime.told.cancelled.lock()[0].mcp_request_id, "7");
}

#[tokio::test]
async fn a_cancel_after_readiness_reaches_the_worker_before_its_place_is_closed() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(progress(&invoke.request_id, 1.0)).await;
        let Some(client_message::Payload::Cancel(cancel)) = worker.next().await else { panic!("no cancel") };
        assert_eq!(
            (cancel.request_id.as_str(), cancel.reason.as_str()),
            (invoke.request_id.as_str(), "user_cancel")
        );
        let accepted = CancelResponse {
            request_id: invoke.request_id.clone(),
            accepted: true,
            ..CancelResponse::default()
        };
        worker.say(Payload::Cancel(accepted)).await;
        // Nothing but the end of the tunnel follows; the runtime gives the worker its grace.
        assert!(worker.next().await.is_none());
        let end = Failed { request_id: invoke.request_id, code: "CANCELLED".into(), ..Failed::default() };
        worker.say(Payload::Failed(end)).await;
    }));
    let fixture = fixture(&runtime);
    let client = Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({})).await;
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
                         "params": {"name": "sweep", "arguments": {}, "_meta": {"progressToken": 1}}});
    let mut body = client.open(&request).await.into_body();
    body.frame().await.unwrap().unwrap();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    assert_eq!(client.post(&cancel).await.status.as_u16(), 202);
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&rest).contains("result"), "no response follows a cancel");
    until("the place is closed", || !runtime.told.closed.lock().is_empty()).await;
}

#[tokio::test]
async fn a_worker_lost_before_delivery_is_replaced_once() {
    for (losses, outcome) in [(1, "ok"), (2, "upstream_unavailable")] {
        let runtime = Runtime::start(Script::of(move |n, mut worker: Worker| async move {
            if n < losses {
                return worker.crash(false).await;
            }
            let invoke = worker.begin(&[]).await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        }));
        let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
        match outcome {
            "ok" => assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}"),
            reason => assert_eq!(result["_meta"]["asp/reason"], reason),
        }
    }
}

#[tokio::test]
async fn a_worker_lost_after_delivery_runs_again_only_what_reads() {
    for (name, cut) in [("sweep", false), ("sweep", true), ("order", false), ("order", true)] {
        let runtime = Runtime::start(Script::of(move |n, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            if n == 0 {
                return if cut {
                    worker.cut(Status::unavailable("gone")).await
                } else {
                    worker.crash(true).await
                };
            }
            assert!(invoke.resume.is_none(), "this plugin saves nothing");
            worker.complete(&invoke, &json!({"ok": true})).await;
        }));
        let result = call(&fixture(&runtime), name, json!({})).await.json()["result"].clone();
        let executions = runtime.told.allocations.lock().len();
        if name == "sweep" {
            assert_eq!((&result["structuredContent"], executions), (&json!({"ok": true}), 2), "{result}");
        } else {
            assert_eq!(
                (&result["_meta"]["asp/reason"], executions),
                (&json!("outcome_unknown"), 1),
                "{result}"
            );
        }
    }
}

#[tokio::test]
async fn what_a_newer_runtime_says_in_words_of_its_own_is_left_out() {
    // Of ServerMessage, a field with the number 999 and two bytes.
    let unknown = || vec![0xba, 0x3e, 0x02, 0x08, 0x01];
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        for _ in 0..3 {
            worker.say_any("asp.plugin.v1.ServerMessage", unknown()).await;
        }
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    assert_eq!(runtime.told.allocations.lock().len(), 1);
}

#[tokio::test]
async fn a_worker_that_breaks_the_protocol_is_as_good_as_dead() {
    for fault in ["bytes", "type", "request", "empty", "end"] {
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            match fault {
                "bytes" => worker.say_any("asp.plugin.v1.ServerMessage", vec![0xff; 64]).await,
                "type" => worker.say_any("asp.plugin.v1.InvokeRequest", Vec::new()).await,
                "request" => worker.say(progress("another", 1.0)).await,
                "empty" => worker.say_any("asp.plugin.v1.ServerMessage", Vec::new()).await,
                _ => drop(invoke),
            }
            // The gateway gives up the tunnel by itself, whatever follows.
            if fault != "end" {
                while worker.next().await.is_some() {}
            }
        }));
        let result = call(&fixture(&runtime), "order", json!({})).await.json()["result"].clone();
        assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{fault}: {result}");
    }
}

#[tokio::test]
async fn a_call_near_its_deadline_may_end_with_what_it_has() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        let Some(client_message::Payload::Cancel(cancel)) = worker.next().await else { panic!("no cancel") };
        assert_eq!((cancel.mode(), cancel.reason.as_str()), (Mode::Soft, "the deadline is near"));
        worker.complete(&invoke, &json!({"ok": true})).await;
    }));
    let deadline = crate::support::now() * 1000 + 3000;
    let request = modern("order", json!({})).with("x-deadline-ms", &deadline.to_string());
    let result = super::last_result(&request.send(&fixture(&runtime)).await);
    assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
}

#[tokio::test]
async fn a_revocation_reaches_the_worker_as_a_cancel() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.say(progress(&invoke.request_id, 1.0)).await;
        let Some(client_message::Payload::Cancel(cancel)) = worker.next().await else { panic!("no cancel") };
        assert_eq!(cancel.request_id, invoke.request_id);
        let end = Failed { request_id: invoke.request_id, code: "CANCELLED".into(), ..Failed::default() };
        worker.say(Payload::Failed(end)).await;
    }));
    let fixture = fixture(&runtime);
    let mut body = modern("sweep", json!({})).open(&fixture).await.into_body();
    body.frame().await.unwrap().unwrap();
    let mut inputs = inputs();
    inputs.revision = 2;
    inputs.revoked_before = vec![RevokedBefore {
        org: "acme".into(),
        user: "alice".into(),
        not_after_iat: u64::MAX,
        ..Default::default()
    }];
    fixture.gateway.apply(assemble(inputs)).unwrap();
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("token_revoked"), "{rest:?}");
    until("the worker's place is given back", || !runtime.told.closed.lock().is_empty()).await;
}
