//! Gateways and control plane that cannot hear each other: no request is lost, neither meanwhile nor when an older
//! database comes back (I-3, I-5).

use std::time::Duration;

use anyhow::{Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{http1, partition, wait};
use rustix::process::Signal;
use serde_json::json;

use crate::message::modern;
use crate::trial::{Shared, trials};

/// Longer than both sides' keepalives, which take 15 s at most.
const LENGTH: Duration = Duration::from_secs(20);
const HEALTHY: &str = "cluster.gateway.membership_healthy";
const TOTAL: &str = "cluster.gateway.membership_total";

trials! { partition:
    gateways_cut_off_from_control_lose_no_request_and_catch_up,
    an_older_database_is_seen_and_stops_nothing,
}

async fn gateways_cut_off_from_control_lose_no_request_and_catch_up(_: &Shared) -> Result<()> {
    let mut cluster = Cluster::start_over_cable(2).await?;
    let edge = cluster.envoy.address;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    let serves = || async { http1::send(edge, &list).await.ok().filter(|answer| answer.status == 200) };
    wait::until("the platform serves", wait::START, serves).await?;
    let figures = partition::hold(&cluster, &list, LENGTH).await?;
    ensure!(
        figures.failures.is_empty(),
        "{} of {}: {:?}",
        figures.failures.len(),
        figures.requests,
        figures.failures
    );

    cluster.gateways[0].process.signal(Signal::TERM)?;
    let one = || async { cluster.envoy.stat(HEALTHY).await.ok().filter(|healthy| *healthy == 1) };
    let ended = tokio::time::Instant::now();
    wait::until("a gateway that ends gets no requests", wait::CONVERGE, one).await?;
    for _ in 0..50 {
        let answer = http1::send(edge, &list).await?;
        ensure!(answer.status == 200, "{:?} after the end: {}", ended.elapsed(), answer.text());
    }
    cluster.control.logged("gateway shuts down and was withdrawn").await?;
    cluster.gateways[0].process.wait(wait::START).await?;
    let forgotten = || async { cluster.envoy.stat(TOTAL).await.ok().filter(|total| *total == 1) };
    wait::until("Envoy forgets it", wait::START, forgotten).await?;
    Ok(())
}

/// The database of yesterday: the edge and the gateways have a later revision in force and keep it.
#[allow(clippy::too_many_lines, reason = "one story whose parts mean nothing alone")]
async fn an_older_database_is_seen_and_stops_nothing(_: &Shared) -> Result<()> {
    let mut cluster = Cluster::start(1).await?;
    let edge = cluster.envoy.address;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    let serves = || async { http1::send(edge, &list).await.ok().filter(|answer| answer.status == 200) };
    wait::until("the platform serves", wait::START, serves).await?;
    let state = cluster.directory.path().join("control");
    cluster.control.stop().await?;
    for file in ["asp.db", "asp.db-wal"] {
        let kept = state.join(format!("{file}.kept"));
        if state.join(file).exists() {
            std::fs::copy(state.join(file), kept)?;
        }
    }
    cluster.restart_control().await?;
    let admin = std::net::SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let bearer = format!("Bearer {}", cluster.token(&["--admin", "--user", "root"]).await?);
    // Before the revocation, which is for the tokens of its second and those before.
    let bob =
        modern(&cluster.token(&["--org", "acme", "--user", "bob"]).await?, "tools/list", json!({}), &[]);
    let revoked = json!({"type": "user", "org": "acme", "id": "bob", "reason": "left"}).to_string();
    let answer = http1::post(admin, "/api/revocations", &[("authorization", &bearer)], &revoked).await?;
    ensure!((200..300).contains(&answer.status), "{}", answer.text());
    let refused = || async { http1::send(edge, &bob).await.ok().filter(|answer| answer.status == 401) };
    wait::until("the revocation is enforced", wait::START, refused).await?;
    synchronous(&cluster).await?;

    cluster.control.stop().await?;
    for file in ["asp.db", "asp.db-wal", "asp.db-shm"] {
        let kept = state.join(format!("{file}.kept"));
        let _ = std::fs::remove_file(state.join(file));
        if kept.exists() {
            std::fs::rename(kept, state.join(file))?;
        }
    }
    cluster.restart_control().await?;
    // Each comes back in its own time, the gateway's address a moment after its subscription.
    let seen = || async {
        let snapshot = cluster.admin("/api/snapshot").await.ok()?;
        let served = snapshot["endpoints"]["gateway"].as_array().is_some_and(|served| served.len() == 1);
        let subscribers = snapshot["subscribers"].as_array()?.clone();
        // What else edges have did not change meanwhile.
        let told = ["revocations", "gateway"].iter().all(|kind| {
            subscribers.iter().any(|subscriber| {
                let reason = subscriber["lastNack"]["reason"].as_str().unwrap_or_default();
                let behind = subscriber["behind"].as_u64().unwrap_or_default();
                subscriber["kind"] == *kind
                    && subscriber["ahead"] == true
                    && behind > 0
                    && reason.contains("is older than revision")
            })
        });
        (told && served).then_some(())
    };
    let what = "the subscribers show it, and the gateway serves on its last snapshot";
    if let Err(error) = wait::until(what, wait::START, seen).await {
        let shown = cluster.admin("/api/snapshot").await?;
        return Err(error).with_details(|| format!("{shown}\n{}", cluster.control.tail()));
    }
    cluster.control.logged("an older database was restored").await?;
    for (request, status) in [(&list, 200), (&bob, 401)] {
        let answer = http1::send(edge, request).await?;
        ensure!(answer.status == status, "{}: {}", answer.status, answer.text());
    }
    Ok(())
}

/// Waits until edge and gateway are back and have what is published.
async fn synchronous(cluster: &Cluster) -> Result<()> {
    let same = || async {
        let snapshot = cluster.admin("/api/snapshot").await.ok()?;
        let subscribers = snapshot["subscribers"].as_array()?;
        let has = |kind: &str| {
            let mut of_kind = subscribers.iter().filter(|subscriber| subscriber["kind"] == kind).peekable();
            of_kind.peek().is_some() && of_kind.all(|subscriber| subscriber["behind"] == 0)
        };
        (has("edge") && has("revocations") && has("gateway")).then_some(())
    };
    wait::until("edge and gateway have it", wait::START, same).await
}
