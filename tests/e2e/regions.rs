//! Two regions, each with its own control plane, gateway and Envoy: whose org is at home in the other one is served there,
//! over every protocol, and refused where it cannot be passed on.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, SERVED_BY};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::wait;
use serde_json::json;

use crate::message::{legacy, modern, open_session, rest};
use crate::trial::{Shared, trials};

/// What clients know: the same in each region.
const PUBLIC_URL: &str = "http://mcp.example.com";

trials! { regions:
    an_org_is_served_in_its_home_and_refused_where_it_cannot_be_passed_on,
}

async fn an_org_is_served_in_its_home_and_refused_where_it_cannot_be_passed_on(_: &Shared) -> Result<()> {
    let environment = || vec![("ASP_PUBLIC_URL", PUBLIC_URL.to_owned())];
    let us = Cluster::start_region(None, environment(), Vec::new()).await?;
    let eu = Cluster::start_region(Some(&us), environment(), vec![("region-us", us.envoy.address)]).await?;
    let token = async |org: &str| us.token(&["--org", org, "--user", "alice"]).await;
    let [acme, globex, lost] = [token("acme").await?, token("globex").await?, token("lost").await?];
    let [here, there] = [&eu, &us].map(|region| region.gateways[0].address);
    let edge = eu.envoy.address;
    served(edge, &echo(&globex), here).await.context("before anybody has a home")?;

    eu.put(
        "/api/regions",
        &json!([{ "name": "eu", "here": true }, { "name": "us", "cluster": "region-us" }]),
    )
    .await?;
    eu.put("/api/regions/orgs/globex", &json!({ "region": "us" })).await?;
    eu.put("/api/regions/orgs/lost", &json!({ "region": "mars" })).await?;
    wait::until("the homes are in force", wait::CONVERGE, || async {
        let refused = http1::send(edge, &echo(&lost)).await.ok()?;
        (refused.status == 421).then_some(())
    })
    .await?;
    served(edge, &echo(&acme), here).await?;
    served(edge, &echo(&globex), there).await?;
    let (opened, session) = open_session(edge, &globex).await?;
    ensure!(names(&opened, there), "{opened:?}");
    let list = legacy(&globex, "tools/list", json!({}), &[("mcp-session-id", &session)]);
    served(edge, &list, there).await?;
    let put = rest("PUT", "/demo/rest/tools/clock/calls/one", &globex, &json!({}));
    served(edge, &put, there).await?;

    // The gateway decides again, whoever sends it what.
    let straight = async |token: &str| http1::send(here, &echo(token)).await;
    refused(&straight(&globex).await?, "wrong_region", "us")?;
    refused(&straight(&lost).await?, "unknown_region", "mars")?;
    refused(&http1::send(edge, &echo(&lost)).await?, "unknown_region", "mars")?;
    let over_rest =
        http1::send(edge, &rest("PUT", "/demo/rest/tools/clock/calls/two", &lost, &json!({}))).await?;
    refused(&over_rest, "unknown_region", "mars")?;

    // Two regions that each take the other one for the org's home send nothing in circles.
    us.put(
        "/api/regions",
        &json!([{ "name": "us", "here": true }, { "name": "eu", "cluster": "region-eu" }]),
    )
    .await?;
    us.put("/api/regions/orgs/globex", &json!({ "region": "eu" })).await?;
    let answer = wait::until("the other region's homes are in force", wait::CONVERGE, || async {
        let answer = http1::send(edge, &echo(&globex)).await.ok()?;
        (answer.status == 421).then_some(answer)
    })
    .await?;
    refused(&answer, "wrong_region", "eu")
}

async fn served(edge: SocketAddr, request: &Request, gateway: SocketAddr) -> Result<()> {
    let answer = http1::send(edge, request).await?;
    let good = answer.status == 200 || answer.status == 201;
    ensure!(good && names(&answer, gateway), "not at {gateway}: {answer:?}");
    Ok(())
}

/// Each Envoy on the way names whom it sent the request to.
fn names(answer: &Response, gateway: SocketAddr) -> bool {
    let gateway = gateway.to_string();
    answer.headers.iter().any(|(name, value)| name == SERVED_BY && value.contains(&gateway))
}

fn refused(answer: &Response, reason: &str, region: &str) -> Result<()> {
    let told = (answer.status, answer.reason(), answer.header("asp-home-region"));
    ensure!(told == (421, Some(reason.to_owned()), Some(region)), "{answer:?}");
    Ok(())
}

fn echo(token: &str) -> Request {
    let params = json!({ "name": "echo", "arguments": { "message": "x" } });
    modern(token, "tools/call", params, &[("mcp-name", "echo")])
}
