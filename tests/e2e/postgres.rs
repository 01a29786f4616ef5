//! A cluster whose state is in PostgreSQL: what one replica did is known to the others, and what any process wrote
//! outlives all of them.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::http1::{self, Response};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::stores::Postgres;
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{tool, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::message::{self, modern};
use crate::trial::{Shared, trials};

trials! { postgres:
    what_one_replica_did_is_known_to_the_others,
    policy_outlives_the_control_plane_its_machine_and_its_connections,
    what_files_hold_moves_to_a_server_by_commands,
    a_failover_that_lost_commits_is_noticed_and_nothing_of_them_stays,
    while_it_is_away_reads_go_on_and_their_audit_waits_on_disk,
    a_gateway_starts_while_it_is_away_and_remembers_once_it_is_back,
}

async fn start(replicas: usize) -> Result<(Postgres, Cluster)> {
    let postgres = Postgres::start().await?;
    let cluster = Cluster::start_in(vec![("ASP_DATABASE_URL", postgres.url())], replicas).await?;
    Ok((postgres, cluster))
}

/// The admin API's address.
fn control(cluster: &Cluster) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin))
}

async fn send(
    address: SocketAddr,
    (method, path): (&str, &str),
    token: &str,
    body: &Value,
) -> Result<Response> {
    http1::send(address, &message::rest(method, path, token, body)).await
}

async fn what_one_replica_did_is_known_to_the_others(_: &Shared) -> Result<()> {
    let (postgres, cluster) = start(2).await?;
    // F45 of `make chaos`, in short: as beside a backup.
    let _backup = postgres.open_snapshot().await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let [first, second] = [cluster.gateways[0].address, cluster.gateways[1].address];
    // The clock is read once, whichever replica is asked, and whichever of them is left.
    let path = "/demo/rest/tools/clock/calls/a-moment";
    let put = send(first, ("PUT", path), &token, &json!({})).await?;
    ensure!(put.status == 201 && put.json()?["status"] == "success", "{}", put.text());
    let ended = put.json()?;
    let elsewhere = || async {
        let answer = send(second, ("GET", path), &token, &Value::Null).await.ok()?;
        (answer.status == 200 && answer.json().ok()?["status"] == "success").then_some(())
    };
    // The first writes the end after it has answered.
    wait::until("the other replica knows the call", wait::CONVERGE, elsewhere).await?;
    let again = send(second, ("PUT", path), &token, &json!({})).await?;
    ensure!(again.status == 200, "{}", again.text());
    let again = again.json()?;
    ensure!(again["result"] == ended["result"] && again["status"] == "success", "{again}");
    let foreign = cluster.token(&["--org", "acme", "--user", "bob"]).await?;
    let unknown = send(second, ("GET", path), &foreign, &Value::Null).await?;
    ensure!(unknown.status == 404, "{}", unknown.text());
    let audited = || async {
        let events = cluster.admin("/api/audit/calls?org=acme").await.ok()?;
        events.to_string().contains("clock").then_some(())
    };
    // What a gateway has not written yet goes with it.
    wait::until("the audit has the call", wait::CONVERGE, audited).await?;
    cluster.gateways[0].process.signal(Signal::KILL)?;
    cluster.wait_hosts(1).await?;
    let edge = cluster.envoy.address;
    let survived = send(edge, ("GET", path), &token, &Value::Null).await?;
    ensure!(survived.json()?["result"] == ended["result"], "{}", survived.text());
    let audited = cluster.admin("/api/audit/calls?org=acme").await?;
    ensure!(audited.to_string().contains("clock"), "{audited}");
    let kept = postgres.ask("SELECT COUNT(*) FROM all_call_events").await?;
    ensure!(kept.parse::<u64>()? > 0, "{kept}");
    ensure!(postgres.snapshot_age().await? > 0, "the snapshot is not open any more");
    no_files(cluster.directory.path())
}

async fn policy_outlives_the_control_plane_its_machine_and_its_connections(_: &Shared) -> Result<()> {
    let postgres = Postgres::start().await?;
    let layout = Layout {
        environment: vec![("ASP_DATABASE_URL", postgres.url())],
        control_database: Some(postgres.socket()),
        ..Layout::of(1)?
    };
    let mut cluster = Cluster::start_as(layout).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let admin = cluster.token(&["--admin", "--user", "root"]).await?;
    let path = "/api/policy/orgs/acme/exposure";
    let off = json!({"server": "demo", "protocol": "mcp", "enabled": false});
    let written = send(control(&cluster), ("PUT", path), &admin, &off).await?;
    ensure!(written.status < 300, "{}", written.text());
    let edge = cluster.envoy.address;
    let list = modern(&token, "tools/list", json!({}), &[]);
    let refused = || async { http1::send(edge, &list).await.ok().filter(|answer| answer.status == 404) };
    wait::until("the server is off", wait::CONVERGE, refused).await?;
    let before = cluster.admin("/api/snapshot").await?;
    cluster.control.signal(Signal::KILL)?;
    cluster.control.wait(wait::CONVERGE).await?;
    cluster.restart_control().await?;
    let revision = |snapshot: &Value| snapshot["revision"].as_u64();
    let published = || async {
        let after = cluster.admin("/api/snapshot").await.ok()?;
        (revision(&after) >= revision(&before)).then_some(())
    };
    wait::until("what was stored is published again", wait::CONVERGE, published).await?;
    let found = cluster.admin(path).await?;
    ensure!(found.to_string().contains("\"enabled\":false"), "{found}");
    ensure!(postgres.ask("SELECT enabled FROM exposure WHERE org = 'acme'").await? == "0");
    let on = json!({"server": "demo", "protocol": "mcp", "enabled": true});
    let written = send(control(&cluster), ("PUT", path), &admin, &on).await?;
    ensure!(written.status < 300, "{}", written.text());
    let served = || async { http1::send(edge, &list).await.ok().filter(|answer| answer.status == 200) };
    wait::until("the server is on again", wait::START, served).await?;
    // The machine of the database is gone without a word, and another one is in its place.
    let cable = cluster.database_cable.as_ref().context("a cable to the database")?;
    cable.cut();
    cable.replace();
    let written = || async {
        let answer = send(control(&cluster), ("PUT", path), &admin, &off).await.ok()?;
        (answer.status < 300).then_some(())
    };
    wait::until("the control plane takes a write", wait::START, written).await?;
    wait::until("the server is off once more", wait::START, refused).await?;
    no_files(cluster.directory.path())
}

/// A replica that had not heard of the last commit takes over, and another write gets its number.
async fn a_failover_that_lost_commits_is_noticed_and_nothing_of_them_stays(_: &Shared) -> Result<()> {
    let (postgres, cluster) = start(1).await?;
    let admin = cluster.token(&["--admin", "--user", "root"]).await?;
    let [lost, made] =
        [cluster.token(&["--org", "acme", "--user", "a"]), cluster.token(&["--org", "acme", "--user", "b"])];
    let [lost, made] = [lost.await?, made.await?];
    let hash = crate::policy::sha256(&lost);
    let body = json!({"type": "token_hash", "id": hash, "reason": "lost with the primary"});
    let revoked = send(control(&cluster), ("POST", "/api/revocations"), &admin, &body).await?;
    ensure!(revoked.status == 201, "{}", revoked.text());
    let doors = [cluster.envoy.address, cluster.gateways[0].address];
    let list = |token: &str| modern(token, "tools/list", json!({}), &[]);
    for door in doors {
        crate::policy::becomes(door, list(&lost), 401, Some("token_revoked")).await?;
        ensure!(http1::send(door, &list(&made)).await?.status == 200);
    }
    let before = cluster.admin("/api/snapshot").await?["revision"].as_u64().context("a revision")?;
    let other = crate::policy::sha256(&made);
    let history = format!(
        "BEGIN; UPDATE revocations SET target = '{other}' WHERE target = '{hash}'; \
         UPDATE audit SET stamp = 'another' WHERE revision = (SELECT revision FROM control_revision); \
         UPDATE control_revision SET stamp = 'another'; COMMIT"
    );
    postgres.ask(&history).await?;
    let since = std::time::Instant::now();
    for door in doors {
        crate::policy::becomes(door, list(&made), 401, Some("token_revoked")).await?;
        crate::policy::becomes(door, list(&lost), 200, None).await?;
    }
    println!("another history is in force after {:?}", since.elapsed());
    let after = cluster.admin("/api/snapshot").await?["revision"].as_u64();
    ensure!(after > Some(before), "{after:?} after {before}");
    cluster.control.logged("has lost commits").await?;
    no_files(cluster.directory.path())
}

/// `asp db` with this environment.
async fn db(environment: &[(&str, &str)], arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(tool::asp()?);
    command.arg("db").args(arguments).envs(environment.iter().copied()).kill_on_drop(true);
    Ok(command.output().await?)
}

async fn what_files_hold_moves_to_a_server_by_commands(_: &Shared) -> Result<()> {
    let mut stack = Stack::start(Options::repository()?).await?;
    let token = stack.alice().await?;
    let path = "/demo/rest/tools/clock/calls/a-moment";
    let put = send(stack.edge(), ("PUT", path), &token, &json!({})).await?;
    ensure!(put.json()?["status"] == "success", "{}", put.text());
    stack.asp.stop().await?;
    let state = stack.state.path().display().to_string();
    let files = [("ASP_STATE_DIR", state.as_str())];
    let archive = stack.state.path().join("moved.jsonl");
    let file = archive.to_str().context("a path")?;
    let exported = db(&files, &["export", file, "--json"]).await?;
    ensure!(exported.status.success(), "{exported:?}");
    ensure!(std::fs::metadata(&archive)?.permissions().mode() & 0o777 == 0o600);
    let again = db(&files, &["export", file]).await?;
    ensure!(!again.status.success() && text(&again).contains("must not exist yet"), "{again:?}");
    // From a container without a shell.
    let streamed = db(&files, &["export", "-", "--json"]).await?;
    ensure!(streamed.stdout == std::fs::read(&archive)?, "the archive alone: {streamed:?}");
    let into_itself = db(&files, &["import", file]).await?;
    ensure!(!into_itself.status.success() && text(&into_itself).contains("is not empty"), "{into_itself:?}");

    let postgres = Postgres::start().await?;
    let url = postgres.url();
    let server = [("ASP_STATE_DIR", state.as_str()), ("ASP_DATABASE_URL", url.as_str())];
    let imported = db(&server, &["import", file, "--json"]).await?;
    ensure!(imported.status.success(), "{imported:?}");
    let [out, came]: [Value; 2] =
        [serde_json::from_slice(&exported.stdout)?, serde_json::from_slice(&imported.stdout)?];
    ensure!(out == came && out["tables"]["call_records"]["rows"] == 1, "{out}\n{came}");
    let status = db(&server, &["status", "--json"]).await?;
    let status: Value = serde_json::from_slice(&status.stdout)?;
    ensure!(status["rows"]["servers"] == out["tables"]["servers"]["rows"], "{status}");
    ensure!(db(&server, &["migrate"]).await?.status.success());
    let wrong =
        [("ASP_STATE_DIR", state.as_str()), ("ASP_DATABASE_URL", "postgres://asp:hunter2@127.0.0.1:1/x")];
    let unreachable = db(&wrong, &["status"]).await?;
    let said = text(&unreachable);
    ensure!(unreachable.status.code() == Some(1) && said.contains("ASP_DATABASE_URL"), "{said}");
    ensure!(!said.contains("hunter2"), "{said}");
    Ok(())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Calls that each gateway answers while the database is away.
const READS: usize = 20;

async fn echo(gateway: SocketAddr, token: &str, message: &str) -> Result<()> {
    let params = json!({"name": "echo", "arguments": {"message": message}});
    let answer = http1::send(gateway, &modern(token, "tools/call", params, &[("mcp-name", "echo")])).await?;
    ensure!(answer.status == 200 && answer.json()?["result"]["isError"] != true, "{}", answer.text());
    ensure!(answer.text().contains(message), "{}", answer.text());
    Ok(())
}

async fn while_it_is_away_reads_go_on_and_their_audit_waits_on_disk(_: &Shared) -> Result<()> {
    let (mut postgres, mut cluster) = start(2).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let gateways = [cluster.gateways[0].address, cluster.gateways[1].address];
    for gateway in gateways {
        echo(gateway, &token, "before").await?;
    }
    // A batch whose end nobody could tell would be written once more.
    let written = || async { audited(&postgres).await.ok().filter(|counts| counts == "2|2").map(drop) };
    wait::until("they are in the audit", wait::CONVERGE, written).await?;
    postgres.process.signal(Signal::QUIT)?;
    postgres.process.wait(wait::START).await?;
    for gateway in gateways {
        for number in 0..READS {
            echo(gateway, &token, &format!("while away {number}")).await?;
        }
    }
    let remembered = "/demo/rest/tools/clock/calls/remembered";
    for gateway in gateways {
        let refused = send(gateway, ("PUT", remembered), &token, &json!({})).await?;
        ensure!(refused.status == 503, "{} {}", refused.status, refused.text());
        let reason = refused.json()?["reason"].clone();
        ensure!(reason == "upstream_unavailable", "{}", refused.text());
    }
    for gateway in &cluster.gateways {
        gateway.process.logged("they wait in a file until it does").await?;
    }
    // What waits outlives the process whose calls it tells of.
    let mut gateway = cluster.gateways.pop().context("a second gateway")?;
    gateway.process.stop().await?;
    postgres.start_again().await?;
    cluster.add_gateway().await?;
    let all = (gateways.len() * (1 + READS)).to_string();
    let both = format!("{all}|{all}");
    let complete = || async { audited(&postgres).await.ok().filter(|counts| *counts == both).map(drop) };
    let waited = wait::until("every call is in the audit, once", wait::CONVERGE, complete).await;
    waited.with_details(|| format!("{all} calls; {:?}", cluster.gateways[0].process.tail()))?;
    let put = send(gateways[0], ("PUT", remembered), &token, &json!({})).await?;
    ensure!(put.status == 201 && put.json()?["status"] == "success", "{}", put.text());
    Ok(())
}

async fn a_gateway_starts_while_it_is_away_and_remembers_once_it_is_back(_: &Shared) -> Result<()> {
    let (mut postgres, mut cluster) = start(1).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    postgres.process.signal(Signal::QUIT)?;
    postgres.process.wait(wait::START).await?;
    cluster.add_gateway().await?;
    let late = cluster.gateways.last().context("a second gateway")?.address;
    echo(late, &token, "without a database").await?;
    let put = || async {
        send(late, ("PUT", "/demo/rest/tools/clock/calls/remembered"), &token, &json!({})).await.ok()
    };
    let is_unserved = |answer: &Response| answer.status == 503 && answer.header("x-asp-unserved").is_some();
    let unserved = || async { put().await.filter(is_unserved) };
    wait::until("it lets others remember", wait::CONVERGE, unserved).await?;
    postgres.start_again().await?;
    let remembered = || async { put().await.filter(|answer| answer.status < 300) };
    wait::until("it remembers", wait::CONVERGE, remembered).await?;
    let written = || async { audited(&postgres).await.ok().filter(|counts| counts == "1|1").map(drop) };
    wait::until("the audit has what was served before", wait::CONVERGE, written).await
}

/// How many starts and ends of calls of `echo` the audit has.
async fn audited(postgres: &Postgres) -> Result<String> {
    let count = |event: &str| format!("COUNT(*) FILTER (WHERE event LIKE '%\"event\":\"{event}\"%')");
    let counts = format!("{}, {}", count("call.start"), count("call.finish"));
    postgres.ask(&format!("SELECT {counts} FROM all_call_events WHERE event LIKE '%echo%'")).await
}

/// No process keeps a database of its own, but for audit events that wait.
fn no_files(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            no_files(&path)?;
        }
        let is_database = path.extension().is_some_and(|ending| ending == "db");
        ensure!(!is_database || path.ends_with("audit-spool.db"), "{} is there", path.display());
    }
    Ok(())
}
