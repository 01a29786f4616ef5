//! Blocks and revocations to the end: new requests are refused everywhere, running calls end, and each says since when and why.

use anyhow::{Context, Result, ensure};
use asp_e2e::figures::gauge;
use asp_e2e::http1;
use asp_e2e::revoking::{Sample, Site, TRACES, Work};
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::wait;
use serde_json::{Value, json};

use crate::message::{modern, rest};
use crate::policy::{admin, becomes, caller};
use crate::trial::{Shared, trials};

/// Samples of each setting. Their times are held by `make chaos`.
const SAMPLES: usize = 50;
const AT_ONCE: usize = 5;

trials! { blocks:
    a_blocked_user_is_refused_over_every_protocol_and_let_in_again,
    fifty_revocations_end_what_runs_and_so_do_fifty_without_redis,
}

async fn a_blocked_user_is_refused_over_every_protocol_and_let_in_again(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = caller(stack, "blocking").await?;
    let list = |token: &str| modern(token, "tools/list", json!({}), &[]);
    let call = |token: &str| rest("POST", "/demo/rest/tools/clock", token, &json!({}));
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list(&token), 200, None).await?;
    }
    let block = json!({"type": "user", "org": "blocking", "id": "carol", "reason": "left the company"});
    admin(stack, "POST", "/api/blocks", &block.to_string()).await?;
    let later = caller(stack, "blocking").await?;
    for address in [stack.edge(), stack.gateway()] {
        for token in [&token, &later] {
            becomes(address, list(token), 403, Some("blocked")).await?;
        }
        let over_mcp = http1::send(address, &list(&later)).await?;
        ensure!(over_mcp.header("www-authenticate").is_none(), "no login would help");
        let over_rest = http1::send(address, &call(&later)).await?;
        ensure!(over_rest.status == 403, "{}", over_rest.text());
        let data = over_mcp.json()?;
        for found in [data.pointer("/error/data").unwrap_or(&Value::Null), &over_rest.json()?] {
            ensure!(found["reason"] == "blocked" && found["revokedReason"] == "left the company", "{found}");
            ensure!(found["revokedSince"].is_string(), "{found}");
        }
        let forged = http1::send(address, &list(&later[..later.len() - 20])).await?;
        ensure!(!forged.text().contains("left the company"), "{}", forged.text());
    }
    admin(stack, "DELETE", "/api/blocks?type=user&org=blocking&id=carol", "").await?;
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list(&token), 200, None).await?;
    }
    Ok(())
}

/// Invariant I-6: Redis carries none of it.
async fn fifty_revocations_end_what_runs_and_so_do_fifty_without_redis(_: &Shared) -> Result<()> {
    let postgres = Postgres::start().await?;
    let mut redis = Redis::start().await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
    let site = Site::start(environment, 2).await?;
    let samples = site.samples(0, SAMPLES, AT_ONCE).await?;
    samples.iter().try_for_each(Sample::judge)?;
    ensure!(samples.iter().filter(|one| one.work == Work::Plugin).count() >= SAMPLES / 5, "calls in workers");
    redis.process.stop().await?;
    let samples = site.samples(SAMPLES, SAMPLES, AT_ONCE).await?;
    ensure!(samples.len() == SAMPLES, "{} samples", samples.len());
    samples.iter().try_for_each(Sample::judge)?;
    for gateway in site.cluster.addresses() {
        for stage in ["stage=\"enforced\"", "stage=\"call\""] {
            let measured = gauge(gateway, "asp_revocation_seconds_count", stage).await?;
            ensure!(measured >= 1.0, "{gateway}: {stage}");
        }
    }
    audited(&postgres).await
}

/// Waits until the audit has one start and one finish of every call, and each sampled call among those that were cancelled. A
/// probe that runs at the moment of its caller's revocation is cancelled too, so that others are not counted.
async fn audited(postgres: &Postgres) -> Result<()> {
    const UNEVEN: &str = "SELECT COUNT(*) FROM (SELECT substring(event from '\"call\":\"([^\"]*)\"') FROM all_call_events \
         GROUP BY 1 HAVING COUNT(*) FILTER (WHERE event LIKE '%\"event\":\"call.start\"%') <> 1 \
         OR COUNT(*) FILTER (WHERE event LIKE '%\"event\":\"call.finish\"%') <> 1) AS uneven";
    let cancelled = format!(
        "SELECT COUNT(*) FROM all_call_events WHERE event LIKE '%\"event\":\"call.finish\"%' \
         AND event LIKE '%\"outcome\":\"cancelled\"%' AND event LIKE '%\"trace\":\"{TRACES}%'"
    );
    let figures = format!(
        "SELECT ({UNEVEN}) || ' calls without one start and one finish, ' || ({cancelled}) || ' cancelled'"
    );
    let expected = format!("0 calls without one start and one finish, {} cancelled", 2 * SAMPLES);
    let complete = wait::until("the audit has the end of every call", wait::CONVERGE, || async {
        let found = postgres.ask(&figures).await.ok()?;
        (found.trim() == expected).then_some(())
    });
    if let Err(late) = complete.await {
        return Err(late).context(postgres.ask(&figures).await?);
    }
    Ok(())
}
