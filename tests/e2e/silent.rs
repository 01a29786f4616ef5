//! Whoever connects and says nothing keeps nobody else out, of the admin API as of the gateway.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::envoy::{self, Envoy};
use asp_e2e::port::Reserved;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{http1, tool, wait};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::certificate::certificates;
use crate::message::modern;
use crate::trial::{Shared, trials};

/// More than a listener has places.
const SILENT: u64 = 10_500;
/// Connections for which the small Envoy has room, and what it counts of others.
const ROOM: u64 = 10;
const REFUSED: &str = "listener.asp_edge.downstream_global_cx_overflow";
const CLOSED: &str = "endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 1";
/// Files that this process needs for everything else.
const SPARE: u64 = 4_000;
/// Silence alone ends a connection after 10 s: it must not take as long as that.
const ANSWER: Duration = Duration::from_secs(8);

trials! { silent:
    ten_thousand_sockets_that_say_nothing_keep_nobody_out,
    those_that_fill_envoy_keep_no_probe_out_and_are_let_go,
}

/// The Envoy of `k8s/base`, with room for a few connections.
async fn those_that_fill_envoy_keep_no_probe_out_and_are_let_go(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (port, figures) = (Reserved::new()?, Reserved::new()?);
    let settings = envoy::Settings {
        directory: directory.path(),
        template: of_cluster(directory.path(), port.port(), figures.port())?,
        port,
        xds_port: 0,
        tls: None,
        variables: BTreeMap::new(),
    };
    let envoy = Envoy::start(settings).await?;
    let mut silent = Vec::new();
    for _ in 0..2 * ROOM {
        silent.push(TcpStream::connect(envoy.address).await?);
    }
    let full = || async { (envoy.stat(REFUSED).await.ok()? > 0).then_some(()) };
    wait::until("Envoy has no room left", wait::CONVERGE, full).await?;
    let answer = http1::get(figures.address(), "/ready", &[]).await.context("probes get through")?;
    // To the admin port, which this test does not know before.
    ensure!(answer.status == 503, "{}", answer.text());
    for mut stream in silent {
        let ended = timeout(ANSWER, stream.read(&mut [0])).await.context("it is let go")?;
        ensure!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    Ok(())
}

/// Its configuration with ports and files of this machine and what would take long shortened; each change finds its place.
fn of_cluster(directory: &Path, port: u16, figures: u16) -> Result<std::path::PathBuf> {
    let base = tool::root()?.join("k8s/base/edge");
    let files = certificates(directory, "mcp.example.com")?;
    let folder = directory.display().to_string();
    for (from, to) in [(&files.authority, "ca.crt"), (&files.chain, "tls.crt"), (&files.key, "tls.key")] {
        std::fs::copy(from, directory.join(to))?;
    }
    let wasm = tool::filter_wasm()?.display().to_string();
    let changes = [
        // Its own admin port as an endpoint: it has whichever is free.
        ("endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 9901", CLOSED),
        ("port_value: 9901", "port_value: 0"),
        ("0.0.0.0, port_value: 9902", &format!("127.0.0.1, port_value: {figures}")),
        ("0.0.0.0, port_value: 8443", &format!("127.0.0.1, port_value: {port}")),
        ("asp-control-pods.asp.svc, port_value: 18000", "127.0.0.1, port_value: 1"),
        ("/usr/share/asp/asp_filter.wasm", &wasm),
        ("max_active_downstream_connections: 50000", &format!("max_active_downstream_connections: {ROOM}")),
        ("transport_socket_connect_timeout: 10s", "transport_socket_connect_timeout: 2s"),
    ];
    let mut text = std::fs::read_to_string(base.join("envoy.yaml"))?;
    for (old, new) in changes {
        ensure!(text.contains(old), "{old} is not in it");
        text = text.replace(old, new);
    }
    let template = directory.join("template.yaml");
    std::fs::write(&template, text.replace("/etc/envoy", &folder))?;
    for name in ["edge-tls.yaml", "peer.yaml", "peer-ca.yaml"] {
        let text = std::fs::read_to_string(base.join(name))?;
        std::fs::write(
            directory.join(name),
            text.replace("/etc/asp/edge", &folder).replace("/etc/asp/peer", &folder),
        )?;
    }
    Ok(template)
}

async fn ten_thousand_sockets_that_say_nothing_keep_nobody_out(_: &Shared) -> Result<()> {
    let stack = Stack::start(Options::repository()?).await?;
    let list = modern(&stack.alice().await?, "tools/list", json!({}), &[]);
    let crowd = crowd(stack.admin()).await?;
    let answer = timeout(ANSWER, http1::get(stack.admin(), "/healthz", &[])).await;
    ensure!(answer.context("the admin API answers in time")??.status == 200);
    drop(crowd);
    let crowd = self::crowd(stack.gateway()).await?;
    let direct = timeout(ANSWER, http1::send(stack.gateway(), &list)).await;
    ensure!(direct.context("the gateway answers in time")??.status == 200);
    for _ in 0..20 {
        let answer = timeout(ANSWER, http1::send(stack.edge(), &list)).await;
        ensure!(answer.context("Envoy gets its answer in time")??.status == 200);
    }
    drop(crowd);
    stack.stop(&[]).await
}

/// Connections that say nothing, as many as this machine lets one process have.
async fn crowd(address: SocketAddr) -> Result<Vec<TcpStream>> {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let count = SILENT.min(files.map_or(SILENT, |files| files.saturating_sub(SPARE)));
    let mut crowd = Vec::new();
    for _ in 0..count {
        // The listener's queue may be full for a moment: the kernel tries again.
        let connected = timeout(ANSWER, TcpStream::connect(address)).await;
        match connected {
            Ok(stream) => crowd.push(stream.context("connect")?),
            // Nobody is taken any more: what was to be shown.
            Err(_) => break,
        }
    }
    Ok(crowd)
}
