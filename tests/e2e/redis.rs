//! A cluster whose gateways share a Redis: a limit is one for all of them, and each has its share while Redis is away.

use std::fmt::Debug;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::cluster::{Cluster, Gateway};
use asp_e2e::http1;
use asp_e2e::stores::{Redis, ServerCertificate};
use asp_e2e::wait;
use rcgen::SanType;
use serde_json::{Value, json};

use crate::certificate::Authority;
use crate::message::modern;
use crate::trial::{Shared, trials};

/// Calls that a user may make; in two hours comes one back.
const LIMIT: usize = 12;
/// Users whose calls must come out right.
const COUNTED: usize = 3;
/// What a gateway says when Redis did not answer it, why where that was for its time, and when it answers again.
const ALONE: &str = "limits count for this gateway alone";
const LATE: [&str; 2] = ["does not answer within", "timed out"];
const TOGETHER: &str = "all gateways together again";
/// Log line of a gateway that learns that there are two.
const BOTH: &str = "limits are shared by another number of gateways";

trials! { redis:
    a_limit_is_one_for_all_gateways_in_a_cluster_too,
    over_tls_it_is_used_with_the_authority_that_the_operator_names,
    while_it_is_away_each_gateway_admits_its_share_and_no_call_fails,
    a_call_that_runs_at_one_gateway_counts_at_the_other,
}

/// Two gateways over one Redis, and the limit of each user of an org.
async fn start(redis: &Redis, mut environment: Vec<(&'static str, String)>) -> Result<Cluster> {
    environment.push(("ASP_REDIS_URL", redis.url()));
    let cluster = Cluster::start_in(environment, 2).await?;
    let users: Vec<Value> = USERS.iter().map(|user| limit(user)).collect();
    cluster.put("/api/ratelimits/orgs/acme", &Value::Array(users)).await?;
    Ok(cluster)
}

/// More than are counted where Redis answers in its time.
const USERS: [&str; 9] = ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan"];

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

/// Counts the calls of one user, and of the next where the count is not as it must be and a gateway says why: Redis did not
/// answer it within the quarter of a second that it has, as happens on a busy machine, and it counted alone for a while.
async fn counted<T: PartialEq + Debug>(
    cluster: &Cluster,
    users: &mut impl Iterator<Item = &'static str>,
    count: impl AsyncFn(&str) -> Result<T>,
    wanted: T,
) -> Result<()> {
    loop {
        let token = token(cluster, users.next().context("Redis never answers in time")?).await?;
        let before = late(cluster);
        let was_alone = cluster.gateways.iter().any(is_alone);
        let found = count(&token).await?;
        if found == wanted {
            return Ok(());
        }
        let why = || async { (was_alone || late(cluster) > before).then_some(()) };
        wait::until("a gateway counted alone", wait::CONVERGE, why)
            .await
            .with_context(|| format!("{found:?}, not {wanted:?}"))?;
        let again = || async {
            for gateway in &cluster.gateways {
                admitted(gateway.address, &token, 1).await.ok()?;
            }
            (!cluster.gateways.iter().any(is_alone)).then_some(())
        };
        wait::until("they count together again", wait::CONVERGE, again).await?;
    }
}

fn is_alone(gateway: &Gateway) -> bool {
    said(gateway, ALONE).len() > said(gateway, TOGETHER).len()
}

/// What a gateway has said of that.
fn said(gateway: &Gateway, what: &str) -> Vec<String> {
    gateway.process.log().lines().into_iter().filter(|line| line.contains(what)).collect()
}

/// How often the gateways have said that they count alone because Redis was late.
fn late(cluster: &Cluster) -> usize {
    let is_late = |line: &String| LATE.iter().any(|why| line.contains(why));
    cluster.gateways.iter().flat_map(|gateway| said(gateway, ALONE)).filter(is_late).count()
}

/// How many of so many calls of a user each gateway runs, one after the other.
async fn at_each([first, second]: [SocketAddr; 2], token: &str, calls: [usize; 2]) -> Result<[usize; 2]> {
    Ok([admitted(first, token, calls[0]).await?, admitted(second, token, calls[1]).await?])
}

async fn a_limit_is_one_for_all_gateways_in_a_cluster_too(_: &Shared) -> Result<()> {
    for redis in [Redis::start().await?, Redis::start_cluster().await?] {
        let cluster = start(&redis, Vec::new()).await?;
        let [first, second] = [cluster.gateways[0].address, cluster.gateways[1].address];
        let mut users = USERS.into_iter();
        for _ in 0..COUNTED {
            let both = async |token: &str| {
                let both = tokio::join!(admitted(first, token, LIMIT), admitted(second, token, LIMIT));
                anyhow::Ok(both.0? + both.1?)
            };
            counted(&cluster, &mut users, both, LIMIT).await?;
        }
        let tried = USERS.len() - users.len();
        let kept: usize = redis.ask("DBSIZE").await?.trim_start_matches(':').parse()?;
        // The others are buckets.
        let gateways = 1;
        ensure!((COUNTED..=tried).contains(&(kept - gateways)), "{kept} keys for {tried} users");
    }
    Ok(())
}

async fn over_tls_it_is_used_with_the_authority_that_the_operator_names(_: &Shared) -> Result<()> {
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
    let gateways = [cluster.gateways[0].address, cluster.gateways[1].address];
    // The limit is one for both.
    counted(
        &cluster,
        &mut USERS.into_iter(),
        async |user| at_each(gateways, user, [LIMIT, 1]).await,
        [LIMIT, 0],
    )
    .await?;

    // One that is not of the authority is not believed.
    let elsewhere = tempfile::tempdir()?;
    let other = Authority::new(elsewhere.path())?.sign("", Vec::new())?.authority.display().to_string();
    let cluster = start(&redis, vec![("SSL_CERT_FILE", other)]).await?;
    let alice = token(&cluster, USERS[0]).await?;
    ensure!(admitted(cluster.gateways[0].address, &alice, 1).await? == 1, "this gateway counts by itself");
    cluster.gateways[0].process.logged(ALONE).await
}

async fn while_it_is_away_each_gateway_admits_its_share_and_no_call_fails(_: &Shared) -> Result<()> {
    let mut redis = Redis::start().await?;
    let cluster = start(&redis, Vec::new()).await?;
    let gateways = [cluster.gateways[0].address, cluster.gateways[1].address];
    let mut users = USERS.into_iter();
    let other = token(&cluster, users.next().context("a user")?).await?;
    counted(&cluster, &mut users, async |user| at_each(gateways, user, [LIMIT + 1, 1]).await, [LIMIT, 0])
        .await?;

    for gateway in &cluster.gateways {
        gateway.process.logged(BOTH).await?;
    }
    redis.process.stop().await?;
    for gateway in gateways {
        // What is admitted while Redis is away: the share of each gateway, together the limit.
        ensure!(admitted(gateway, &other, LIMIT + 3).await? == LIMIT / gateways.len());
    }
    let alone = || async { cluster.gateways.iter().all(is_alone).then_some(()) };
    wait::until("each counts alone", wait::CONVERGE, alone).await?;

    redis.start_again().await?;
    let heals = || async {
        for gateway in gateways {
            admitted(gateway, &other, 1).await.ok()?;
        }
        (!cluster.gateways.iter().any(is_alone)).then_some(())
    };
    wait::until("each uses Redis again", wait::CONVERGE, heals).await?;
    let wanted = [LIMIT - 2, 2];
    counted(&cluster, &mut users, async |user| at_each(gateways, user, [LIMIT - 2, LIMIT]).await, wanted)
        .await
}

async fn a_call_that_runs_at_one_gateway_counts_at_the_other(_: &Shared) -> Result<()> {
    let redis = Redis::start().await?;
    let cluster = start(&redis, Vec::new()).await?;
    let limits = json!([{"selector": {"user": "each"}, "policy": {"type": "concurrency", "capacity": 1}}]);
    cluster.put("/api/ratelimits/orgs/acme", &limits).await?;
    let [first, second] = [cluster.gateways[0].address, cluster.gateways[1].address];
    let mut users = USERS.into_iter();
    let wanted = ("user".to_owned(), true);
    counted(&cluster, &mut users, async |token| beside_a_running_call(first, second, token).await, wanted)
        .await
}

/// Calls at the second gateway while a call of the same user runs at the first. Returns the limit that refuses it, if any, and
/// whether two calls in turn are admitted once the first has ended.
async fn beside_a_running_call(first: SocketAddr, second: SocketAddr, token: &str) -> Result<(String, bool)> {
    // A minute of progress.
    let params =
        json!({"name": "count", "arguments": {"to": 100, "delayMs": 600}, "_meta": {"progressToken": 1}});
    let running = modern(token, "tools/call", params, &[("mcp-name", "count")]);
    let running = http1::open(first, &running, "notifications/progress").await?;
    let call = || async {
        let params = json!({"name": "echo", "arguments": {"message": "m"}});
        let call = modern(token, "tools/call", params, &[("mcp-name", "echo")]);
        anyhow::Ok(http1::send(second, &call).await?.json()?["result"].clone())
    };
    let refused = call().await?;
    let limit = refused["_meta"]["asp/limit"].as_str().unwrap_or_default().to_owned();
    // Its client is gone, and so is the call. A slot that Redis did not take back in time is held for its lease.
    drop(running);
    wait::until("its slot is free at the other gateway", wait::START, || async {
        let answer = call().await.ok()?;
        (answer["isError"] == false).then_some(())
    })
    .await?;
    // A call that has ended holds no slot.
    Ok((limit, call().await?["isError"] == false))
}
