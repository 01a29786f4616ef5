//! Admins of several orgs who write without pause hold up no revocation: it is in force while they write and stays so, and
//! what each of them wrote last is published (I-5).

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use asp_e2e::writers::{CAPACITIES, MAX_LIMITS, Tally, Writers, limit_writes};
use serde_json::json;

use crate::message::{modern, revocation};
use crate::policy::{admin, becomes, caller};
use crate::trial::{Shared, trials};

/// Orgs, each with one admin.
const ORGS: [&str; 3] = ["busy-first", "busy-second", "busy-third"];
/// Accepted writes of each admin before the revocation, and after it is in force.
const WRITES: u64 = 5;

trials! { writes:
    many_admins_write_and_a_revocation_is_enforced,
}

async fn many_admins_write_and_a_revocation_is_enforced(_: &Shared) -> Result<()> {
    // An org's writes are not bounded, so that all of them are accepted.
    let environment = vec![("ASP_ADMIN_WRITES_PER_SECOND", "0".to_owned())];
    let stack = Stack::start(Options { environment, ..Options::repository()? }).await?;
    let root = stack.token(&["--admin", "--user", "root"]).await?;
    let [lost, kept] = [caller(&stack, "bystander").await?, caller(&stack, "bystander").await?];
    let list = |token: &str| modern(token, "tools/list", json!({}), &[]);
    let doors = [stack.edge(), stack.gateway()];
    for door in doors {
        becomes(door, list(&lost), 200, None).await?;
    }
    let mut cycles = Vec::new();
    for org in ORGS {
        let role = format!("org:{org}");
        let token = stack.token(&["--admin", "--user", "root", "--role", &role]).await?;
        cycles.push(limit_writes(org, &token));
    }
    let writers = Writers::start(stack.admin(), cycles);
    writers.progress(WRITES).await?;
    let revoked = http1::send(stack.admin(), &revocation(&root, &lost)).await?;
    ensure!(revoked.status == 201, "{}", revoked.text());
    for door in doors {
        becomes(door, list(&lost), 401, Some("token_revoked")).await?;
    }
    // They go on, and no later snapshot takes the revocation back, or is about another token.
    for _ in 0..WRITES {
        writers.progress(1).await?;
        for door in doors {
            let refused = http1::send(door, &list(&lost)).await?;
            ensure!(refused.reason().as_deref() == Some("token_revoked"), "{}", refused.text());
            ensure!(http1::send(door, &list(&kept)).await?.status == 200, "only that token");
        }
    }
    let tallies = writers.stop().await?;
    for (org, tally) in ORGS.into_iter().zip(&tallies) {
        holds_the_last(&stack, org, tally).await?;
    }
    wait::until("everything stored is published", wait::CONVERGE, || async {
        let status = admin(&stack, "GET", "/api/snapshot", "").await.ok()?.json().ok()?;
        (status["coversRevision"] == status["storeRevision"] && status["faultsCount"] == 0).then_some(())
    })
    .await?;
    stack.stop(&[]).await
}

/// Every write of the org was accepted, and its limits are those of the last one.
async fn holds_the_last(stack: &Stack, org: &str, tally: &Tally) -> Result<()> {
    ensure!((tally.refused, tally.failed) == (0, 0), "{org}: {tally:?}");
    let last = CAPACITIES[tally.last.context("an accepted write")?];
    let limits = admin(stack, "GET", &format!("/api/ratelimits/orgs/{org}"), "").await?.json()?;
    let limits = limits.as_array().context("a list")?;
    ensure!(limits.len() == MAX_LIMITS, "{org} holds {} limits", limits.len());
    let is_of_last = |limit: &serde_json::Value| limit["policy"]["capacity"] == last;
    ensure!(limits.iter().all(is_of_last), "{org}: {tally:?}");
    Ok(())
}
