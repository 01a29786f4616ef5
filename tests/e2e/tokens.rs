//! The tokens that plugins of each language are given, judged by an independent library with the keys that the
//! platform publishes through Envoy (I-8).

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{http1, tool};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::plugins::{Client, MODES};
use crate::trial::{Shared, trials};

const SERVER: &str = "bearer";
const SERVICE: &str = "https://api.example.com";

trials! { plugins:
    each_language_is_given_a_token_for_its_services_only,
}

async fn each_language_is_given_a_token_for_its_services_only(_: &Shared) -> Result<()> {
    let primitives = tool::root()?.join("tests/fixtures/tokens");
    let stack = Stack::start(Options { primitives, plugins: true, ..Options::repository()? }).await?;
    let (mode, protocol) = MODES[1];
    let client = Client { stack: &stack, mode, protocol };
    for language in ["python", "node", "java"] {
        token(&client, &format!("show_{language}")).await.with_context(|| language.to_owned())?;
    }
    stack.stop(&[]).await
}

async fn token(client: &Client<'_>, plugin: &str) -> Result<()> {
    let answer = client.call(SERVER, plugin, &json!({}), &json!({})).await?;
    let result = answer.result.with_context(|| format!("no result: {:?}", answer.error))?;
    let shown = &result["structuredContent"];
    ensure!(shown["printed"] == "***", "the token prints");
    let token = shown["token"].as_str().context("there is no token")?;
    let issuer = format!("http://{}", client.stack.edge());
    let judged = judge(client.stack.edge(), token, (SERVICE, &issuer)).await?;
    let claims = &judged["claims"];
    ensure!(judged["header"]["typ"] == "at+jwt", "{judged}");
    ensure!(claims["sub"] == "alice" && claims["org"] == "acme", "{claims}");
    ensure!(claims["act"] == json!({"sub": format!("plugin:{plugin}@1.0.0")}), "{claims}");
    ensure!(claims["aud"] == json!([SERVICE]) && claims["scope"] == "compliance:read", "{claims}");
    let life = claims["exp"].as_u64().zip(claims["iat"].as_u64()).map(|(exp, iat)| exp - iat);
    ensure!(life.is_some_and(|life| life <= 60), "it outlives the call: {claims}");
    refused(client.stack, token).await
}

/// What PyJWT says of a token, with the key set that is served at `keys`.
pub(crate) async fn judge(keys: SocketAddr, token: &str, expected: (&str, &str)) -> Result<Value> {
    judge_by((keys, "/.well-known/jwks.json"), token, expected).await
}

/// The same, with the key set at a path.
pub(crate) async fn judge_by(
    (at, path): (SocketAddr, &str),
    token: &str,
    (audience, issuer): (&str, &str),
) -> Result<Value> {
    let keys = http1::get(at, path, &[]).await?;
    ensure!(keys.status == 200, "the key set: {}", keys.status);
    let mut command = Command::new(tool::python()?);
    command.arg(tool::root()?.join("tests/clients/python/verify.py"));
    command.args([token, audience, issuer]).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("the standard input is piped")?;
    stdin.write_all(&keys.body).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("read what verify.py printed")
}

/// It opens nothing of the platform's own, at the edge and behind it.
async fn refused(stack: &Stack, token: &str) -> Result<()> {
    let bearer = format!("Bearer {token}");
    let path = format!("/{SERVER}/mcp");
    for address in [stack.edge(), stack.gateway()] {
        let answer = http1::get(address, &path, &[("authorization", &bearer)]).await?;
        ensure!(answer.status == 401, "{address} answers {}", answer.status);
    }
    Ok(())
}
