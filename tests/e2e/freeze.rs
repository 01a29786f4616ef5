//! No org can stop what is published for the others: not by a limit that nothing can express, not by size. After
//! each, a revocation and another org's change are enforced by the real Envoy and by the gateway (I-5).

use anyhow::{Context, Result};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use serde_json::{Value, json};

use crate::message::modern;
use crate::policy::{admin, becomes, caller, sha256};
use crate::trial::{Shared, trials};

/// Orgs that try to fill the snapshot; without a bound on the whole, 90 of them pass 96 MiB.
const CROWD: usize = 100;
/// Rate limits of one org, and bytes of each selector: the most that the admin API takes.
const LIMITS: usize = 1_000;
const SELECTOR: usize = 256;

trials! { freeze:
    a_limit_too_slow_for_the_edge_stops_no_revocation,
    orgs_that_fill_their_budgets_stop_no_revocation,
}

async fn a_limit_too_slow_for_the_edge_stops_no_revocation(_: &Shared) -> Result<()> {
    let stack = Stack::start(Options::repository()?).await?;
    let slow = json!([{"selector": {}, "policy": {"capacity": 1, "refill": "0.001/h"}}]);
    let answer = put_limits(&stack, "acme", &slow).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    the_others_go_on(&stack).await?;
    stack.stop(&[]).await
}

async fn orgs_that_fill_their_budgets_stop_no_revocation(_: &Shared) -> Result<()> {
    let stack = Stack::start(Options::repository()?).await?;
    let mut refused = None;
    for number in 0..CROWD {
        let answer = put_limits(&stack, &format!("crowd-{number}"), &full()).await?;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.context("there is a bound for all orgs together")?;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let problem = refused.json()?;
    assert_eq!(problem["code"], "limit_reached");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("all orgs share") && detail.contains("admin of the platform"), "{detail}");
    the_others_go_on(&stack).await?;
    stack.stop(&[]).await
}

/// A revocation by the platform and a change by the admin of another org are enforced; nothing is at fault.
async fn the_others_go_on(stack: &Stack) -> Result<()> {
    let list = |token: &str| modern(token, "tools/list", json!({}), &[]);
    let lost = caller(stack, "bystander").await?;
    becomes(stack.edge(), list(&lost), 200, None).await?;
    let revoked = json!({"type": "token_hash", "id": sha256(&lost)});
    admin(stack, "POST", "/api/revocations", &revoked.to_string()).await?;
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list(&lost), 401, Some("token_revoked")).await?;
    }
    let other = caller(stack, "other").await?;
    becomes(stack.edge(), list(&other), 200, None).await?;
    let off = json!({"server": "demo", "protocol": "mcp", "enabled": false});
    let answer = put(stack, "other", "/api/policy/orgs/other/exposure", &off).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list(&other), 404, Some("unknown_server")).await?;
    }
    wait::until("everything stored is published", wait::CONVERGE, || async {
        let status = admin(stack, "GET", "/api/snapshot", "").await.ok()?.json().ok()?;
        (status["coversRevision"] == status["storeRevision"] && status["faultsCount"] == 0).then_some(())
    })
    .await?;
    let ready = http1::get(stack.admin(), "/readyz", &[]).await?;
    assert_eq!((ready.status, ready.text().trim()), (200, "ready"));
    Ok(())
}

async fn put_limits(stack: &Stack, org: &str, limits: &Value) -> Result<Response> {
    put(stack, org, &format!("/api/ratelimits/orgs/{org}?force=true"), limits).await
}

/// Sends a change as an admin of the org.
async fn put(stack: &Stack, org: &str, path: &str, body: &Value) -> Result<Response> {
    let role = format!("org:{org}");
    let token = stack.token(&["--admin", "--user", "root", "--role", &role]).await?;
    let headers = vec![
        ("authorization".to_string(), format!("Bearer {token}").into_bytes()),
        ("content-type".to_string(), b"application/json".to_vec()),
    ];
    let body = body.to_string().into_bytes();
    http1::send(stack.admin(), &Request { method: "PUT".into(), target: path.into(), headers, body }).await
}

/// As many and as long limits as an org may have.
fn full() -> Value {
    let limit = |number: usize| {
        let text = format!("{number:0>SELECTOR$}");
        json!({
            "selector": {"server": text, "primitive": text, "user": text, "wcit": text},
            "policy": {"capacity": 1_000_000_000, "refill": "1000000/s"},
        })
    };
    (0..LIMITS).map(limit).collect()
}
