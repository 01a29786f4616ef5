//! Several gateways behind one Envoy: sessions stay where they began, a lost replica takes only its own
//! along, and a lost control plane stops nothing.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use asp_e2e::cluster::{Cluster, SERVED_BY};
use asp_e2e::http1;
use asp_e2e::wait;
use asp_e2e::wait::ErrorDetails;
use rustix::process::Signal;
use serde_json::json;

use crate::message::{legacy, modern, open_session};
use crate::trial::{Shared, trials};

const CLIENTS: usize = 200;
/// How many sessions Maglev moves that need not move depends on the ports: among 1200 random sets of four it was 0.07 %
/// in the mean and 2.4 % at most. Other policies move an eighth.
const ASTRAY: usize = CLIENTS / 20;

trials! { replicas:
    sessions_stay_and_only_a_lost_replicas_sessions_move,
    a_lost_control_plane_stops_no_traffic_and_catches_up,
}

/// A legacy client, with or without a cookie jar.
struct Client {
    session: String,
    cookie: Option<String>,
    home: String,
}

async fn sessions_stay_and_only_a_lost_replicas_sessions_move(_: &Shared) -> Result<()> {
    let mut cluster = Cluster::start(3).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let (answer, session) = open_session(cluster.envoy.address, &token).await?;
        let home = answer.header(SERVED_BY).context("the answer names its replica")?.to_string();
        let cookie = answer.header("set-cookie").and_then(|cookie| cookie.split(';').next());
        assert!(cookie.is_some_and(|cookie| cookie.starts_with("asp-affinity=")), "{cookie:?}");
        clients.push(Client { session, cookie: cookie.filter(|_| number % 2 == 0).map(String::from), home });
    }
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for client in &clients {
        *shares.entry(&client.home).or_default() += 1;
    }
    assert_eq!(shares.len(), 3, "{shares:?}");
    assert!(
        shares.values().all(|share| (CLIENTS * 15 / 100..=CLIENTS * 55 / 100).contains(share)),
        "15 to 55 % each: {shares:?}"
    );
    for _ in 0..2 {
        let moved = moved(&cluster, &token, &clients).await?;
        assert!(moved.is_empty(), "{} sessions left their replica", moved.len());
    }

    cluster.add_gateway().await?;
    let newcomer = cluster.gateways[3].address.to_string();
    let moves = moved(&cluster, &token, &clients).await?;
    assert!(
        !moves.is_empty() && moves.len() * 100 <= CLIENTS * 45,
        "{} of {CLIENTS} sessions moved",
        moves.len()
    );
    let astray = moves.iter().filter(|(_, to)| *to != newcomer).count();
    assert!(astray <= ASTRAY, "a session moves to the newcomer or stays: {moves:?}");

    let homes = homes(&cluster, &token, &clients).await?;
    for (client, home) in clients.iter_mut().zip(homes) {
        client.home = home;
    }
    let lost = cluster.gateways[0].address.to_string();
    cluster.gateways[0].process.signal(Signal::KILL)?;
    cluster.wait_hosts(3).await?;
    let moves = moved(&cluster, &token, &clients).await?;
    let orphans = clients.iter().filter(|client| client.home == lost).count();
    assert!(moves.iter().all(|(_, to)| *to != lost), "nobody is sent to a dead replica");
    assert_eq!(
        moves.iter().filter(|(from, _)| *from == lost).count(),
        orphans,
        "all of its sessions are served"
    );
    let astray = moves.iter().filter(|(from, _)| *from != lost).count();
    assert!(astray <= ASTRAY, "only the lost replica's sessions move: {moves:?}");
    Ok(())
}

async fn a_lost_control_plane_stops_no_traffic_and_catches_up(_: &Shared) -> Result<()> {
    let mut cluster = Cluster::start(2).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    let edge = cluster.envoy.address;
    wait::until("the platform serves", wait::CONVERGE, || async {
        http1::send(edge, &list).await.ok().filter(|answer| answer.status == 200)
    })
    .await?;
    cluster.control.signal(Signal::KILL)?;
    cluster.control.wait(wait::CONVERGE).await?;
    for _ in 0..50 {
        let answer = http1::send(edge, &list).await?;
        assert_eq!(answer.status, 200, "traffic goes on: {}", answer.text());
    }
    let changes = "cluster.gateway.membership_change";
    let updates = "cluster.gateway.update_success";
    let changed = cluster.envoy.stat(changes).await?;
    let updated = cluster.envoy.stat(updates).await?;
    cluster.restart_control().await?;
    let admin = std::net::SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let bearer = format!("Bearer {}", cluster.token(&["--admin", "--user", "root"]).await?);
    let revoked = json!({"type": "user", "org": "acme", "id": "alice", "reason": "left"}).to_string();
    let answer = http1::post(admin, "/api/revocations", &[("authorization", &bearer)], &revoked).await?;
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    wait::until("the new control plane's change is enforced", wait::START, || async {
        http1::send(edge, &list).await.ok().filter(|answer| answer.status == 401)
    })
    .await
    .with_details(|| cluster.control.tail())?;
    let other = cluster.token(&["--org", "acme", "--user", "bob"]).await?;
    let answer = http1::send(edge, &modern(&other, "tools/list", json!({}), &[])).await?;
    assert_eq!(answer.status, 200, "others go on: {}", answer.text());
    let pushed = || async { cluster.envoy.stat(updates).await.ok().filter(|pushed| *pushed > updated) };
    wait::until("Envoy hears of its gateways again", wait::CONVERGE, pushed).await?;
    assert_eq!(
        cluster.envoy.stat(changes).await?,
        changed,
        "the gateways that come back one by one stay all the while"
    );
    Ok(())
}

/// Where every client's next request is served; all must be answered.
async fn homes(cluster: &Cluster, token: &str, clients: &[Client]) -> Result<Vec<String>> {
    let mut homes = Vec::new();
    for client in clients {
        let mut headers = vec![("mcp-session-id", client.session.as_str())];
        headers.extend(client.cookie.as_deref().map(|cookie| ("cookie", cookie)));
        let answer =
            http1::send(cluster.envoy.address, &legacy(token, "tools/list", json!({}), &headers)).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        homes.push(answer.header(SERVED_BY).context("the answer names its replica")?.to_string());
    }
    Ok(homes)
}

/// From where to where sessions moved.
async fn moved(cluster: &Cluster, token: &str, clients: &[Client]) -> Result<Vec<(String, String)>> {
    let homes = homes(cluster, token, clients).await?;
    let pairs = clients.iter().zip(homes).filter(|(client, home)| client.home != *home);
    Ok(pairs.map(|(client, home)| (client.home.clone(), home)).collect())
}
