//! Machines that show certificates, through Envoy with mutual TLS on both of its sides: to its clients and to the gateway.
//! Whoever has none, a wrong one, one that nobody registered or one that was taken away, and whoever writes the header of
//! Envoy himself, gets a 401 or no connection, and the service behind the tool is not called.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use asp_e2e::envoy::{self, Envoy};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::port::Reserved;
use asp_e2e::process::Process;
use asp_e2e::stack::{self, Ports};
use asp_e2e::tls_tunnel::TlsTunnel;
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{insertion, tool, wait};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use rcgen::SanType;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::certificate::{Authority, Files};
use crate::clients::{self, MODERN, Place};
use crate::message::{self, modern};
use crate::peers::{NAME, control_with, gateway_with, peer_socket};
use crate::trial::{Shared, trials};

const FORWARDED: &str = "x-forwarded-client-cert";
const CERTIFICATES: &str = "/api/machines/orgs/acme/certificates";
pub(crate) const URI: &str = "spiffe://factory.example/press-8";

const SERVER: &str = "apiVersion: asp/v1\nname: press\ntitle: Press\ndescription: For machines.\nversion: 1.0.0\n\
    protocols: [mcp]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [mtls]}\n\
    primitives: [{ref: press/press.print}, {ref: press/press.count}]\n";
const PRINT: &str = "id: press.print\nname: Print\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: Prints.\n\
    tags: [test]\nmutation: read_only\nprimitiveSchema: {input_schema: {type: object, properties: {}}}\n\
    security: {riskClass: low}\nruntime: {mode: proxy, http: {url: \"http://press.internal/print\"}}\n";

trials! { client_certificates:
    a_machine_calls_with_its_certificate_and_nobody_else_does,
    a_running_call_ends_when_its_certificate_is_revoked,
}

/// Everything beyond one machine: a control plane, a gateway with a door for Envoys, an Envoy with certificates.
pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    platform: Authority,
    factory: Authority,
    control: Process,
    pub(crate) ports: Ports,
    gateway: Process,
    gateway_ports: Ports,
    envoy: Envoy,
    /// What an Envoy shows to its clients.
    edge: Files,
    admin: String,
    service: Service,
}

impl World {
    pub(crate) async fn start(details: &str) -> Result<World> {
        let directory = tempfile::tempdir()?;
        let place = |name: &str| -> Result<std::path::PathBuf> {
            let path = directory.path().join(name);
            std::fs::create_dir(&path)?;
            Ok(path)
        };
        let platform = Authority::new(&place("platform")?)?;
        let factory = Authority::new(&place("factory")?)?;
        let service = Service::start().await?;
        let upstream = format!("press.internal=http://{}", service.address);
        let upstreams = [("ASP_UPSTREAMS", upstream.as_str())];
        let files = platform.process("control/0", NAME)?;
        let (control, ports) = control_with(directory.path(), &files, &upstreams).await?;
        let admin = stack::mint(&directory.path().join("control"), &["--admin", "--user", "root"]).await?;
        let environment = [("ASP_GATEWAY_MTLS_PORT", "0")];
        let files = platform.process("gateway/0", "gateway.test")?;
        let (gateway, gateway_ports) =
            gateway_with(directory.path(), &files, ports.xds, &environment).await?;
        let edge = platform.process("envoy/0", "edge.test")?;
        let clients = directory.path().join("factory/authority.pem");
        let envoy = edge_of(&place("edge")?, ports.xds, &edge, &clients, details).await?;
        let world = World {
            directory,
            platform,
            factory,
            control,
            ports,
            gateway,
            gateway_ports,
            envoy,
            edge,
            admin,
            service,
        };
        world.publish().await?;
        Ok(world)
    }

    async fn publish(&self) -> Result<()> {
        let count = std::fs::read_to_string(tool::root()?.join("primitives/demo/count.yaml"))?;
        let count = count.replacen("id: count", "id: press.count", 1);
        let files = json!([{"path": "press/server.yaml", "text": SERVER}, {"path": "press/print.yaml", "text": PRINT},
            {"path": "press/count.yaml", "text": count}]);
        self.tell("PUT", "/api/registry/servers/press", &json!({ "files": files })).await?;
        let plain = self.at(self.gateway_ports.gateway);
        let envoy = &self.envoy;
        wait::until("gateway and Envoy know the server", wait::START, || async move {
            let healthy = envoy.stat("cluster.gateway.membership_healthy").await.ok()?;
            let answer = http1::send(plain, &print()).await.ok()?;
            (healthy == 1 && answer.status == 401).then_some(())
        })
        .await
        .with_context(|| {
            format!("{}\n{}\n{}", self.control.tail(), self.gateway.tail(), envoy.process.tail())
        })
    }

    /// Sends a change to the admin API, which must take it.
    pub(crate) async fn tell(&self, method: &str, path: &str, body: &Value) -> Result<Response> {
        let request = message::rest(method, path, &self.admin, body);
        let answer = http1::send(self.at(self.ports.admin), &request).await?;
        ensure!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.text());
        Ok(answer)
    }

    /// Registers a certificate for the machine `press`; its id.
    pub(crate) async fn register(&self, by: Value) -> Result<String> {
        let mut body = json!({"machine": "press", "ttlSeconds": 3600});
        body.as_object_mut().unwrap().extend(by.as_object().unwrap().clone());
        let made: Value = self.tell("POST", CERTIFICATES, &body).await?.json()?;
        made["id"].as_str().map(str::to_owned).context("an id")
    }

    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// A certificate of the machines' authority.
    pub(crate) fn machine(&self, name: &str, uri: &str) -> Result<Files> {
        self.factory.sign(name, vec![SanType::URI(uri.try_into()?)])
    }

    /// To Envoy, as a client that shows this certificate.
    async fn client(&self, own: Option<&Files>) -> Result<TlsTunnel> {
        self.tunnel(self.envoy.address, own).await
    }

    async fn tunnel(&self, server: SocketAddr, own: Option<&Files>) -> Result<TlsTunnel> {
        let own = own.map(|files| (files.chain.as_path(), files.key.as_path()));
        TlsTunnel::start(server, &self.edge.authority, own).await
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        self.envoy.process.stop().await?;
        for process in [&mut self.gateway, &mut self.control] {
            ensure!(process.stop().await?.success(), "it ended badly: {}", process.tail());
        }
        let logs = [self.control.log(), self.gateway.log(), self.envoy.process.log()];
        let faults = stack::faults(&logs, &[]);
        ensure!(faults.is_empty(), "errors in the logs:\n{}", faults.join("\n"));
        drop(self.directory);
        Ok(())
    }
}

/// An Envoy that took the snippet, whose clients and gateways it meets by mutual TLS.
async fn edge_of(
    directory: &Path,
    xds_port: u16,
    own: &Files,
    clients: &Path,
    details: &str,
) -> Result<Envoy> {
    let root = tool::root()?;
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"));
    let text = insertion::insert(&read("tests/fixtures/foreign.yaml")?, &read("envoy/insert.yaml")?)?;
    let manager = format!(
        "stat_prefix: foreign\n          forward_client_cert_details: SANITIZE_SET\n          \
         set_current_client_cert_details: {details}\n"
    );
    ensure!(text.contains("stat_prefix: foreign\n"), "the place of the manager's settings");
    let template = directory.join("bootstrap.yaml");
    let other = directory.join("other.wasm");
    std::fs::write(&template, text.replacen("stat_prefix: foreign\n", &manager, 1))?;
    std::fs::write(&other, wat::parse_str(crate::vectors::OTHER_WASM)?)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let files = BTreeMap::from([
        ("ASP_TLS_CERT".to_string(), text(&own.chain)),
        ("ASP_TLS_KEY".to_string(), text(&own.key)),
        ("ASP_CLIENT_CA".to_string(), text(clients)),
    ]);
    let variables = BTreeMap::from([
        ("OTHER_WASM".to_string(), text(&other)),
        ("RECORDER_PORT".to_string(), "9".to_string()),
        ("ASP_CONTROL_HOST".to_string(), "127.0.0.1".to_string()),
        ("ASP_CONTROL_SOCKET".to_string(), peer_socket("envoy/upstream-mtls.json", own)?),
        ("ASP_GATEWAY_SOCKET".to_string(), peer_socket("envoy/gateway-mtls.json", own)?),
        (
            "ASP_TRANSPORT_SOCKET".to_string(),
            envoy::render(read("envoy/downstream-mtls.json")?.trim(), &files)?,
        ),
    ]);
    let port = Reserved::new()?;
    Envoy::start(envoy::Settings { directory, template, port, xds_port, tls: None, variables }).await
}

/// The service behind the tool; it counts its requests.
struct Service {
    address: SocketAddr,
    called: Arc<AtomicUsize>,
}

impl Service {
    async fn start() -> Result<Service> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let called = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&called);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut request = vec![0; 16 << 10];
                    let read = stream.read(&mut request).await.unwrap_or_default();
                    assert!(
                        read > 0 && !String::from_utf8_lossy(&request).to_lowercase().contains(FORWARDED)
                    );
                    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\
                                  content-length: 18\r\n\r\n{\"printed\":\"done\"}";
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        Ok(Service { address, called })
    }

    fn calls(&self) -> usize {
        self.called.load(Ordering::SeqCst)
    }
}

/// A request without any token.
fn request(name: &str, params: Value) -> Request {
    let mut request = modern("", "tools/call", params, &[("mcp-name", name)]);
    request.target = "/press/mcp".into();
    request.headers.retain(|(name, _)| name != "authorization");
    request
}

fn print() -> Request {
    request("press.print", json!({"name": "press.print", "arguments": {}}))
}

fn with(mut request: Request, name: &str, value: &str) -> Request {
    request.headers.push((name.into(), value.as_bytes().to_vec()));
    request
}

fn printed(answer: &Response) -> bool {
    answer.status == 200 && answer.text().contains("done")
}

pub(crate) fn fingerprint(files: &Files) -> Result<String> {
    let pem = std::fs::read_to_string(&files.chain)?;
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    Ok(Sha256::digest(STANDARD.decode(body)?).iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) async fn opens(world: &World, own: &Files) -> Result<()> {
    let client = world.client(Some(own)).await?;
    let last = Mutex::new(String::new());
    wait::until("the certificate opens the server", wait::CONVERGE, || async {
        let answer = http1::send(client.address, &print()).await;
        *last.lock() = format!("{answer:?}");
        printed(&answer.ok()?).then_some(())
    })
    .await
    .with_details(|| format!("{}\n{}\n{}", world.gateway.tail(), world.envoy.process.tail(), last.lock()))
}

async fn refused(client: SocketAddr, request: &Request, reason: &str) -> Result<()> {
    let answer = http1::send(client, request).await?;
    let said = (answer.status, answer.reason());
    ensure!(said == (401, Some(reason.to_owned())), "{said:?}, not {reason}: {}", answer.text());
    Ok(())
}

async fn a_machine_calls_with_its_certificate_and_nobody_else_does(_: &Shared) -> Result<()> {
    // What an ingress gateway of Istio tells, beyond what is needed.
    let world = World::start("{ subject: true, cert: true, chain: true, dns: true, uri: true }").await?;
    let own = world.machine("press-7", "spiffe://factory.example/press-7")?;
    let first = world.register(json!({"fingerprint": fingerprint(&own)?})).await?;
    opens(&world, &own).await?;
    let named = world.machine("press-8", URI)?;
    world.register(json!({"uri": URI})).await?;
    opens(&world, &named).await?;
    official(&world, &own).await?;

    let calls = world.service.calls();
    strangers(&world, &own).await?;
    forged(&world, &own).await?;

    // Changed for the next without a gap, then taken away.
    let next = world.machine("press-7b", "spiffe://factory.example/press-7")?;
    world.register(json!({"fingerprint": fingerprint(&next)?})).await?;
    opens(&world, &next).await?;
    opens(&world, &own).await?;
    world.tell("DELETE", &format!("{CERTIFICATES}/{first}"), &Value::Null).await?;
    let client = world.client(Some(&own)).await?;
    crate::policy::becomes(client.address, print(), 401, Some("token_invalid")).await?;
    opens(&world, &next).await?;
    ensure!(world.service.calls() >= calls + 3, "those that may call do");
    world.stop().await
}

/// Who has no certificate that counts here.
async fn strangers(world: &World, own: &Files) -> Result<()> {
    let calls = world.service.calls();
    let nobody = world.client(None).await?;
    refused(nobody.address, &print(), "token_missing").await?;
    refused(nobody.address, &with(print(), "authorization", "Bearer x"), "token_invalid").await?;
    let unregistered = world.machine("arm", "spiffe://factory.example/arm")?;
    let client = world.client(Some(&unregistered)).await?;
    refused(client.address, &print(), "token_invalid").await?;
    // Names that would read as others if they were cut where the header's own marks are.
    for (number, uri) in
        ["{URI};DNS=a", "{URI};URI=", "{URI};By=a", "{URI},Hash={hash}", "{URI};URI=x", "x;Hash={hash}"]
            .iter()
            .enumerate()
    {
        let uri = uri.replace("{URI}", URI).replace("{hash}", &fingerprint(own)?);
        let client = world.client(Some(&world.machine(&format!("odd-{number}"), &uri)?)).await?;
        let answer = http1::send(client.address, &print()).await?;
        ensure!(answer.status == 401, "{uri}: {} {}", answer.status, answer.text());
    }
    // Another authority's certificate with a registered URI ends at Envoy.
    let elsewhere = world.directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere)?;
    let foreign = Authority::new(&elsewhere)?.sign("press-8", vec![SanType::URI(URI.try_into()?)])?;
    let client = world.client(Some(&foreign)).await?;
    ensure!(http1::send(client.address, &print()).await.is_err(), "no answer: Envoy ends the handshake");
    ensure!(world.service.calls() == calls, "the service was called");
    Ok(())
}

/// Who writes himself what Envoy writes of certificates.
async fn forged(world: &World, own: &Files) -> Result<()> {
    let calls = world.service.calls();
    let forged = with(print(), FORWARDED, &format!("Hash={};URI={URI}", fingerprint(own)?));
    refused(world.client(None).await?.address, &forged, "token_missing").await?;
    let unregistered = world.machine("arm-2", "spiffe://factory.example/arm")?;
    refused(world.client(Some(&unregistered)).await?.address, &forged, "token_invalid").await?;
    // Straight at the gateway: in clear, and by TLS without the role of an Envoy.
    refused(world.at(world.gateway_ports.gateway), &forged, "token_missing").await?;
    let door = world.at(world.gateway_ports.gateway_mtls);
    let processes =
        ["runtime/0", "gateway/1", "control/1"].map(|holder| world.platform.process(holder, "x.test"));
    for files in processes.into_iter().chain([world.machine("arm-3", "spiffe://example.org/asp/envoy/9")]) {
        let client = world.tunnel(door, Some(&files?)).await?;
        ensure!(http1::send(client.address, &forged).await.is_err(), "it is no Envoy");
    }
    ensure!(
        http1::send(world.tunnel(door, None).await?.address, &forged).await.is_err(),
        "it proves nothing"
    );
    ensure!(http1::send(door, &forged).await.is_err(), "it speaks no TLS");
    ensure!(world.service.calls() == calls, "the service was called");
    // The control: the same header of an Envoy of the platform.
    let envoy = world.tunnel(door, Some(&world.edge)).await?;
    ensure!(printed(&http1::send(envoy.address, &forged).await?), "an Envoy is believed");
    Ok(())
}

/// An official client that shows its certificate.
async fn official(world: &World, own: &Files) -> Result<()> {
    let url = format!("https://127.0.0.1:{}/press/mcp", world.envoy.address.port());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (authority, chain, key) = (text(&world.edge.authority), text(&own.chain), text(&own.key));
    let environment = [
        ("SSL_CERT_FILE", authority.as_str()),
        ("ASP_CLIENT_CERT", chain.as_str()),
        ("ASP_CLIENT_KEY", key.as_str()),
    ];
    let place = Place { url: &url, token: "", tools: &["press.print"], environment: &environment };
    for mode in ["legacy", MODERN] {
        let answer = clients::python_calls(&place, mode, "press.print", &json!({})).await?;
        ensure!(answer["result"].to_string().contains("done"), "{mode}: {answer}");
    }
    Ok(())
}

async fn a_running_call_ends_when_its_certificate_is_revoked(_: &Shared) -> Result<()> {
    let world = World::start("{ uri: true }").await?;
    let (lost, kept) = (world.machine("press-8", URI)?, world.machine("press-8b", URI)?);
    world.register(json!({"uri": URI})).await?;
    opens(&world, &lost).await?;
    // Ten seconds of progress, then a result: who is not ended in time gets that.
    let params = json!({"name": "press.count", "arguments": {"to": 100, "delayMs": 100}, "_meta": {}});
    let mut count = request("press.count", params);
    let body = String::from_utf8(count.body)?;
    count.body = body.replace(r#""_meta":{"#, r#""_meta":{"progressToken":1,"#).into_bytes();
    let [dead, alive] = [world.client(Some(&lost)).await?, world.client(Some(&kept)).await?];
    let ending = http1::open(dead.address, &count, "notifications/progress").await?;
    let lasting = http1::open(alive.address, &count, "notifications/progress").await?;
    let one = json!({"type": "token_hash", "org": "acme", "id": fingerprint(&lost)?, "reason": "lost"});
    world.tell("POST", "/api/revocations", &one).await?;
    let ended = ending.finish().await?;
    ensure!(ended.reason().as_deref() == Some("token_revoked"), "{}", ended.text());
    refused(dead.address, &print(), "token_revoked").await?;
    let other = lasting.finish().await?.json()?;
    ensure!(
        other["result"]["structuredContent"] == json!({"counted": 100}),
        "that certificate alone: {other}"
    );
    world.tell("POST", "/api/revocations", &json!({"type": "user", "org": "acme", "id": "press"})).await?;
    crate::policy::becomes(alive.address, print(), 401, Some("token_revoked")).await?;
    world.stop().await
}
