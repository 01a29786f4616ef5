//! Gateways of pools behind one Envoy: what is routed to a pool runs there and nowhere else, over every protocol, no client
//! chooses a pool itself, and requests wait for the only gateway of a pool.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, SERVED_BY};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::{tool, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::message::{legacy, modern, open_session, rest};
use crate::trial::{Shared, trials};

/// Gateways that pass Envoy's health checks, and requests that wait for one.
const HEALTHY: &str = "cluster.gateway.membership_healthy";
const WAITING: &str = "cluster.gateway.upstream_rq_active";

trials! { pools:
    what_is_routed_to_a_pool_runs_there_and_no_client_chooses_one,
    requests_wait_for_the_only_gateway_of_a_pool_while_it_pauses,
}

/// The gateway pauses until its health checks have failed and a request waits for it.
async fn requests_wait_for_the_only_gateway_of_a_pool_while_it_pauses(_: &Shared) -> Result<()> {
    for file in ["envoy/bootstrap.yaml", "envoy/insert.yaml"] {
        let text = std::fs::read_to_string(tool::root()?.join(file))?;
        ensure!(!text.contains("healthy_panic_threshold: { value: 0 }"), "{file} gives up the only gateway");
    }
    let cluster = Cluster::start(1).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let gateway = cluster.gateways.first().context("a gateway")?;
    let edge = cluster.envoy.address;
    let request = call(&token, "clock", &[]);
    let envoy_counts = async |stat: &str, wanted: u64| {
        wait::until(stat, wait::CONVERGE, || async {
            (cluster.envoy.stat(stat).await.ok()? == wanted).then_some(())
        })
        .await
    };
    served(edge, &request, gateway.address).await.context("before the pause")?;
    gateway.process.signal(Signal::STOP)?;
    envoy_counts(HEALTHY, 0).await?;
    let resumed = async {
        envoy_counts(WAITING, 1).await?;
        gateway.process.signal(Signal::CONT)
    };
    let (answer, resumed) = tokio::join!(served(edge, &request, gateway.address), resumed);
    resumed?;
    answer.context("during the pause")?;
    envoy_counts(HEALTHY, 1).await
}

async fn what_is_routed_to_a_pool_runs_there_and_no_client_chooses_one(_: &Shared) -> Result<()> {
    let mut cluster = Cluster::start(1).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
    let route = json!([{ "server": "demo", "primitive": "ec*", "pool": "heavy" }]);
    cluster.put("/api/routes", &route).await?;
    let edge = cluster.envoy.address;
    // Nobody is there yet: it runs nowhere else meanwhile.
    let refused = wait::until("the route is in force", wait::CONVERGE, || async {
        let answer = http1::send(edge, &call(&token, "echo", &[])).await.ok()?;
        (answer.status != 200).then_some(answer)
    })
    .await?;
    ensure!(
        (refused.status, refused.reason().as_deref()) == (503, Some("upstream_unavailable")),
        "{refused:?}"
    );
    let clock = http1::send(edge, &call(&token, "clock", &[])).await?;
    ensure!(clock.status == 200, "{clock:?}");

    cluster.add_gateway_of("heavy").await?;
    let [default, heavy] = [0, 1].map(|place| cluster.gateways[place].address);
    let pools = cluster.admin("/api/pools").await?;
    ensure!(
        pools
            == json!([
                { "pool": "gateway", "gateways": 1, "routes": 0 }, { "pool": "heavy", "gateways": 1, "routes": 1 },
            ]),
        "{pools}"
    );
    for (name, pool) in [("echo", heavy), ("clock", default)] {
        served(edge, &call(&token, name, &[]), pool).await.with_context(|| name.to_owned())?;
        // A client that says otherwise.
        for said in ["heavy", "gateway", "gateway-pools", ""] {
            let request = call(&token, name, &[("x-asp-route", said)]);
            served(edge, &request, pool).await.with_context(|| format!("{name}, {said:?}"))?;
        }
        over_rest(edge, &token, name, pool).await.with_context(|| format!("{name} over REST"))?;
    }
    in_session(edge, &token, [default, heavy]).await.context("in a session")?;
    // What the headers do not say does not run where they lead.
    let mut request = call(&token, "echo", &[]);
    for (name, value) in &mut request.headers {
        if name == "mcp-name" {
            *value = b"clock".to_vec();
        }
    }
    let lie = http1::send(edge, &request).await?;
    ensure!((lie.status, lie.reason().as_deref()) == (400, Some("header_mismatch")), "{lie:?}");

    cluster.put("/api/routes", &json!([])).await?;
    wait::until("the route is gone", wait::CONVERGE, || async {
        served(edge, &call(&token, "echo", &[]), default).await.ok()
    })
    .await
    .map(drop)
}

/// The session stays where it began; its calls run in their pools.
async fn in_session(edge: SocketAddr, token: &str, [default, heavy]: [SocketAddr; 2]) -> Result<()> {
    let (answer, session) = open_session(edge, token).await?;
    ensure!(answer.header(SERVED_BY) == Some(&default.to_string()), "{answer:?}");
    for (name, pool) in [("echo", heavy), ("clock", default), ("echo", heavy)] {
        let headers = [("mcp-session-id", session.as_str()), ("x-asp-route", "gateway")];
        let request = legacy(token, "tools/call", arguments(name), &headers);
        served(edge, &request, pool).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

async fn over_rest(edge: SocketAddr, token: &str, name: &str, pool: SocketAddr) -> Result<()> {
    let path = format!("/demo/rest/tools/{name}/calls/one");
    let body = arguments(name)["arguments"].clone();
    let mut put = rest("PUT", &path, token, &body);
    put.headers.push(("x-asp-route".into(), b"gateway".to_vec()));
    for request in [put, rest("GET", &path, token, &Value::Null)] {
        served(edge, &request, pool).await?;
    }
    Ok(())
}

async fn served(edge: SocketAddr, request: &Request, pool: SocketAddr) -> Result<Response> {
    let answer = http1::send(edge, request).await?;
    let good = answer.status == 200 || answer.status == 201;
    ensure!(good && answer.header(SERVED_BY) == Some(&pool.to_string()), "not at {pool}: {answer:?}");
    Ok(answer)
}

fn arguments(name: &str) -> Value {
    let arguments = if name == "echo" { json!({"message": "x"}) } else { json!({}) };
    json!({ "name": name, "arguments": arguments })
}

fn call(token: &str, name: &str, headers: &[(&str, &str)]) -> Request {
    let mut all = vec![("mcp-name", name)];
    all.extend(headers);
    modern(token, "tools/call", arguments(name), &all)
}
