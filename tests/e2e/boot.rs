//! Envoy before, without and with a control plane (I-5): nothing known means everything is refused, a
//! bad snapshot changes nothing.

use std::collections::BTreeMap;

use anyhow::Result;
use asp_e2e::envoy::{self, Envoy};
use asp_e2e::port::Reserved;
use asp_e2e::wait::ErrorDetails;
use asp_e2e::xds::XdsServer;
use asp_e2e::{http1, tool, wait};
use asp_proto::snapshot::{AuthScheme, EdgeServer, EdgeSnapshot, Protocol, Sessions};
use prost::Message;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::trial::{Shared, trials};

const ECDS: &str = "extension_config_discovery.http_filter.asp-edge";

trials! { boot:
    without_a_control_plane_every_request_is_refused_well_formed,
    the_first_snapshot_takes_effect_once_the_control_plane_is_there,
    a_bad_snapshot_is_refused_with_a_reason_and_the_last_good_one_stays,
    an_older_snapshot_is_not_applied,
}

async fn without_a_control_plane_every_request_is_refused_well_formed(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let nobody = Reserved::new()?;
    let envoy = start(&directory, nobody.port()).await?;
    for path in ["/demo/mcp", "/demo/a2a", "/healthz", "/.well-known/agent-card.json", "/", "/../etc"] {
        let answer = http1::get(envoy.address, path, &[]).await?;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert_eq!(answer.reason().as_deref(), Some("upstream_unavailable"), "{path}: {}", answer.text());
    }
    let posted =
        http1::post(envoy.address, "/demo/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await?;
    assert_eq!((posted.status, posted.reason().as_deref()), (503, Some("upstream_unavailable")));
    no_reload(&envoy).await
}

async fn the_first_snapshot_takes_effect_once_the_control_plane_is_there(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let xds = XdsServer::start().await?;
    let envoy = start(&directory, xds.address.port()).await?;
    let answer = http1::get(envoy.address, "/demo/mcp", &[]).await?;
    assert_eq!(answer.status, 503, "nothing was pushed yet: {}", answer.text());
    xds.push_edge(snapshot(7, &["demo"]))?;
    knows_demo(&envoy).await?;
    // The connection may come to the other of Envoy's threads.
    wait::until("other servers are unknown", wait::CONVERGE, || async {
        let unknown = http1::get(envoy.address, "/nothing/mcp", &[]).await.ok()?;
        (unknown.status == 404 && unknown.reason().as_deref() == Some("unknown_server")).then_some(())
    })
    .await?;
    no_reload(&envoy).await
}

async fn a_bad_snapshot_is_refused_with_a_reason_and_the_last_good_one_stays(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let xds = XdsServer::start().await?;
    let envoy = start(&directory, xds.address.port()).await?;
    xds.push_edge(snapshot(7, &["demo"]))?;
    knows_demo(&envoy).await?;
    xds.push_edge(b"\xff\xff no snapshot".to_vec())?;
    counted(&envoy, "update_rejected", 1).await?;
    still_demo(&envoy).await?;
    let refused = wait::until("the refusal reaches the control plane", wait::CONVERGE, || async {
        Some(xds.reports().iter().filter(|report| report.nack.is_some()).count()).filter(|count| *count > 0)
    });
    assert_eq!(refused.await?, 1);
    xds.push_edge(snapshot(8, &["demo", "other"]))?;
    let address = envoy.address;
    wait::until("the next good snapshot takes effect", wait::CONVERGE, || async move {
        http1::get(address, "/other/mcp", &[]).await.ok().filter(|answer| answer.status == 401)
    })
    .await?;
    no_reload(&envoy).await
}

async fn an_older_snapshot_is_not_applied(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let xds = XdsServer::start().await?;
    let envoy = start(&directory, xds.address.port()).await?;
    xds.push_edge(snapshot(7, &["demo"]))?;
    knows_demo(&envoy).await?;
    let taken = envoy.stat(&format!("{ECDS}.update_success")).await?;
    xds.push_edge(snapshot(6, &[]))?;
    counted(&envoy, "update_success", taken + 1).await?;
    still_demo(&envoy).await?;
    no_reload(&envoy).await
}

/// Asks several times on connections of their own: each worker has its own copy of the snapshot.
async fn still_demo(envoy: &Envoy) -> Result<()> {
    for _ in 0..20 {
        let answer = http1::get(envoy.address, "/demo/mcp", &[]).await?;
        assert_eq!(answer.status, 401, "the snapshot in force stays: {}", answer.text());
    }
    Ok(())
}

async fn counted(envoy: &Envoy, counter: &str, least: u64) -> Result<()> {
    let name = format!("{ECDS}.{counter}");
    wait::until(counter, wait::CONVERGE, || async {
        envoy.stat(&name).await.ok().filter(|count| *count >= least)
    })
    .await
    .map(drop)
    .with_details(|| envoy.process.tail())
}

/// Envoy whose control plane is at this port, and nothing else.
pub(crate) async fn start(directory: &TempDir, xds_port: u16) -> Result<Envoy> {
    Envoy::start(envoy::Settings {
        directory: directory.path(),
        template: tool::root()?.join("envoy/bootstrap.yaml"),
        port: Reserved::new()?,
        xds_port,
        tls: None,
        variables: BTreeMap::new(),
    })
    .await
}

async fn knows_demo(envoy: &Envoy) -> Result<()> {
    let address = envoy.address;
    wait::until("a request without a token is refused with 401", wait::CONVERGE, || async move {
        http1::get(address, "/demo/mcp", &[]).await.ok().filter(|answer| answer.status == 401)
    })
    .await
    .map(drop)
    .with_details(|| envoy.process.tail())
}

async fn no_reload(envoy: &Envoy) -> Result<()> {
    let reloads = envoy.stats("vm_reload").await?;
    assert!(reloads.values().all(|count| *count == 0), "the filter's VM was restarted: {reloads:?}");
    Ok(())
}

/// Servers that want a token no one can have.
fn snapshot(revision: u64, servers: &[&str]) -> Vec<u8> {
    let server = |name: &&str| EdgeServer {
        name: (*name).into(),
        protocols: vec![Protocol::Mcp.into()],
        default_allow: true,
        schemes: vec![AuthScheme::Jwt.into()],
        sessions: Sessions::Stateful.into(),
        ..Default::default()
    };
    let mut snapshot = EdgeSnapshot {
        revision,
        workers: 2,
        servers: servers.iter().map(server).collect(),
        public_url: "http://asp.test".into(),
        ..Default::default()
    };
    snapshot.digest = Sha256::digest(snapshot.encode_to_vec()).to_vec();
    snapshot.encode_to_vec()
}
