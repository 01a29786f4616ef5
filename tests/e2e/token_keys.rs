//! The keys of several gateways over one state directory: each signs with its own, and a service verifies the tokens of all
//! of them by the key set of any, also those of a gateway that was killed.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::model::Model;
use asp_e2e::process::Process;
use asp_e2e::stack::{self, Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{http1, tool, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::message;
use crate::tokens::judge;
use crate::trial::{Shared, trials};

/// The origin of the service, as the spec writes it.
const SERVICE: &str = "http://service.internal";

trials! { token_keys:
    any_gateways_key_set_verifies_the_tokens_of_all_and_of_one_that_was_killed,
}

async fn any_gateways_key_set_verifies_the_tokens_of_all_and_of_one_that_was_killed(
    _: &Shared,
) -> Result<()> {
    let service = Model::start("hello").await?;
    let origin = service.url();
    let origin = origin.strip_suffix("/v1").context("the model's path")?;
    let mut stack = Stack::start(Options {
        primitives: tool::root()?.join("tests/fixtures/fleet"),
        environment: vec![("ASP_UPSTREAMS", format!("service.internal={origin}"))],
        ..Options::repository()?
    })
    .await?;
    let issuer = format!("http://{}", stack.edge());
    let client = stack.alice().await?;
    let first = stack.gateway();
    let (mut other, second) = beside(&stack, &issuer).await?;

    let mut tokens = Vec::new();
    for gateway in [first, second] {
        tokens.push(token(&service, gateway, &client).await?);
    }
    let mut kids = Vec::new();
    for token in &tokens {
        for gateway in [first, second, stack.edge(), stack.admin()] {
            let judged =
                judge(gateway, token, (SERVICE, &issuer)).await.with_context(|| gateway.to_string())?;
            ensure!(judged["claims"]["sub"] == "alice", "{judged}");
            kids.push(judged["header"]["kid"].clone());
        }
    }
    ensure!(kids[0] != kids[4], "each gateway has a key of its own");
    ensure!(kids[..4].iter().all(|kid| *kid == kids[0]), "{kids:?}");
    for file in std::fs::read_dir(stack.state.path())? {
        let name = file?.file_name();
        ensure!(!name.to_string_lossy().contains("token-key"), "a private key is on the disk");
    }

    // Its last token, and then it is gone.
    let last = token(&service, second, &client).await?;
    other.signal(Signal::KILL)?;
    other.wait(wait::START).await?;
    for gateway in [first, stack.edge()] {
        judge(gateway, &last, (SERVICE, &issuer)).await?;
    }
    // The only one that knew both keys is gone too, and the next one has a key of its own.
    let last = token(&service, first, &client).await?;
    stack.restart_asp(Signal::KILL).await?;
    let next = token(&service, stack.gateway(), &client).await?;
    for token in tokens.iter().chain([&last, &next]) {
        judge(stack.gateway(), token, (SERVICE, &issuer)).await?;
    }
    let kid = judge(stack.gateway(), &next, (SERVICE, &issuer)).await?["header"]["kid"].clone();
    ensure!(!kids.contains(&kid), "no key is used by two runs");
    stack.stop(&[]).await
}

/// Another gateway over the state of a stack.
async fn beside(stack: &Stack, public_url: &str) -> Result<(Process, SocketAddr)> {
    let state: &Path = stack.state.path();
    std::fs::remove_file(state.join("ports.json"))?;
    let mut command = Command::new(tool::asp()?);
    command
        .args(["serve", "--dev", "--roles", "gateway"])
        .env("ASP_STATE_DIR", state)
        .env("ASP_PUBLIC_URL", public_url)
        .env("ASP_XDS_URL", format!("http://127.0.0.1:{}", stack.ports.xds))
        .envs(["ASP_PORT", "ASP_ENVOY_ADMIN_PORT", "ASP_GATEWAY_PORT"].map(|name| (name, "0")));
    let mut process = Process::start("gateway", command)?;
    let ports = stack::ports(&mut process, state).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], ports.gateway));
    let ready = wait::until("the second gateway is ready", wait::START, || async move {
        http1::get(address, "/readyz", &[]).await.ok().filter(|answer| answer.status == 200)
    });
    ready.await.with_details(|| process.tail())?;
    Ok((process, address))
}

/// The token that a gateway shows to the service for one call.
async fn token(service: &Model, gateway: SocketAddr, client: &str) -> Result<String> {
    let mut request = message::modern(
        client,
        "tools/call",
        json!({"name": "ask", "arguments": {}}),
        &[("mcp-name", "ask")],
    );
    request.target = "/fleet/mcp".into();
    let answer: Value = http1::send(gateway, &request).await?.json()?;
    ensure!(answer["result"]["isError"] != json!(true), "{answer}");
    let asked = service.take();
    let shown = asked.first().with_context(|| format!("the service was not asked: {answer}"))?;
    let token = shown.authorization.strip_prefix("Bearer ").context("the platform shows a token")?;
    Ok(token.to_owned())
}
