//! Tests of a gateway that reads one call slowly and so blocks its worker's stream: the worker's other calls are not
//! blamed for that.

use std::time::Duration;

use asp_proto::supervisor::tunnel_event::Type;
use serde_json::json;

use super::harness::{crash, output, start, wanted};
use super::shared::Shared;

#[tokio::test]
async fn a_call_that_answers_its_cancel_while_nobody_listens_to_its_worker_gets_its_own_end() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}}))]).await;
    let mut shared = Shared::open(&stack).await;
    let flood = json!({"mode": "flood", "count": 10_000});
    let slowly = shared.begin("+1", "echo", "slowly", &flood).await;
    // More than the window: from here on the worker's stream is read for a moment in each second.
    for _ in 0..500 {
        shared.of(&slowly).await;
    }
    let reading = shared.read_each(Duration::from_secs(1), &slowly);
    let neighbour = async {
        let mut tunnel = stack.tunnel_for(wanted("echo", "neighbour")).await;
        let slow = json!({"mode": "slow", "ms": 60_000});
        tunnel.invoke_until("neighbour", &slow, Some(Duration::from_millis(300))).await;
        tunnel.rest().await
    };
    let said = tokio::select! {
        said = neighbour => said,
        () = reading => Vec::new(),
    };
    assert_eq!(crash(&said), None, "its worker is not killed for it");
    assert!(said.iter().any(|said| said.failed() == Some("CANCELLED")), "{said:?}");
    // The slow call was given up for it, and its gateway is notified.
    shared.until_event(&slowly, Type::RuntimeOverload).await;
    shared.until_event(&slowly, Type::TunnelClosed).await;
    assert_eq!(stack.figure("echo@1.0.0", "crashes").await, 0);
    assert!(output(&stack.call("echo", "after", &json!({})).await).is_some());
}
