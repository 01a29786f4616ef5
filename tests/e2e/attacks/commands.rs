//! Commands of `asp` that send credentials: through no proxy where the platform is on this machine, to nobody that a
//! redirect names, and beyond this machine never in clear.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use asp_e2e::{tool, wait};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use super::service::{Reply, Service};
use crate::trial::{Shared, trials};

/// The variables that name proxies.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
const SHOW: &[&str] = &["policy", "acme"];

/// An admin's shell: its home, the admin's token and a proxy of the company.
struct Shell<'a> {
    home: &'a TempDir,
    token: Option<&'a str>,
    proxy: Option<&'a Service>,
}

impl Shell<'_> {
    /// Runs `asp` for the control plane at a URL; whether it succeeded, and what it wrote.
    async fn asp(&self, url: &str, arguments: &[&str]) -> Result<(bool, String)> {
        let mut command = Command::new(tool::asp()?);
        command.args(arguments).env("ASP_ADMIN_URL", url).stdin(Stdio::null()).kill_on_drop(true);
        command.env("HOME", self.home.path()).env("XDG_CONFIG_HOME", self.home.path());
        for name in ["ASP_ADMIN_TOKEN", "ASP_TOKEN", "NO_PROXY", "no_proxy"].iter().chain(&PROXIES) {
            command.env_remove(name);
        }
        if let Some(token) = self.token {
            command.env("ASP_ADMIN_TOKEN", token).env("ASP_TOKEN", token);
        }
        if let Some(proxy) = self.proxy {
            command.envs(PROXIES.map(|name| (name, proxy.origin())));
        }
        let output = timeout(wait::START, command.output()).await.context("asp hangs")??;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }
}

trials! { attacks: asp_shows_its_tokens_to_no_proxy_and_after_no_redirect }

async fn asp_shows_its_tokens_to_no_proxy_and_after_no_redirect(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    let home = tempfile::tempdir()?;
    let token = world.stack.token(&["--admin", "--user", "root"]).await?;
    let proxy = Service::start(|_| Reply::Refuses).await?;
    let shell = Shell { home: &home, token: Some(&token), proxy: Some(&proxy) };
    let (shown, said) = shell.asp(&format!("http://{}", world.stack.admin()), SHOW).await?;
    ensure!(shown, "{said}");
    ensure!(proxy.heard().is_empty(), "a proxy stands before this machine: {:?}", proxy.heard());
    // The proxy is one: what is beyond this machine is asked for through it, and the token passes in TLS alone.
    let (shown, said) = shell.asp("https://asp.example", SHOW).await?;
    let heard = proxy.heard();
    let tunnel = heard.first().with_context(|| format!("the proxy is not asked: {said}"))?;
    ensure!(!shown && tunnel.method == "CONNECT" && tunnel.target == "asp.example:443", "{heard:?} {said}");
    ensure!(!format!("{heard:?}").contains(&token), "the proxy has the token");

    let before = heard.len();
    let edge = ["mcp", "--server", "crm", "--url", "http://asp.example"];
    for arguments in [SHOW, &edge] {
        let (shown, said) = shell.asp("http://asp.example", arguments).await?;
        ensure!(!shown && said.contains("credentials are not sent in clear"), "{arguments:?}: {said}");
    }
    ensure!(proxy.heard().len() == before, "the token left in clear: {:?}", proxy.heard());
    redirected(&home, &token).await
}

/// An admin API, and a token endpoint, that send whoever asks elsewhere.
async fn redirected(home: &TempDir, token: &str) -> Result<()> {
    let elsewhere = Service::start(|_| Reply::Says(json!({"access_token": "t", "expires_in": 60}))).await?;
    let location = format!("{}/taken", elsewhere.origin());
    let first = Service::start(move |_| Reply::Refers(location.clone())).await?;
    let (shown, said) = Shell { home, token: Some(token), proxy: None }.asp(&first.origin(), SHOW).await?;
    let heard = first.heard();
    let asked = heard.first().with_context(|| format!("the admin API is not asked: {said}"))?;
    ensure!(!shown && asked.authorization.contains(token), "it is asked with the token: {heard:?} {said}");
    ensure!(elsewhere.heard().is_empty(), "the token went on: {:?}", elsewhere.heard());

    let (platform, tokens) = (first.origin(), format!("{}/token", first.origin()));
    let kept = json!({
        "client_id": "cli", "token_endpoint": tokens, "access_token": "old", "refresh_token": "refreshes",
        "expires_at": 1,
    });
    let login = json!({ platform: kept });
    std::fs::create_dir(home.path().join("asp"))?;
    std::fs::write(home.path().join("asp/logins.json"), login.to_string())?;
    let (shown, said) = Shell { home, token: None, proxy: None }.asp(&first.origin(), SHOW).await?;
    let heard = first.heard();
    let asked = heard.last().context("the token endpoint is asked")?;
    ensure!(!shown && asked.target == "/token" && asked.body.contains("refreshes"), "{heard:?} {said}");
    ensure!(elsewhere.heard().is_empty(), "the refresh token went on: {:?}", elsewhere.heard());
    Ok(())
}
