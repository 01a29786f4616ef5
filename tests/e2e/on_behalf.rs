//! On whose behalf a call goes to the service behind it: services that take the platform's token alone, one behind token
//! exchange at a real Keycloak, and an upstream and an API that want a key of the operator's, which plugins never have (I-8).

mod keys;
mod lent;
mod linked;
pub(crate) mod realm;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use asp_e2e::keycloak::Keycloak;
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{http1, tool, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use self::keys::an_upstream_and_an_api_that_want_a_key_never_show_it;
use self::lent::plugins_ask_a_service_that_wants_a_key_and_never_have_it;
use self::linked::accounts_are_linked_renewed_once_and_removed_everywhere;
use crate::plugins::{Client, MODES};
use crate::trial::{Shared, trials};

const LANGUAGES: [&str; 3] = ["python", "node", "java"];

trials! { on_behalf:
    services_in_three_languages_take_the_platforms_token_alone,
    a_callers_token_is_exchanged_at_its_issuer,
    accounts_are_linked_renewed_once_and_removed_everywhere,
    an_upstream_and_an_api_that_want_a_key_never_show_it,
    // Only root can mount names for a runtime: in a user namespace it would not know who its callers are.
    plugins_ask_a_service_that_wants_a_key_and_never_have_it if rustix::process::geteuid().is_root(),
}

/// A guarded service, and where it reads what to accept.
struct Guarded {
    process: Process,
    port: u64,
    config: PathBuf,
}

impl Guarded {
    async fn start(language: &str, dir: &TempDir) -> Result<Guarded> {
        let config = dir.path().join(format!("{language}.json"));
        let root = tool::root()?;
        let mut command = match language {
            "python" => {
                let mut command = Command::new(tool::python()?);
                command.arg("-B").arg(root.join("tests/services/guarded.py"));
                command
            }
            "node" => {
                let mut command = Command::new(tool::node()?);
                let program = tool::clients()?.join("node-v2/guarded.mjs");
                command.arg("--preserve-symlinks-main").arg(program);
                command
            }
            _ => {
                let mut command = Command::new("java");
                command.arg("-cp").arg(tool::clients()?.join("java/nimbus-jose-jwt.jar"));
                command.arg(root.join("tests/services/Guarded.java"));
                command
            }
        };
        command.arg(&config);
        let process = Process::start(language, command)?;
        let port = wait::until("the service listens", wait::START, || async {
            let lines = process.log().lines();
            lines.iter().find_map(|line| serde_json::from_str::<Value>(line).ok()?["port"].as_u64())
        });
        let port = port.await.with_details(|| process.tail())?;
        Ok(Guarded { process, port, config })
    }

    /// From now on it takes tokens of this issuer.
    fn trusts(&self, config: &Value) -> Result<()> {
        Ok(std::fs::write(&self.config, config.to_string())?)
    }

    /// What it answers to whoever shows `token` by himself.
    async fn shown(&self, token: &str) -> Result<u16> {
        let address = format!("127.0.0.1:{}", self.port).parse()?;
        let bearer = format!("Bearer {token}");
        Ok(http1::post(address, "/who", &[("authorization", &bearer)], "{}").await?.status)
    }
}

async fn services_in_three_languages_take_the_platforms_token_alone(_: &Shared) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut services = Vec::new();
    for language in LANGUAGES {
        services.push(Guarded::start(language, &dir).await?);
    }
    let upstreams = LANGUAGES.iter().zip(&services);
    let upstreams: Vec<String> = upstreams
        .map(|(language, service)| format!("{language}.internal=http://127.0.0.1:{}", service.port))
        .collect();
    let stack = Stack::start(Options {
        primitives: tool::root()?.join("tests/fixtures/guarded"),
        environment: vec![("ASP_UPSTREAMS", upstreams.join(","))],
        ..Options::repository()?
    })
    .await?;
    let platform = format!("http://{}", stack.edge());
    let own = stack.token(&["--org", "acme", "--user", "alice"]).await?;
    for (language, service) in LANGUAGES.iter().zip(&services) {
        let keys = format!("{platform}/.well-known/jwks.json");
        let audience = format!("http://{language}.internal");
        service.trusts(&json!({ "keys": keys, "issuer": platform, "audience": audience }))?;
    }
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        for language in LANGUAGES {
            let answer = client.call("guarded", language, &json!({}), &json!({})).await?;
            let result = answer.result.with_context(|| format!("{language}: {:?}", answer.error))?;
            let said = &result["structuredContent"];
            ensure!(said["sub"] == "alice" && said["org"] == "acme", "{mode} {language}: {result}");
            ensure!(said["caller_issuer"] == "dev", "{mode} {language}: {result}");
        }
        // The same service, whose spec names nothing.
        let answer = client.call("guarded", "bare", &json!({}), &json!({})).await?;
        let said = answer.result.map(|result| result.to_string()).unwrap_or_default();
        ensure!(said.contains("does not accept calls of this platform"), "{mode}: {said}");
    }
    for (language, service) in LANGUAGES.iter().zip(&services) {
        let status = service.shown(&own).await?;
        ensure!(status == 401, "{language} takes the client's own token: {status}");
        only_expected(service)?;
    }
    drop(services);
    stack.stop(&[]).await
}

/// Of what a service is sent nothing but this: no cookie, no session, no header of the platform's own.
fn only_expected(service: &Guarded) -> Result<()> {
    let expected = [
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "traceparent",
        "user-agent",
        "x-deadline-ms",
    ];
    let mut heard = 0;
    for line in service.process.log().lines() {
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(names) = line["seen"].as_array() else { continue };
        heard += 1;
        let more: Vec<_> = names.iter().filter(|name| !expected.iter().any(|known| *name == known)).collect();
        ensure!(more.is_empty(), "the service is sent {more:?}");
    }
    ensure!(heard > 0, "the service heard nothing");
    Ok(())
}

/// A stack that asks the issuer by the gateway's own secret, and whose operator lists the service.
async fn exchanging(keycloak: &Keycloak, service: &Guarded, dir: &Path) -> Result<Stack> {
    let secret = dir.join("secret");
    std::fs::write(&secret, realm::GATEWAY_SECRET)?;
    let credentials = dir.join("credentials.json");
    let basic = json!({ "user": "gateway", "passwordFile": secret });
    std::fs::write(
        &credentials,
        json!({ "kc": { "origin": keycloak.origin(), "basic": basic } }).to_string(),
    )?;
    let mut options = Options::repository()?;
    options.environment = vec![
        ("ASP_ISSUER_ORIGINS", keycloak.origin()),
        ("ASP_CREDENTIALS", credentials.display().to_string()),
        ("ASP_UPSTREAMS", format!("crm.internal=http://127.0.0.1:{}", service.port)),
    ];
    Stack::start(options).await
}

async fn a_callers_token_is_exchanged_at_its_issuer(shared: &Shared) -> Result<()> {
    let keycloak = shared.keycloak().await?;
    let dir = tempfile::tempdir()?;
    let service = Guarded::start("python", &dir).await?;
    service.trusts(&json!({
        "keys": format!("{}/protocol/openid-connect/certs", keycloak.issuer()), "issuer": keycloak.issuer(),
        "audience": "crm", "algorithms": ["RS256"], "typ": ["JWT"],
    }))?;
    let stack = exchanging(&keycloak, &service, dir.path()).await?;
    let admin = stack.token(&["--admin", "--user", "ops"]).await?;
    let put = async |path: &str, body: Value| -> Result<()> {
        let request = http1::Request {
            method: "PUT".into(),
            target: path.into(),
            headers: vec![
                ("authorization".into(), format!("Bearer {admin}").into_bytes()),
                ("content-type".into(), b"application/json".to_vec()),
            ],
            body: body.to_string().into_bytes(),
        };
        let answer = http1::send(stack.admin(), &request).await?;
        ensure!(answer.status == 200, "PUT {path}: {} {}", answer.status, answer.text());
        Ok(())
    };
    put("/api/issuers/clients/kc", realm::issuer(&keycloak, service.port)).await?;
    put("/api/registry/servers/crm", realm::server()).await?;
    put("/api/registry/servers/weather", realm::other_team()).await?;
    let token =
        keycloak.token("grant_type=password&client_id=direct&username=alice&password=wonderland").await?;
    let ready = wait::until("the server takes the issuer's tokens", wait::CONVERGE, || async {
        let answer = call(&stack, &token, ("crm", "who")).await.ok()?;
        (answer["result"]["isError"] != json!(true)).then_some(answer)
    });
    let answer = ready.await.with_details(|| stack.asp.tail())?;
    // The issuer says of the exchanged token who it is for; the caller's own opens nothing there.
    ensure!(answer["result"]["structuredContent"]["preferred_username"] == "alice", "{answer}");
    ensure!(service.shown(&token).await? == 401, "the service takes the client's own token");
    // A service that the issuer gives nobody tokens for, and one whose tokens the operator lets go elsewhere only.
    for (tool, why) in
        [("elsewhere", "your issuer refused a token"), ("stolen", "does not allow tokens of your issuer")]
    {
        let refused = call(&stack, &token, ("crm", tool)).await?;
        let said = refused["result"]["content"][0]["text"].as_str().unwrap_or_default();
        ensure!(said.contains(why), "{refused}");
    }
    // Another team's spec, which would be the caller at the same service.
    wait::until("the other team's tool gets no token for the service", wait::CONVERGE, || async {
        let refused = call(&stack, &token, ("weather", "forecast")).await.ok()?;
        let said = refused["result"]["content"][0]["text"].as_str().unwrap_or_default();
        said.contains("does not allow this primitive a token of your issuer").then_some(())
    })
    .await?;
    drop(service);
    stack.stop(&[]).await
}

/// One call of the next era at the edge, whose answer is JSON.
async fn call(stack: &Stack, token: &str, tool: (&str, &str)) -> Result<Value> {
    call_at(stack.edge(), token, tool).await
}

/// The same at this address.
async fn call_at(address: SocketAddr, token: &str, (server, name): (&str, &str)) -> Result<Value> {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", name),
    ];
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "e2e", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": name, "arguments": {}, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let answer = http1::post(address, &format!("/{server}/mcp"), &headers, &body.to_string()).await?;
    answer.json()
}
