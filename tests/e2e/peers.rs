//! A subscriber beyond loopback proves itself and its role: the snippet in a foreign Envoy reaches the control plane
//! over mutual TLS, an Envoy without a certificate learns nothing, and a certificate that was stolen from an Envoy
//! or a runtime makes no gateway (I-7, I-8).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::envoy::{self, Envoy};
use asp_e2e::port::Reserved;
use asp_e2e::process::Process;
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{http1, insertion, stack, tool, wait};
use tokio::process::Command;

use asp_e2e::stack::Ports;
use asp_proto::xds::envoy::config::core::v3::Node;
use asp_proto::xds::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use asp_proto::xds::envoy::service::discovery::v3::{DeltaDiscoveryRequest, Resource};
use prost_types::{Struct, Value, value};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::certificate::{Authority, Files};
use crate::trial::{Shared, trials};

pub(crate) const NAME: &str = "asp-control.test";
const TAKEN: &str = "extension_config_discovery.http_filter.asp-edge.update_success";
const TRIED: &str = "extension_config_discovery.http_filter.asp-edge.update_attempt";

trials! { peers:
    only_an_envoy_with_a_certificate_gets_the_snapshot,
    a_stolen_certificate_makes_no_gateway,
}

async fn only_an_envoy_with_a_certificate_gets_the_snapshot(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let authority = Authority::new(directory.path())?;
    let (control, ports) = control(directory.path(), &authority.process("control/0", NAME)?).await?;
    let xds_port = ports.xds;
    let files = authority.process("envoy/0", "edge.test")?;
    let proved = foreign(&directory.path().join("proved"), xds_port, &mutual_socket(&files)?).await?;
    let address = proved.address;
    wait::until("the snapshot arrives over mutual TLS", wait::START, || async move {
        http1::get(address, "/demo/mcp", &[]).await.ok().filter(|answer| answer.status == 401)
    })
    .await
    .with_details(|| format!("{}\n{}", control.tail(), proved.process.tail()))?;

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

/// Who has taken an Envoy's or a runtime's certificate, or a gateway's on another machine, says that it is a gateway
/// here. Envoy never sends it a request, and it learns nothing.
async fn a_stolen_certificate_makes_no_gateway(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let authority = Authority::new(directory.path())?;
    let (control, ports) = control(directory.path(), &authority.process("control/0", NAME)?).await?;
    let genuine = authority.process("gateway/0", "gateway.test")?;
    let (_gateway, address) = gateway(directory.path(), &genuine, ports.xds).await?;
    let socket = mutual_socket(&authority.process("envoy/0", "edge.test")?)?;
    let envoy = foreign(&directory.path().join("edge"), ports.xds, &socket).await?;
    let serves = || async {
        envoy.stat("cluster.gateway.membership_healthy").await.ok().filter(|healthy| *healthy == 1)
    };
    wait::until("Envoy has the genuine gateway", wait::START, serves)
        .await
        .with_details(|| format!("{}\n{}", control.tail(), envoy.process.tail()))?;

    let attacker = Reserved::new()?.address();
    let elsewhere = SocketAddr::from(([203, 0, 113, 7], attacker.port()));
    for (holder, advertised) in [
        ("envoy/stolen", attacker),
        ("runtime/stolen", attacker),
        ("gateway/stolen", elsewhere),
        ("gateways/stolen", attacker),
    ] {
        let files = authority.process(holder, "stolen.test")?;
        let heard = pretend(&files, ports.xds, advertised).await;
        ensure!(heard.is_err(), "{holder} was sent {} bytes", heard.unwrap_or_default());
    }
    let said = ["subscription refused: nothing is sent to it", "its certificate is not for this"];
    for line in said {
        control.logged(line).await?;
    }
    let clusters = envoy.admin("/clusters").await?;
    let hosts: Vec<&str> = clusters
        .lines()
        .filter_map(|line| line.strip_prefix("gateway::")?.strip_suffix("::health_flags::healthy"))
        .collect();
    assert_eq!(hosts, [address.to_string()]);
    for stranger in [attacker, elsewhere] {
        ensure!(!clusters.contains(&stranger.to_string()), "{stranger} is in Envoy's clusters");
    }
    Ok(())
}

/// Subscribes with a certificate as a gateway that has a snapshot already, and is only back.
async fn pretend(files: &Files, xds_port: u16, advertised: SocketAddr) -> Result<usize> {
    let identity = Identity::from_pem(std::fs::read(&files.chain)?, std::fs::read(&files.key)?);
    let tls = ClientTlsConfig::new()
        .identity(identity)
        .ca_certificate(Certificate::from_pem(std::fs::read(&files.authority)?))
        .domain_name(NAME);
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{xds_port}"))?.tls_config(tls)?;
    subscribe(endpoint.connect().await?, advertised, Some("1-00000000")).await
}

/// Subscribes as a gateway does that has this version of the snapshot in force; the size of the first push, or how it was
/// refused.
pub(crate) async fn subscribe(
    channel: Channel,
    advertised: SocketAddr,
    version: Option<&str>,
) -> Result<usize> {
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let text = |text: String| Value { kind: Some(value::Kind::StringValue(text)) };
    let version = version.map(|version| ("version", version.to_string()));
    let fields = [("advertise", advertised.to_string())].into_iter().chain(version);
    let fields = fields.map(|(name, value)| (name.to_string(), text(value)));
    let node = Node {
        id: format!("gateway-{advertised}"),
        metadata: Some(Struct { fields: fields.collect() }),
        ..Node::default()
    };
    let request = DeltaDiscoveryRequest {
        node: Some(node),
        resource_names_subscribe: vec!["*".into()],
        type_url: "type.googleapis.com/asp.snapshot.v1.SnapshotPart".into(),
        ..DeltaDiscoveryRequest::default()
    };
    let (requests, receiver) = tokio::sync::mpsc::channel(1);
    requests.send(request).await?;
    let receiver = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut pushes = client.delta_aggregated_resources(receiver).await?.into_inner();
    let push = tokio::time::timeout(wait::CONVERGE, pushes.message()).await.context("silence")??;
    let resources = push.context("the stream ended")?.resources;
    let bytes = |part: &Resource| part.resource.as_ref().map_or(0, |any| any.value.len());
    Ok(resources.iter().map(bytes).sum())
}

/// A gateway with a certificate; the address at which clients reach it in clear.
async fn gateway(directory: &Path, files: &Files, xds_port: u16) -> Result<(Process, SocketAddr)> {
    let (process, ports) = gateway_with(directory, files, xds_port, &[]).await?;
    Ok((process, SocketAddr::from(([127, 0, 0, 1], ports.gateway))))
}

pub(crate) async fn gateway_with(
    directory: &Path,
    files: &Files,
    xds_port: u16,
    environment: &[(&str, &str)],
) -> Result<(Process, Ports)> {
    let state = directory.join("gateway");
    std::fs::create_dir(&state)?;
    let mut command = Command::new(tool::asp()?);
    command
        .args(["serve", "--dev", "--roles", "gateway"])
        .env("ASP_STATE_DIR", &state)
        .env("ASP_PUBLIC_URL", "http://asp.test")
        .env("ASP_XDS_URL", format!("https://127.0.0.1:{xds_port}"))
        .env("ASP_PEER_NAME", NAME)
        .env("ASP_PEER_CERT", &files.chain)
        .env("ASP_PEER_KEY", &files.key)
        .env("ASP_PEER_CA", &files.authority)
        .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_GATEWAY_PORT"].map(|name| (name, "0")))
        .envs(environment.iter().copied());
    let mut process = Process::start("gateway", command)?;
    let ports = stack::ports(&mut process, &state).await?;
    Ok((process, ports))
}

async fn control(directory: &Path, files: &Files) -> Result<(Process, Ports)> {
    control_with(directory, files, &[]).await
}

/// The same with more in its environment.
pub(crate) async fn control_with(
    directory: &Path,
    files: &Files,
    environment: &[(&str, &str)],
) -> Result<(Process, Ports)> {
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
        .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_ADMIN_PORT", "ASP_XDS_PORT"].map(|name| (name, "0")))
        .envs(environment.iter().copied());
    let mut control = Process::start("control", command)?;
    let ports = stack::ports(&mut control, &state).await?;
    let admin = SocketAddr::from(([127, 0, 0, 1], ports.admin));
    wait::until("the admin API answers", wait::START, || async move {
        http1::get(admin, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
    })
    .await
    .with_details(|| control.tail())?;
    Ok((control, ports))
}

/// An Envoy that took the snippet, with this transport socket towards the control plane.
async fn foreign(directory: &Path, xds_port: u16, socket: &str) -> Result<Envoy> {
    let plain = std::fs::read_to_string(tool::root()?.join("envoy/downstream-plain.json"))?;
    foreign_with(directory, xds_port, [socket, plain.trim()], |text| text).await
}

/// The same with a socket towards gateways as well, and a change of the whole.
pub(crate) async fn foreign_with(
    directory: &Path,
    xds_port: u16,
    [control, gateway]: [&str; 2],
    change: impl FnOnce(String) -> String,
) -> Result<Envoy> {
    std::fs::create_dir(directory)?;
    let root = tool::root()?;
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"));
    let text = insertion::insert(&read("tests/fixtures/foreign.yaml")?, &read("envoy/insert.yaml")?)?;
    let template = directory.join("bootstrap.yaml");
    let other = directory.join("other.wasm");
    std::fs::write(&template, change(text))?;
    std::fs::write(&other, wat::parse_str(crate::vectors::OTHER_WASM)?)?;
    let variables = [
        ("OTHER_WASM", other.to_string_lossy().into_owned()),
        ("RECORDER_PORT", "9".to_string()),
        ("ASP_CONTROL_HOST", "127.0.0.1".to_string()),
        ("ASP_CONTROL_SOCKET", control.to_string()),
        ("ASP_GATEWAY_SOCKET", gateway.to_string()),
    ];
    let variables: BTreeMap<String, String> =
        variables.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    let port = Reserved::new()?;
    Envoy::start(envoy::Settings { directory, template, port, xds_port, tls: None, variables }).await
}

fn mutual_socket(files: &Files) -> Result<String> {
    peer_socket("envoy/upstream-mtls.json", files)
}

/// A transport socket of the shipped configuration, for an Envoy with these files.
pub(crate) fn peer_socket(path: &str, files: &Files) -> Result<String> {
    let template = std::fs::read_to_string(tool::root()?.join(path))?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let variables = [
        ("ASP_PEER_NAME", NAME.to_string()),
        ("ASP_TRUST_DOMAIN", "example.org".to_string()),
        ("ASP_PEER_CERT", text(&files.chain)),
        ("ASP_PEER_KEY", text(&files.key)),
        ("ASP_PEER_CA", text(&files.authority)),
    ];
    let variables = variables.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    envoy::render(template.trim(), &variables)
}
