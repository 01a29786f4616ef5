//! F19: a control plane serves a snapshot that the edge and the gateway reject, because they have a later one. They keep theirs,
//! the admin API names the rejection and its reason, and the next good snapshot is applied.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Request};
use asp_e2e::message::{modern, rest, revocation};
use asp_e2e::wait;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::enforcement::in_force;
use crate::sheet::Sheet;

/// Files of the control plane's database.
const FILES: [&str; 3] = ["asp.db", "asp.db-wal", "asp.db-shm"];
/// Subscribers that reject, as the admin API names them.
const KINDS: [&str; 2] = ["revocations", "gateway"];
/// Bound on the time from a subscription to its rejection in the admin API, in seconds.
const SHOWN_WITHIN: f64 = 2.0;
/// Bound on the time until a revocation is in force, in seconds from its request.
const IN_FORCE: f64 = 1.0;
const PAUSE: Duration = Duration::from_millis(25);

/// Requests of a user whose tokens are revoked by the later snapshot, and of another one.
struct Users {
    alice: Request,
    bob: Request,
}

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let mut cluster = Cluster::start(1).await?;
    let state = cluster.directory.path().join("control");
    let kept = tempfile::tempdir()?;
    let [older, later] = ["older", "later"].map(|name| kept.path().join(name));
    let list = async |user: &str| {
        let token = cluster.token(&["--org", "acme", "--user", user, "--ttl", "1h"]).await?;
        anyhow::Ok(modern(&token, "tools/list", json!({}), &[]))
    };
    let users = Users { alice: list("alice").await?, bob: list("bob").await? };
    everywhere(&cluster, &users.alice, 200).await?;
    cluster.control.stop().await?;
    copy(&state, &older)?;
    cluster.restart_control().await?;
    let root = cluster.token(&["--admin", "--user", "root", "--ttl", "1h"]).await?;
    let of_bob = json!({"type": "user", "org": "acme", "id": "bob", "reason": "left"});
    write(&cluster, &rest("POST", "/api/revocations", &root, &of_bob)).await?;
    everywhere(&cluster, &users.bob, 401).await?;
    synchronous(&cluster, &root).await?;
    cluster.control.stop().await?;
    copy(&state, &later)?;
    replace(&older, &state)?;
    cluster.restart_control().await?;
    rejected(&cluster, &users, &root, sheet).await?;
    cluster.control.stop().await?;
    replace(&later, &state)?;
    cluster.restart_control().await?;
    synchronous(&cluster, &root).await?;
    applied(&cluster, &root, sheet).await?;
    everywhere(&cluster, &users.bob, 401).await
}

/// Copies the database's files into a new directory.
fn copy(state: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for (from, to) in files(state, to) {
        if from.exists() {
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Puts the files of a copy in the place of the database's.
fn replace(from: &Path, state: &Path) -> Result<()> {
    for (from, to) in files(from, state) {
        if to.exists() {
            std::fs::remove_file(&to)?;
        }
        if from.exists() {
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}

fn files(from: &Path, to: &Path) -> [(PathBuf, PathBuf); 3] {
    FILES.map(|file| (from.join(file), to.join(file)))
}

/// Waits until the admin API has the rejections of all kinds; meanwhile the last good snapshot is in force.
async fn rejected(cluster: &Cluster, users: &Users, root: &str, sheet: &mut Sheet) -> Result<()> {
    let began = Instant::now();
    let mut times: [(Option<Instant>, Option<Instant>); 2] = [(None, None); 2];
    while times.iter().any(|(_, shown)| shown.is_none()) {
        let subscribers = subscribers(cluster, root).await?;
        for (kind, (seen, shown)) in KINDS.iter().zip(&mut times) {
            let of_kind = subscribers.iter().find(|one| one.get("kind") == Some(&json!(kind)));
            let Some(subscriber) = of_kind else { continue };
            seen.get_or_insert_with(Instant::now);
            let reason = subscriber.pointer("/lastNack/reason").and_then(Value::as_str).unwrap_or_default();
            if reason.contains("is older than revision") {
                shown.get_or_insert_with(Instant::now);
            }
        }
        for (request, status) in [(&users.alice, 200), (&users.bob, 401)] {
            for place in places(cluster)? {
                let answer = http1::send(place, request).await?;
                ensure!(answer.status == status, "{place}: {} {}", answer.status, answer.text());
            }
        }
        ensure!(began.elapsed() < wait::START, "no rejection of all kinds: {subscribers:?}");
        sleep(PAUSE).await;
    }
    for (kind, times) in KINDS.iter().zip(times) {
        let (Some(seen), Some(shown)) = times else { continue };
        let seconds = shown.saturating_duration_since(seen).as_secs_f64();
        sheet.at_most(&format!("seconds until the API shows the rejection, {kind}"), seconds, SHOWN_WITHIN);
    }
    Ok(())
}

/// Revokes another user's token, by a snapshot that nobody rejects.
async fn applied(cluster: &Cluster, root: &str, sheet: &mut Sheet) -> Result<()> {
    let token = cluster.token(&["--org", "acme", "--user", "carol"]).await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    everywhere(cluster, &list, 200).await?;
    let requested = Instant::now();
    write(cluster, &revocation(root, &token)).await?;
    let mut last = requested;
    for place in places(cluster)? {
        last = last.max(in_force(place, &list, 401).await?);
    }
    let seconds = last.saturating_duration_since(requested).as_secs_f64();
    sheet.at_most("seconds until the next good snapshot is in force", seconds, IN_FORCE);
    Ok(())
}

async fn write(cluster: &Cluster, request: &Request) -> Result<()> {
    let api = SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let answer = http1::send(api, request).await?;
    ensure!(answer.status < 300, "{}: {} {}", request.target, answer.status, answer.text());
    Ok(())
}

/// The edge and the gateway.
fn places(cluster: &Cluster) -> Result<[SocketAddr; 2]> {
    let gateway = cluster.gateways.first().context("a gateway")?;
    Ok([cluster.envoy.address, gateway.address])
}

async fn everywhere(cluster: &Cluster, probe: &Request, status: u16) -> Result<()> {
    for place in places(cluster)? {
        in_force(place, probe, status).await?;
    }
    Ok(())
}

async fn subscribers(cluster: &Cluster, root: &str) -> Result<Vec<Value>> {
    let api = SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let snapshot = http1::send(api, &rest("GET", "/api/snapshot", root, &Value::Null)).await?.json()?;
    let subscribers = snapshot.get("subscribers").and_then(Value::as_array);
    subscribers.cloned().with_context(|| snapshot.to_string())
}

/// Waits until edge and gateway have what is published.
async fn synchronous(cluster: &Cluster, root: &str) -> Result<()> {
    let has_all = || async {
        let subscribers = subscribers(cluster, root).await.ok()?;
        let has = |kind: &str| {
            let mut of_kind =
                subscribers.iter().filter(|one| one.get("kind") == Some(&json!(kind))).peekable();
            of_kind.peek().is_some() && of_kind.all(|one| one.get("behind") == Some(&json!(0)))
        };
        ["edge", "revocations", "gateway"].into_iter().all(has).then_some(())
    };
    wait::until("edge and gateway have what is published", wait::START, has_all).await
}
