//! Calls whose client comes back at another gateway than the one that runs them, in each protocol: it is told the same, what it
//! says gets there, and the loss of a gateway takes nothing along that its client was told. The gateways are asked straight,
//! because Envoy keeps a client where it is; there are three of them, and two control planes.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Response};
use asp_e2e::resumption;
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::wait;
use futures::future::try_join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::message::{modern, rest};
use crate::moved_sessions::guard;
use crate::policy::sha256;
use crate::trial::{Shared, trials};

/// Of streams, at random points.
const CUTS: usize = 20;
/// Calls that are under way when their gateway is lost.
const LOST: u64 = 5;

trials! { any_replica:
    streams_that_are_cut_go_on_at_every_gateway,
    what_a_client_was_told_outlives_the_gateway_that_told_it,
    a_call_is_answered_and_cancelled_at_every_gateway,
    a_revoked_token_is_told_nothing_more_of_a_call_elsewhere,
}

struct Replicas {
    postgres: Postgres,
    redis: Redis,
    cluster: Cluster,
    token: String,
}

impl Replicas {
    async fn start() -> Result<Replicas> {
        let postgres = Postgres::start().await?;
        let redis = Redis::start().await?;
        let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
        let cluster = Cluster::start_with_two_controls(environment, 3).await?;
        let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
        Ok(Replicas { postgres, redis, cluster, token })
    }

    fn addresses(&self) -> [SocketAddr; 3] {
        [0, 1, 2].map(|number| self.cluster.gateways[number].address)
    }

    /// Number of keys of answers and cancels that no gateway has applied, as Redis prints it.
    async fn unapplied(&self) -> Result<String> {
        self.redis.ask("EVAL \"return #redis.call('KEYS', 'asp:inbox:*')\" 0").await
    }
}

async fn streams_that_are_cut_go_on_at_every_gateway(_: &Shared) -> Result<()> {
    let replicas = Replicas::start().await?;
    let seed = rand::random();
    println!("seed {seed}");
    let figures = resumption::cut(&replicas.addresses(), &replicas.token, CUTS, seed).await?;
    ensure!(figures.cuts == CUTS, "{figures:?}");
    ensure!((figures.lost, figures.repeated, figures.foreign) == (0, 0, 0), "{figures:?}, seed {seed}");
    Ok(())
}

/// Invariant I-13.
async fn what_a_client_was_told_outlives_the_gateway_that_told_it(_: &Shared) -> Result<()> {
    let replicas = Replicas::start().await?;
    let [first, others @ ..] = replicas.addresses();
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let begun = (0..LOST).map(|n| resumption::begin(first, &replicas.token, seed.wrapping_add(n)));
    let begun = try_join_all(begun).await?;
    replicas.cluster.gateways[0].process.signal(Signal::KILL)?;
    let survived =
        try_join_all(begun.into_iter().zip(others.into_iter().cycle()).map(|(loss, at)| loss.survive(at)))
            .await?;
    for survived in survived {
        survived.judge().with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

async fn a_call_is_answered_and_cancelled_at_every_gateway(_: &Shared) -> Result<()> {
    let replicas = Replicas::start().await?;
    guard(&replicas.cluster).await?;
    let [first, second, _] = replicas.addresses();
    retried(&replicas.token, first, second).await.context("2026-07-28")?;
    advanced(&replicas).await.context("REST")?;
    // Without what says where events are, a client is told where its call stands, and nothing is lost unsaid.
    let Replicas { mut redis, cluster, token, postgres: _postgres } = replicas;
    redis.process.stop().await?;
    let asked = echo(&token, first, None).await?;
    ensure!(asked["resultType"] == "input_required", "{asked}");
    let answer = retry(&token, second, &asked).await?;
    ensure!(answer.status == 503 && answer.text().contains("upstream_unavailable"), "{}", answer.text());
    let answer = retry(&token, first, &asked).await?;
    ensure!(answer.text().contains("the salary of May"), "{}", answer.text());
    drop(cluster);
    Ok(())
}

/// The client comes back under a fresh token, which is revoked alone: its gateway must know that.
async fn a_revoked_token_is_told_nothing_more_of_a_call_elsewhere(_: &Shared) -> Result<()> {
    let replicas = Replicas::start().await?;
    let [first, second, _] = replicas.addresses();
    let fresh = replicas.cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let admin = replicas.cluster.token(&["--admin", "--user", "root"]).await?;
    let begun = resumption::begin(first, &replicas.token, rand::random()).await?;
    let stream = http1::open(second, &begun.come_back(&fresh), "notifications/progress").await?;
    let revocation = json!({"type": "token_hash", "id": sha256(&fresh)});
    let api = SocketAddr::from(([127, 0, 0, 1], replicas.cluster.control_ports.admin));
    let written = http1::send(api, &rest("POST", "/api/revocations", &admin, &revocation)).await?;
    ensure!(written.status < 300, "{}", written.text());
    let told = stream.finish().await?.text();
    ensure!(told.contains("token_revoked") && !told.contains("\"counted\""), "{told}");
    Ok(())
}

/// A modern call of `echo`, or its retry with what it was asked.
async fn echo(token: &str, gateway: SocketAddr, asked: Option<&Value>) -> Result<Value> {
    let answer = echoed(token, gateway, asked).await?;
    let result = answer.json()?["result"].clone();
    ensure!(result.is_object(), "{}", answer.text());
    Ok(result)
}

async fn retry(token: &str, gateway: SocketAddr, asked: &Value) -> Result<Response> {
    echoed(token, gateway, Some(asked)).await
}

async fn echoed(token: &str, gateway: SocketAddr, asked: Option<&Value>) -> Result<Response> {
    let mut params = json!({"name": "echo", "arguments": {"message": "the salary of May"}});
    if let Some(asked) = asked {
        let questions = asked["inputRequests"].as_object().context("questions")?;
        let answer = json!({"action": "accept", "content": {"approve": true}});
        let answers = questions.keys().map(|id| (id.clone(), answer.clone()));
        params["inputResponses"] = Value::Object(answers.collect());
        params["requestState"] = asked["requestState"].clone();
    }
    let mut request = modern(token, "tools/call", params, &[("mcp-name", "echo")]);
    let body: Value = serde_json::from_slice(&request.body)?;
    let mut body = body;
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    request.body = body.to_string().into_bytes();
    http1::send(gateway, &request).await
}

async fn retried(token: &str, first: SocketAddr, second: SocketAddr) -> Result<()> {
    for (here, there) in [(first, second), (second, first)] {
        let asked = echo(token, here, None).await?;
        ensure!(asked["resultType"] == "input_required", "{asked}");
        let done = echo(token, there, Some(&asked)).await?;
        ensure!(done["content"][0]["text"].to_string().contains("the salary of May"), "{done}");
    }
    Ok(())
}

/// Invariant I-13.
async fn advanced(replicas: &Replicas) -> Result<()> {
    let [first, second, _] = replicas.addresses();
    let owner = &replicas.cluster.gateways[0].process;
    let path = |name: &str, part: &str| format!("/demo/rest/tools/echo/calls/{name}{part}");
    let ask = |gateway, method: &'static str, path: String, body: Value| async move {
        http1::send(gateway, &rest(method, &path, &replicas.token, &body)).await
    };
    for name in ["answered", "cancelled", "frozen"] {
        let put = ask(first, "PUT", path(name, ""), json!({"message": "the salary of May"})).await?;
        ensure!(put.status < 300, "{}", put.text());
        let waits = || async {
            let seen = ask(second, "GET", path(name, ""), Value::Null).await.ok()?.json().ok()?;
            (seen["status"] == "awaitingElicitationResult" && seen["serverData"].is_string()).then_some(seen)
        };
        let seen = wait::until("the other gateway shows what it asks", wait::CONVERGE, waits).await?;
        if name == "frozen" {
            owner.signal(Signal::STOP)?;
        }
        let said = match name {
            "cancelled" => ask(second, "POST", path(name, "/cancel"), Value::Null).await?,
            _ => {
                let result = json!({"action": "accept", "content": {"approve": true}});
                let body = json!({"result": result, "serverData": seen["serverData"]});
                ask(second, "POST", path(name, "/advance"), body).await?
            }
        };
        ensure!(said.status < 300, "{}", said.text());
        if name == "frozen" {
            let unapplied = replicas.unapplied().await?;
            owner.signal(Signal::CONT)?;
            ensure!(unapplied != ":0", "its gateway has not heard of it, and it is stored nowhere");
        }
        let wanted = if name == "cancelled" { "canceled" } else { "success" };
        for gateway in [first, second] {
            let ended = || async {
                let seen = ask(gateway, "GET", path(name, ""), Value::Null).await.ok()?.json().ok()?;
                (seen["status"] == wanted).then_some(())
            };
            wait::until("both gateways tell how it ended", wait::CONVERGE, ended).await?;
        }
    }
    let applied = || async { replicas.unapplied().await.ok().filter(|keys| keys == ":0") };
    wait::until("what was applied is removed", wait::CONVERGE, applied).await?;
    Ok(())
}
