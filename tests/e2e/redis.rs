//! A cluster whose gateways share a Redis: a limit is one for all of them, and one at each while Redis is away.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1;
use asp_e2e::stores::{Redis, ServerCertificate};
use asp_e2e::wait;
use libtest_mimic::Trial;
use rcgen::SanType;
use serde_json::{Value, json};

use crate::certificate::Authority;
use crate::message::modern;
use crate::trial::Shared;

/// Calls that a user may make; in two hours comes one back.
const LIMIT: usize = 12;

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("redis::a_limit_is_one_for_all_gateways_in_a_cluster_too", |_| one_limit()),
        shared.trial("redis::over_tls_it_is_used_with_the_authority_that_the_operator_names", |_| over_tls()),
        shared.trial("redis::while_it_is_away_each_gateway_counts_and_no_call_fails", |_| away()),
    ]
}

/// Two gateways over one Redis, and the limit of each user of an org.
async fn start(redis: &Redis, mut environment: Vec<(&'static str, String)>) -> Result<Cluster> {
    environment.push(("ASP_REDIS_URL", redis.url()));
    let cluster = Cluster::start_in(environment, 2).await?;
    let users: Vec<Value> = USERS.iter().map(|user| limit(user)).collect();
    cluster.put("/api/ratelimits/orgs/acme", &Value::Array(users)).await?;
    Ok(cluster)
}

const USERS: [&str; 3] = ["alice", "bob", "carol"];

fn limit(user: &str) -> Value {
    json!({"selector": {"user": user}, "policy": {"capacity": LIMIT, "refill": "0.5/h"}})
}

async fn token(cluster: &Cluster, user: &str) -> Result<String> {
    cluster.token(&["--org", "acme", "--user", user]).await
}

/// How many of so many calls of a user a gateway runs; each of the others must be told that the limit is reached.
async fn admitted(gateway: SocketAddr, token: &str, calls: usize) -> Result<usize> {
    let mut admitted = 0;
    for _ in 0..calls {
        let params = json!({"name": "echo", "arguments": {"message": "m"}});
        let answer =
            http1::send(gateway, &modern(token, "tools/call", params, &[("mcp-name", "echo")])).await?;
        let result = answer.json()?["result"].clone();
        match (result["isError"].as_bool(), result["_meta"]["asp/reason"].as_str()) {
            (Some(true), Some("rate_limited")) => {
                ensure!(result["_meta"]["asp/limit"] == "user", "{result}");
                ensure!(result["_meta"]["asp/retryAfterMs"].as_u64() > Some(60_000), "{result}");
            }
            (Some(true), _) | (None, _) => bail!("{}", answer.text()),
            (Some(false), _) => admitted += 1,
        }
    }
    Ok(admitted)
}

async fn one_limit() -> Result<()> {
    for redis in [Redis::start().await?, Redis::start_cluster().await?] {
        let cluster = start(&redis, Vec::new()).await?;
        let [first, second] = [cluster.gateways[0].address, cluster.gateways[1].address];
        for user in USERS {
            let token = token(&cluster, user).await?;
            let both = tokio::join!(admitted(first, &token, LIMIT), admitted(second, &token, LIMIT));
            let first = both.0?;
            let second = both.1?;
            ensure!(first + second == LIMIT, "{user}: {first} and {second} of {LIMIT}");
        }
        let kept = redis.ask("DBSIZE").await?;
        ensure!(kept == format!(":{}", USERS.len()), "{kept}");
    }
    Ok(())
}

async fn over_tls() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let authority = Authority::new(directory.path())?;
    let mut named = None;
    let redis = Redis::start_with_tls(|address| {
        let files = authority.sign("redis-", vec![SanType::IpAddress(address.into())])?;
        named = Some(files.authority);
        Ok(ServerCertificate { chain: files.chain, key: files.key })
    })
    .await?;
    let named = named.context("the authority's file")?.display().to_string();
    let cluster = start(&redis, vec![("SSL_CERT_FILE", named)]).await?;
    let alice = token(&cluster, USERS[0]).await?;
    ensure!(admitted(cluster.gateways[0].address, &alice, LIMIT).await? == LIMIT);
    ensure!(admitted(cluster.gateways[1].address, &alice, 1).await? == 0, "the limit is one for both");

    // One that is not of the authority is not believed.
    let elsewhere = tempfile::tempdir()?;
    let other = Authority::new(elsewhere.path())?.sign("", Vec::new())?.authority.display().to_string();
    let cluster = start(&redis, vec![("SSL_CERT_FILE", other)]).await?;
    let alice = token(&cluster, USERS[0]).await?;
    ensure!(admitted(cluster.gateways[0].address, &alice, 1).await? == 1, "this gateway counts by itself");
    cluster.gateways[0].process.logged("limits count for this gateway alone").await
}

async fn away() -> Result<()> {
    let mut redis = Redis::start().await?;
    let cluster = start(&redis, Vec::new()).await?;
    let gateways = [cluster.gateways[0].address, cluster.gateways[1].address];
    let [alice, bob, carol] = USERS;
    let alice = token(&cluster, alice).await?;
    let bob = token(&cluster, bob).await?;
    let carol = token(&cluster, carol).await?;
    ensure!(admitted(gateways[0], &alice, LIMIT + 1).await? == LIMIT);
    ensure!(admitted(gateways[1], &alice, 1).await? == 0);

    redis.process.stop().await?;
    for gateway in gateways {
        // What is admitted while Redis is away: the limit of each gateway, no more.
        ensure!(admitted(gateway, &bob, LIMIT + 3).await? == LIMIT);
    }
    for gateway in &cluster.gateways {
        gateway.process.logged("limits count for this gateway alone").await?;
    }

    redis.start_again().await?;
    for gateway in &cluster.gateways {
        let heals = || async {
            admitted(gateway.address, &bob, 1).await.ok()?;
            gateway.process.log().contains("all gateways together again").then_some(())
        };
        wait::until("the gateway uses Redis again", wait::CONVERGE, heals).await?;
    }
    ensure!(admitted(gateways[0], &carol, LIMIT - 2).await? == LIMIT - 2);
    ensure!(admitted(gateways[1], &carol, LIMIT).await? == 2);
    Ok(())
}
