//! Tests of a tenant whose calls crash a plugin's workers: only that tenant is quarantined, and others are affected by
//! the first crash at most.

use serde_json::json;

use super::harness::{Stack, Tunnel, crash, eventually, output, reason, start, start_with, wanted};

async fn begin(stack: &Stack, tenant: &str, id: &str, milliseconds: u64) -> Tunnel {
    let mut tunnel = stack.tunnel_for(wanted("echo", tenant)).await;
    tunnel.invoke(id, &json!({"mode": "slow", "ms": milliseconds})).await;
    tunnel.until_message().await;
    tunnel
}

/// Makes a call that crashes its worker; returns false if it is refused.
async fn crashes(stack: &Stack, id: &str) -> bool {
    let answer = stack.allocate(wanted("echo", "hostile")).await;
    let Some(handle) = answer.handle else {
        assert!(reason(&answer).starts_with("tenant_quarantined: "), "{answer:?}");
        return false;
    };
    let mut tunnel = stack.open(&handle.tunnel_id);
    tunnel.invoke(id, &json!({"mode": "crash"})).await;
    let said = tunnel.rest().await;
    // Its crash has been counted by now: the next call is refused before it has a tunnel.
    assert!(crash(&said).is_some(), "{said:?}");
    true
}

#[tokio::test]
async fn a_call_that_ignores_its_cancel_costs_the_tenants_beside_it_no_place_among_others() {
    let stack = start(&[("echo", json!({"pool": {"max": 1, "concurrency": 8}}))]).await;
    let mut good = begin(&stack, "good", "good-1", 60_000).await;
    let mut stubborn = stack.tunnel_for(wanted("echo", "stubborn")).await;
    stubborn.invoke("stubborn-1", &json!({"mode": "ignore"})).await;
    stubborn.until_message().await;
    stubborn.cancel("stubborn-1").await;
    assert_eq!(crash(&stubborn.rest().await), Some(("deadline".to_owned(), true)));
    assert!(crash(&good.rest().await).is_some());
    let _good = begin(&stack, "good", "good-2", 60_000).await;
    let _other = begin(&stack, "other", "other-1", 60_000).await;
    // The remains of the crashed worker are cleared in parallel to the calls.
    eventually("they share a worker: neither is suspected", || async { stack.homes() == 1 }).await;
    let _stubborn = begin(&stack, "stubborn", "stubborn-2", 60_000).await;
    assert_eq!(stack.homes(), 2, "it has one of its own");
}

#[tokio::test]
async fn a_tenant_that_crashes_workers_is_put_off_alone_and_takes_others_calls_with_it_once() {
    let stack = start(&[("echo", json!({"pool": {"max": 1, "concurrency": 8}}))]).await;
    let mut good = begin(&stack, "good", "good-1", 60_000).await;
    assert!(crashes(&stack, "hostile-0").await);
    assert!(crash(&good.rest().await).is_some(), "nothing was known of either of them");
    let mut good = begin(&stack, "good", "good-2", 2_000).await;
    let mut other = begin(&stack, "other", "other-1", 2_000).await;
    let mut crashed = 0;
    while crashes(&stack, &format!("hostile-{}", crashed + 1)).await {
        crashed += 1;
        assert!(crashed < 10, "it is never put off");
    }
    assert_eq!(crashed, 3);
    for call in [&mut good, &mut other] {
        assert!(output(&call.rest().await).is_some(), "they ran beside the crashes of another tenant");
    }
    for tenant in ["good", "other", "new"] {
        let mut tunnel = begin(&stack, tenant, tenant, 1).await;
        assert!(output(&tunnel.rest().await).is_some());
    }
    assert_eq!(stack.figure("echo@1.0.0", "quarantined_s").await, 0);
    assert_eq!(stack.figure("echo@1.0.0", "tenants_off").await, 1);
    assert_eq!(stack.health().await["plugins"]["echo@1.0.0"]["breaker"], "closed");
    stack.log_line("a tenant's calls crash a plugin's workers").await;
}

#[tokio::test]
async fn in_development_no_crash_sets_the_author_aside() {
    let stack = start_with(&[("echo", json!({}))], &["--development"]).await;
    for number in 0..6 {
        assert!(crashes(&stack, &format!("crash-{number}")).await, "refused after {number} crashes");
    }
    assert_eq!(stack.figure("echo@1.0.0", "tenants_off").await, 0);
}
