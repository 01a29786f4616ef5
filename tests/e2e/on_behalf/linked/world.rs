//! Two gateways on PostgreSQL and Redis, a Keycloak that is the company's issuer and the provider, a browser, and services in three
//! languages behind linked accounts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::chromium::Chromium;
use asp_e2e::cluster::Cluster;
use asp_e2e::keycloak::{Keycloak, REALM};
use asp_e2e::process::Process;
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{http1, message, tool, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::super::{Guarded, LANGUAGES, call_at};
use super::provider::{self, HUB, HUB_CLIENT, HUB_SECRET, PASSWORD};
use crate::a2a_clients::python_program;
use crate::trial::Shared;

/// Hang guard of one client program.
const RUN: Duration = Duration::from_secs(120);

pub(super) struct World {
    pub(super) postgres: Postgres,
    pub(super) redis: Redis,
    pub(super) keycloak: Arc<Keycloak>,
    pub(super) browser: Chromium,
    pub(super) services: Vec<Guarded>,
    pub(super) cluster: Cluster,
    pub(super) edge: String,
    /// Token of alice for the server.
    pub(super) token: String,
    /// Spans that the gateways send.
    pub(super) spans: PathBuf,
    /// Between the gateways and the provider's token endpoint.
    tokens: Process,
    admin: String,
    _directory: TempDir,
}

impl World {
    pub(super) async fn start(shared: &Shared) -> Result<World> {
        let (postgres, redis, keycloak, browser) =
            tokio::try_join!(Postgres::start(), Redis::start(), shared.keycloak(), Chromium::start())?;
        let directory = tempfile::tempdir()?;
        let services = start_services(&keycloak, &directory).await?;
        let spans = directory.path().join("spans");
        let (tokens, origin) = start_tokens(&keycloak, &spans).await?;
        let key = directory.path().join("vault-key");
        let mut made = Command::new(tool::asp()?);
        made.args(["vault", "rotate", "--file"]).arg(&key).kill_on_drop(true);
        let made = made.output().await?;
        ensure!(made.status.success(), "asp vault rotate: {}", String::from_utf8_lossy(&made.stderr));
        let upstreams = LANGUAGES.iter().zip(&services);
        let upstreams = upstreams
            .map(|(language, service)| format!("{language}.internal=http://127.0.0.1:{}", service.port));
        let environment = vec![
            ("ASP_DATABASE_URL", postgres.url()),
            ("ASP_REDIS_URL", redis.url()),
            ("ASP_VAULT_KMS", format!("local:{}", key.display())),
            ("ASP_ISSUER_ORIGINS", format!("{},{origin}", keycloak.origin())),
            ("ASP_UPSTREAMS", upstreams.collect::<Vec<_>>().join(",")),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", origin.clone()),
        ];
        let cluster = Cluster::start_in(environment, 2).await?;
        let edge = format!("http://{}", cluster.envoy.address);
        keycloak.ask("POST", "/admin/realms", Some(&provider::hub(&edge))).await?;
        let clients = format!("/admin/realms/{REALM}/clients");
        keycloak.ask("POST", &clients, Some(&provider::login_client(&edge))).await?;
        let ports: Vec<u64> = services.iter().map(|service| service.port).collect();
        cluster.put("/api/issuers/clients/kc", &provider::issuer(&keycloak)).await?;
        let hub = provider::provider(&keycloak, &origin, &ports);
        cluster.put("/api/link-providers/hub", &hub).await?;
        cluster.put("/api/registry/servers/crm", &provider::server()).await?;
        let form = format!("grant_type=password&client_id=direct&username=alice&password={PASSWORD}");
        let token = keycloak.token(&form).await?;
        let admin = cluster.token(&["--admin", "--user", "ops"]).await?;
        let world = World {
            postgres,
            redis,
            keycloak,
            browser,
            services,
            cluster,
            edge,
            token,
            spans,
            tokens,
            admin,
            _directory: directory,
        };
        world.asks_for_a_link().await?;
        Ok(world)
    }

    /// Waits until the edge and each gateway answer a call by the address of the linking page.
    pub(super) async fn asks_for_a_link(&self) -> Result<()> {
        for address in self.addresses() {
            let asked = wait::until("a call is answered by the linking page", wait::CONVERGE, || async {
                let answer = call_at(address, &self.token, ("crm", "who_python")).await.ok()?;
                self.page_in(&answer.to_string())
            });
            asked.await.with_details(|| self.cluster.gateways[0].process.tail())?;
        }
        Ok(())
    }

    /// Envoy and the gateways.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let mut addresses = self.cluster.addresses();
        addresses.push(self.cluster.envoy.address);
        addresses
    }

    /// Asks the admin API.
    pub(super) async fn admin(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let api = SocketAddr::from(([127, 0, 0, 1], self.cluster.control_ports.admin));
        let answer = http1::send(api, &message::rest(method, path, &self.admin, body)).await?;
        ensure!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.text());
        Ok(answer.json().unwrap_or(Value::Null))
    }

    /// The official Python SDK of MCP, which calls a tool and prints the page that it is sent to.
    pub(super) fn mcp(&self, mode: &str, tool_name: &str) -> Result<Command> {
        let mut command = Command::new(tool::python()?);
        command.arg(tool::root()?.join("tests/clients/python/interactive.py"));
        command.arg(format!("{}/crm/mcp", self.edge));
        command.args([mode, tool_name, "{}", r#"{"visits": "told"}"#]).env("ASP_TOKEN", &self.token);
        Ok(command)
    }

    /// The official Python SDK of A2A, which prints its task when it is answered, and when it has ended.
    pub(super) fn a2a(&self, skill: &str) -> Result<Command> {
        let mut command = python_program("a2a-python", "linked.py")?;
        command.args([self.edge.as_str(), "crm", skill]).env("ASP_TOKEN", &self.token);
        Ok(command)
    }

    /// Runs a client, links the account at the page that it prints, and returns what it prints last. `realms` are those where
    /// the browser is not signed in.
    pub(super) async fn link(&self, client: Command, realms: &[&str]) -> Result<Value> {
        let mut client = Process::start("client", client)?;
        let page = wait::until("the client is sent to a page", wait::START, || async {
            client.output().lines().iter().find_map(|line| self.page_in(line))
        });
        let page = page.await.with_details(|| client.tail())?;
        self.browser.open(&page).await?;
        self.browser.click("form button").await?;
        for realm in realms {
            let user = if *realm == HUB { "alice-at-hub" } else { "alice" };
            if !self.is_asked_who(&self.keycloak.issuer_of(realm)).await? {
                break;
            }
            self.browser.fill("#username", user).await?;
            self.browser.fill("#password", PASSWORD).await?;
            self.browser.click("#kc-login").await?;
        }
        wait::until("the account is linked", wait::CONVERGE, || async {
            self.is_linked().await.then_some(())
        })
        .await?;
        let status = client.wait(RUN).await?;
        ensure!(status.success(), "{}", client.tail());
        let lines = client.output().lines();
        let last = lines.last().context("the client prints something")?;
        serde_json::from_str(last).with_context(|| last.clone())
    }

    /// Waits until an issuer asks who the user is; false if the account is linked without that. The tokens of a removed account
    /// are void, but the issuer may keep the browser signed in.
    async fn is_asked_who(&self, issuer: &str) -> Result<bool> {
        let asked = wait::until("the issuer's page, or the account is linked", wait::START, || async {
            match self.browser.url().await.ok()?.starts_with(issuer) {
                true => Some(true),
                false => self.is_linked().await.then_some(false),
            }
        });
        match asked.await {
            Ok(asked) => Ok(asked),
            Err(late) => bail!("{late:#}: {issuer}, the browser is at {}", self.browser.url().await?),
        }
    }

    async fn is_linked(&self) -> bool {
        self.browser.run("return document.title").await.is_ok_and(|title| title == "Account linked")
    }

    /// The address of the linking page in an answer.
    fn page_in(&self, answer: &str) -> Option<String> {
        let start = format!("{}/crm/oauth/link?ticket=", self.edge);
        let sealed = answer.split(&start).nth(1)?;
        let end = sealed.find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c))?;
        Some(format!("{start}{}", sealed.get(..end)?))
    }

    /// Number of requests for new tokens that reached the provider.
    pub(super) fn refreshes(&self) -> usize {
        self.of_tokens().iter().filter(|line| line["grant"] == "refresh_token").count()
    }

    /// Every token that the provider has issued to the platform, each a JWT.
    pub(super) fn issued(&self) -> Vec<String> {
        let lines = self.of_tokens();
        let secrets = lines.iter().filter_map(|line| line["secrets"].as_array()).flatten();
        let tokens = secrets.filter_map(Value::as_str).filter(|secret| secret.starts_with("eyJ"));
        tokens.map(str::to_owned).collect()
    }

    fn of_tokens(&self) -> Vec<Value> {
        self.tokens.output().lines().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Number of issued tokens that the provider calls active.
    pub(super) async fn active(&self) -> Result<usize> {
        let path = format!("/realms/{HUB}/protocol/openid-connect/token/introspect");
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        let mut active = 0;
        for token in self.issued() {
            let form = format!("client_id={HUB_CLIENT}&client_secret={HUB_SECRET}&token={token}");
            let answer = http1::post(self.keycloak.address, &path, &kind, &form).await?;
            ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
            active += usize::from(answer.json()?["active"] == json!(true));
        }
        Ok(active)
    }

    /// Waits until the provider calls no token active that it has issued.
    pub(super) async fn all_are_inactive(&self) -> Result<()> {
        wait::until("the provider calls every token inactive", wait::CONVERGE, || async {
            (self.active().await.ok()? == 0).then_some(())
        })
        .await
        .with_details(|| self.cluster.gateways[0].process.tail())
    }
}

async fn start_services(keycloak: &Keycloak, directory: &TempDir) -> Result<Vec<Guarded>> {
    let mut services = Vec::new();
    for language in LANGUAGES {
        let service = Guarded::start(language, directory).await?;
        service.trusts(&json!({
            "keys": format!("{}/protocol/openid-connect/certs", keycloak.issuer_of(HUB)),
            "issuer": keycloak.issuer_of(HUB), "audience": "crm", "algorithms": ["RS256"], "typ": ["JWT"],
        }))?;
        services.push(service);
    }
    Ok(services)
}

/// Starts what stands before the provider's token endpoint, and collects spans; returns its origin too.
async fn start_tokens(keycloak: &Keycloak, spans: &Path) -> Result<(Process, String)> {
    let mut command = Command::new(tool::python()?);
    command.arg("-B").arg(tool::root()?.join("tests/services/tokens.py"));
    command.arg(keycloak.origin()).arg(spans);
    let process = Process::start("tokens.py", command)?;
    let port = wait::until("the token endpoint listens", wait::START, || async {
        let lines = process.log().lines();
        lines.iter().find_map(|line| serde_json::from_str::<Value>(line).ok()?["port"].as_u64())
    });
    let port = port.await.with_details(|| process.tail())?;
    Ok((process, format!("http://127.0.0.1:{port}")))
}
