//! A subscriber beyond loopback proves itself: the snippet in a foreign Envoy reaches the control plane over
//! mutual TLS, and an Envoy without a certificate learns nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use asp_e2e::envoy::{self, Envoy};
use asp_e2e::port::Reserved;
use asp_e2e::process::Process;
use asp_e2e::{http1, insertion, stack, tool, wait};
use libtest_mimic::Trial;
use tokio::process::Command;

use crate::certificate::{Files, certificates};
use crate::trial::Shared;

const NAME: &str = "asp-control.test";
const TAKEN: &str = "extension_config_discovery.http_filter.asp-edge.update_success";
const TRIED: &str = "extension_config_discovery.http_filter.asp-edge.update_attempt";

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![shared.trial("peers::only_an_envoy_with_a_certificate_gets_the_snapshot", |_| mutual_tls())]
}

async fn mutual_tls() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let files = certificates(directory.path(), NAME)?;
    let (control, xds_port) = control(directory.path(), &files).await?;
    let proved = foreign(&directory.path().join("proved"), xds_port, &mutual_socket(&files)?).await?;
    let address = proved.address;
    wait::until("the snapshot arrives over mutual TLS", wait::START, || async move {
        http1::get(address, "/demo/mcp", &[]).await.ok().filter(|answer| answer.status == 401)
    })
    .await
    .with_context(|| format!("{}\n{}", control.tail(), proved.process.tail()))?;

    let plain = std::fs::read_to_string(tool::root()?.join("envoy/downstream-plain.json"))?;
    let stranger = foreign(&directory.path().join("stranger"), xds_port, plain.trim()).await?;
    wait::until("the stranger asks more than once", wait::START, || async {
        stranger.stat(TRIED).await.ok().filter(|count| *count >= 2)
    })
    .await?;
    assert_eq!(stranger.stat(TAKEN).await?, 0, "it learns nothing");
    let answer = http1::get(stranger.address, "/demo/mcp", &[]).await?;
    assert_eq!(answer.status, 503, "and refuses everything: {}", answer.text());
    Ok(())
}

async fn control(directory: &Path, files: &Files) -> Result<(Process, u16)> {
    let state = directory.join("control");
    std::fs::create_dir(&state)?;
    let mut command = Command::new(tool::asp()?);
    command
        .args(["serve", "--dev", "--roles", "control", "--primitives"])
        .arg(tool::root()?.join("primitives"))
        .env("ASP_STATE_DIR", &state)
        .env("ASP_PUBLIC_URL", "http://asp.test")
        .env("ASP_FILTER_WASM", tool::filter_wasm()?)
        .env("ASP_PEER_CERT", &files.chain)
        .env("ASP_PEER_KEY", &files.key)
        .env("ASP_PEER_CA", &files.authority)
        .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_ADMIN_PORT", "ASP_XDS_PORT"].map(|name| (name, "0")));
    let mut control = Process::start("control", command)?;
    let ports = stack::ports(&mut control, &state).await?;
    let admin = SocketAddr::from(([127, 0, 0, 1], ports.admin));
    wait::until("the admin API answers", wait::START, || async move {
        http1::get(admin, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
    })
    .await
    .with_context(|| control.tail())?;
    Ok((control, ports.xds))
}

/// An Envoy that took the snippet, with this transport socket towards the control plane.
async fn foreign(directory: &Path, xds_port: u16, socket: &str) -> Result<Envoy> {
    std::fs::create_dir(directory)?;
    let root = tool::root()?;
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"));
    let text = insertion::insert(&read("tests/fixtures/foreign.yaml")?, &read("envoy/insert.yaml")?)?;
    let (template, other) = (directory.join("bootstrap.yaml"), directory.join("other.wasm"));
    std::fs::write(&template, text)?;
    std::fs::write(&other, wat::parse_str(crate::vectors::OTHER_WASM)?)?;
    let variables = [
        ("OTHER_WASM", other.to_string_lossy().into_owned()),
        ("RECORDER_PORT", "9".to_string()),
        ("ASP_CONTROL_HOST", "127.0.0.1".to_string()),
        ("ASP_CONTROL_SOCKET", socket.to_string()),
    ];
    let variables: BTreeMap<String, String> =
        variables.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    let port = Reserved::new()?;
    Envoy::start(envoy::Settings { directory, template, port, xds_port, tls: None, variables }).await
}

fn mutual_socket(files: &Files) -> Result<String> {
    let template = std::fs::read_to_string(tool::root()?.join("envoy/upstream-mtls.json"))?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let variables = [
        ("ASP_PEER_NAME", NAME.to_string()),
        ("ASP_PEER_CERT", text(&files.chain)),
        ("ASP_PEER_KEY", text(&files.key)),
        ("ASP_PEER_CA", text(&files.authority)),
    ];
    let variables = variables.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    envoy::render(template.trim(), &variables)
}
