//! Accounts that a caller links in a real browser at a real Keycloak, behind which services in three languages take its tokens
//! alone: linked from official clients, renewed once, removed everywhere, and left nowhere.

mod provider;
mod secrets;
mod world;

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::keycloak::REALM;
use asp_e2e::process::Process;
use asp_e2e::{stack, tool, wait};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::future::{try_join_all, try_join3};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use self::provider::{HUB, HUB_SECRET};
use self::secrets::Needles;
use self::world::World;
use super::{LANGUAGES, call_at};
use crate::clients::{LEGACY, MODERN};
use crate::trial::Shared;

/// Calls at the same time while the access token has expired.
const AT_ONCE: usize = 50;
/// Time after which a removal holds everywhere, and for how long that is tried.
const HOLDS_AFTER: Duration = Duration::from_secs(1);
const TRIED: Duration = Duration::from_secs(2);
const NO_BODY: Value = Value::Null;

/// Whether a service took the token of alice's account.
fn is_done(answer: &Value) -> bool {
    answer["result"]["structuredContent"]["preferred_username"] == "alice-at-hub"
}

pub(super) async fn accounts_are_linked_renewed_once_and_removed_everywhere(shared: &Shared) -> Result<()> {
    let world = Box::pin(World::start(shared)).await?;
    a_legacy_client_links_and_a_page_removes(&world).await.context("MCP 2025-11-25")?;
    a_modern_client_links_and_a_block_ends(&world).await.context("MCP 2026-07-28")?;
    an_agents_client_links(&world).await.context("A2A")?;
    expired_tokens_are_renewed_once(&world).await.context("refresh")?;
    a_removal_holds_everywhere(&world).await.context("removal")?;
    tokens_are_left_nowhere(&world).await.context("the search")?;
    let processes = world.cluster.gateways.iter().map(|gateway| &gateway.process);
    let logs: Vec<_> = processes.chain([&world.cluster.control]).map(Process::log).collect();
    let faults = stack::faults(&logs, &[]);
    ensure!(faults.is_empty(), "{faults:#?}");
    world.browser.stop().await
}

async fn a_legacy_client_links_and_a_page_removes(world: &World) -> Result<()> {
    let answer = world.link(world.mcp("legacy", "who_python")?, &[REALM, HUB]).await?;
    ensure!(answer["protocol"] == LEGACY && is_done(&answer), "{answer}");
    for address in world.addresses() {
        for language in LANGUAGES {
            let tool_name = format!("who_{language}");
            let answer = call_at(address, &world.token, ("crm", tool_name.as_str())).await?;
            ensure!(is_done(&answer), "{language}: {answer}");
        }
    }
    for service in &world.services {
        ensure!(service.shown(&world.token).await? == 401, "a service takes the client's own token");
    }
    ensure!(world.active().await? > 0, "no token is active");
    let browser = &world.browser;
    browser.open(&format!("{}/account", world.edge)).await?;
    browser.click("form[action=\"/account/sign-in\"] button").await?;
    // The browser is signed in at the issuer already.
    browser.arrives(&format!("{}/account", world.edge)).await?;
    browser.click("form[action=\"/account/remove\"] button").await?;
    world.asks_for_a_link().await?;
    world.all_are_inactive().await
}

async fn a_modern_client_links_and_a_block_ends(world: &World) -> Result<()> {
    let answer = world.link(world.mcp("auto", "who_node")?, &[HUB]).await?;
    ensure!(answer["protocol"] == MODERN && is_done(&answer), "{answer}");
    let alice = json!({ "type": "user", "org": "acme", "id": "alice" });
    world.admin("POST", "/api/blocks", &alice).await?;
    wait::until("the links of the blocked user are gone", wait::CONVERGE, || async {
        let links = world.admin("GET", "/api/links?user=alice", &NO_BODY).await.ok()?;
        links.as_array()?.is_empty().then_some(())
    })
    .await?;
    world.all_are_inactive().await?;
    world.admin("DELETE", "/api/blocks?type=user&org=acme&id=alice", &NO_BODY).await?;
    // Who is let in again has no account any more.
    world.asks_for_a_link().await?;
    // Links end once more when every gateway knows of the block: one that is made before would be among them.
    wait::until("the block ends no link any more", wait::CONVERGE, || async {
        world.postgres.ask("SELECT COUNT(*) FROM link_endings").await.ok().filter(|count| count == "0")
    })
    .await
    .map(drop)
}

async fn an_agents_client_links(world: &World) -> Result<()> {
    let task = world.link(world.a2a("who_java")?, &[HUB]).await?;
    ensure!(task["status"]["state"] == "TASK_STATE_COMPLETED", "{task}");
    ensure!(task.to_string().contains("alice-at-hub"), "{task}");
    Ok(())
}

async fn expired_tokens_are_renewed_once(world: &World) -> Result<()> {
    let changed = world.postgres.ask("UPDATE linked_accounts SET access_until_ms = 1").await?;
    ensure!(changed == "UPDATE 1", "{changed}");
    let before = world.refreshes();
    let gateways = world.cluster.addresses();
    let calls = (0..AT_ONCE)
        .map(|turn| call_at(gateways[turn % gateways.len()], &world.token, ("crm", "who_python")));
    for answer in try_join_all(calls).await? {
        ensure!(is_done(&answer), "{answer}");
    }
    // A line that the provider's proxy has written is read here a moment later.
    wait::until("the refresh is seen", wait::CONVERGE, || async {
        (world.refreshes() > before).then_some(())
    })
    .await?;
    let after = world.refreshes();
    ensure!(after == before + 1, "{} refreshes of one token", after - before);
    Ok(())
}

async fn a_removal_holds_everywhere(world: &World) -> Result<()> {
    ensure!(world.active().await? > 0, "no token is active");
    let removed = world.admin("DELETE", "/api/links?org=acme&user=alice", &NO_BODY).await?;
    ensure!(removed["removed"] == 1, "{removed}");
    let since = Instant::now();
    try_join_all(world.addresses().into_iter().map(|address| is_refused(world, address, since))).await?;
    world.all_are_inactive().await
}

/// Calls at this address until [`TRIED`]: none may succeed that begins [`HOLDS_AFTER`] the removal.
async fn is_refused(world: &World, address: SocketAddr, since: Instant) -> Result<()> {
    let mut refused = 0;
    // At least once after [`HOLDS_AFTER`], however long a call takes.
    while since.elapsed() < TRIED || refused == 0 {
        let began = since.elapsed();
        let answer = call_at(address, &world.token, ("crm", "who_node")).await?;
        ensure!(began < HOLDS_AFTER || !is_done(&answer), "{began:?} after the removal: {answer}");
        refused += usize::from(began >= HOLDS_AFTER);
    }
    Ok(())
}

async fn tokens_are_left_nowhere(world: &World) -> Result<()> {
    wait::until("spans have come", wait::CONVERGE, || async { world.spans.exists().then_some(()) }).await?;
    let issued = world.issued();
    ensure!(issued.len() >= 8, "the search knows only {} secrets", issued.len());
    let needles = Needles::of(issued.iter().map(String::as_str).chain([HUB_SECRET]))?;
    let found = search(world, &needles, &[]).await?;
    ensure!(found.is_empty(), "secrets of linked accounts are in {found:#?}");
    // The same search finds each form of a token in each place.
    let token = issued.first().context("a token")?;
    let planted = plant(world, token).await?;
    let found = search(world, &needles, &[&planted]).await?;
    let state = world.cluster.directory.path().display().to_string();
    let database = directory_of(&world.postgres.socket())?.display().to_string();
    let redis = directory_of(&world.redis.socket)?.display().to_string();
    let expected = [
        format!("{state}/planted-raw"),
        format!("{state}/planted-base64"),
        format!("{state}/planted-hex"),
        format!("{state}/planted-beginning"),
        database,
        redis,
        world.spans.display().to_string(),
        "log of planted".to_owned(),
        "environment of planted".to_owned(),
        "/api/audit/changes".to_owned(),
    ];
    for place in expected {
        ensure!(found.iter().any(|found| found.starts_with(&place)), "{place} is not among {found:#?}");
    }
    Ok(())
}

/// Every place of the platform that has a secret.
async fn search(world: &World, needles: &Needles, more: &[&Process]) -> Result<Vec<String>> {
    world.postgres.ask("CHECKPOINT").await?;
    for command in ["CONFIG SET rdbcompression no", "SAVE"] {
        let answer = world.redis.ask(command).await?;
        ensure!(answer == "+OK", "{command}: {answer}");
    }
    let mut found = needles.in_files(world.cluster.directory.path())?;
    found.extend(needles.in_files(directory_of(&world.postgres.socket())?)?);
    found.extend(needles.in_files(directory_of(&world.redis.socket)?)?);
    found.extend(needles.in_files(&world.spans)?);
    let cluster = &world.cluster;
    let own = [("control", &cluster.control), ("envoy", &cluster.envoy.process)];
    let gateways = cluster.gateways.iter().map(|gateway| ("a gateway", &gateway.process));
    let more = more.iter().map(|process| ("planted", *process));
    for (name, process) in own.into_iter().chain(gateways).chain(more) {
        found.extend(needles.in_process(name, process)?);
    }
    let answers = try_join3(
        world.admin("GET", "/api/audit/calls?limit=1000", &NO_BODY),
        world.admin("GET", "/api/audit/changes?limit=1000", &NO_BODY),
        world.admin("GET", "/api/links", &NO_BODY),
    );
    let (calls, changes, links) = answers.await?;
    for (path, answer) in
        [("/api/audit/calls", calls), ("/api/audit/changes", changes), ("/api/links", links)]
    {
        if needles.are_in(answer.to_string().as_bytes()) {
            found.push(path.to_owned());
        }
    }
    Ok(found)
}

fn directory_of(socket: &Path) -> Result<&Path> {
    socket.parent().context("a socket is in a directory")
}

/// Leaves a token in each place; returns a process that has it in its environment and its log.
async fn plant(world: &World, token: &str) -> Result<Process> {
    let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
    let base64 = BASE64_STANDARD.encode(format!("a{token}"));
    let forms =
        [("raw", token), ("hex", hex.as_str()), ("base64", base64.as_str()), ("beginning", &token[..16])];
    for (form, text) in forms {
        let path = world.cluster.directory.path().join(format!("planted-{form}"));
        std::fs::write(path, format!("before {text} after"))?;
    }
    std::fs::OpenOptions::new().append(true).open(&world.spans)?.write_all(token.as_bytes())?;
    world.postgres.ask(&format!("CREATE TABLE planted AS SELECT '{token}'::text AS secret")).await?;
    world.redis.ask(&format!("SET planted {token}")).await?;
    let audited = format!(
        "UPDATE audit SET detail = '{}' WHERE revision = (SELECT MAX(revision) FROM audit)",
        &token[..16]
    );
    world.postgres.ask(&audited).await?;
    let mut command = Command::new(tool::python()?);
    let program = "import os, time; print(os.environ['PLANTED'], flush=True); time.sleep(600)";
    command.args(["-c", program]).env("PLANTED", token);
    let process = Process::start("planted", command)?;
    process.logged(token).await?;
    Ok(process)
}
