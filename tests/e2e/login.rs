//! A company's own login: a real Keycloak, official clients that know nothing of it, persons who are asked, admins, and
//! tokens of every kind that end, are spoilt or come from elsewhere.

mod action;
mod admins;
mod clients;
mod consent;
mod forgery;
mod presets;
mod realm;
mod verdicts;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::browser::Person;
use asp_e2e::keycloak::Keycloak;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{http1, wait};
use serde_json::{Value, json};

use self::forgery::{Parts, header};
use self::verdicts::Minted;
use crate::message::TRACEPARENT;
use crate::trial::{Shared, trials};

const ALICE: Person<'static> = Person { user: "alice", password: "wonderland", allows: true };

trials! { login: a_companys_clients_log_in_its_opaque_tokens_are_asked_about_and_its_keys_change }

/// A stack whose server `notes` takes the tokens of a Keycloak that both were told of while they ran.
pub(crate) struct Company {
    pub(crate) keycloak: Keycloak,
    pub(crate) stack: Stack,
    admin: String,
}

impl Company {
    async fn start() -> Result<Company> {
        let keycloak = Keycloak::start(&realm::acme()).await?;
        let secrets = tempfile::tempdir()?;
        let secret = secrets.path().join("secret");
        std::fs::write(&secret, realm::GATEWAY_SECRET)?;
        let credentials = secrets.path().join("credentials.json");
        let basic = json!({ "user": "gateway", "passwordFile": secret });
        let file = json!({ "kc": { "origin": keycloak.origin(), "basic": basic } });
        std::fs::write(&credentials, file.to_string())?;
        let mut options = Options::repository()?;
        options.environment = vec![
            ("ASP_ISSUER_ORIGINS", keycloak.origin()),
            ("ASP_CREDENTIALS", credentials.display().to_string()),
        ];
        let stack = Stack::start(options).await?;
        let admin = stack.token(&["--admin", "--user", "ops"]).await?;
        let company = Company { keycloak, stack, admin };
        company.keycloak.ask("POST", "/admin/realms", Some(&realm::open())).await?;
        company.put("/api/issuers/clients/kc", &company.issuer()).await?;
        company.put("/api/issuers/clients/open", &company.open_issuer()).await?;
        company.put("/api/registry/servers/notes", &realm::notes()).await?;
        company.put("/api/registry/servers/memos", &realm::memos()).await?;
        company.register().await?;
        company.serves().await?;
        Ok(company)
    }

    /// What the platform is told of the issuer.
    fn issuer(&self) -> Value {
        json!({
            "iss": self.keycloak.issuer(), "orgs": ["acme"], "typ": ["JWT"], "audiences": ["asp"],
            "claims": { "user": "preferred_username", "groups": "/realm_access/roles" },
            "defaults": { "org": "acme" },
            "login": { "clientId": "mcp" },
            "introspection": { "credential": "kc", "audiences": ["asp"] },
        })
    }

    /// Of the realm whose clients register there themselves.
    fn open_issuer(&self) -> Value {
        json!({
            "iss": self.keycloak.issuer_of(realm::OPEN), "orgs": ["acme"], "typ": ["JWT"], "audiences": ["asp"],
            "claims": { "user": "preferred_username", "groups": "/realm_access/roles" },
            "defaults": { "org": "acme" },
        })
    }

    /// Registers the one client, whose redirect has the edge's port in it.
    async fn register(&self) -> Result<()> {
        let callback = format!("http://{}/notes/oauth/callback", self.stack.edge());
        let client = realm::client(&callback);
        self.keycloak.ask("POST", "/admin/realms/acme/clients", Some(&client)).await.map(drop)
    }

    /// Waits until each server takes a token of its issuer.
    async fn serves(&self) -> Result<()> {
        let open = self.keycloak.token_of(realm::OPEN, &alice("direct")).await?;
        for (server, token) in [("notes", self.token("").await?), ("memos", open)] {
            wait::until("the server takes its issuer's tokens", wait::CONVERGE, || async {
                let answer = http1::send(self.stack.edge(), &list(server, &token)).await.ok()?;
                (answer.status == 200).then_some(())
            })
            .await?;
        }
        Ok(())
    }

    async fn token(&self, more: &str) -> Result<String> {
        self.keycloak.token(&format!("{}{more}", alice("direct"))).await
    }

    /// What a list of tools is answered with.
    async fn status(&self, token: &str) -> Result<u16> {
        Ok(self.list(token).await?.status)
    }

    async fn list(&self, token: &str) -> Result<http1::Response> {
        http1::send(self.stack.edge(), &list("notes", token)).await
    }

    /// What the admin API says to whoever has a token.
    async fn ask_admin(&self, token: &str, path: &str) -> Result<http1::Response> {
        let bearer = format!("Bearer {token}");
        http1::get(self.stack.admin(), path, &[("authorization", &bearer)]).await
    }

    async fn put(&self, path: &str, body: &Value) -> Result<Value> {
        let request = http1::Request {
            method: "PUT".into(),
            target: path.into(),
            headers: vec![
                ("authorization".into(), format!("Bearer {}", self.admin).into_bytes()),
                ("content-type".into(), b"application/json".to_vec()),
            ],
            body: body.to_string().into_bytes(),
        };
        let answer = http1::send(self.stack.admin(), &request).await?;
        if answer.status != 200 {
            bail!("PUT {path}: {} {}", answer.status, answer.text());
        }
        answer.json()
    }

    async fn stop(mut self) -> Result<()> {
        self.stack.stop(&[]).await?;
        self.keycloak.process.stop().await.map(drop)
    }
}

/// One company for all of it: its Keycloak takes longer to start than the rest.
async fn a_companys_clients_log_in_its_opaque_tokens_are_asked_about_and_its_keys_change(
    _: &Shared,
) -> Result<()> {
    let mut company = Company::start().await?;
    let emergency = admins::emergency(&company).await.context("an emergency token")?;
    let minted = Minted::of(&company).await.context("tokens of many kinds")?;
    admins::trusted(&company).await?;
    admins::log_in(&company).await.context("an admin logs in")?;
    admins::deploy(&company).await.context("a team's CI")?;
    presets::added(&company).await.context("an issuer is added by its preset")?;
    consent::decided_in_a_browser(&company).await.context("the consent page in a browser")?;
    // None of these leaves the company otherwise than it was: all of them are told of.
    let outcomes = [
        clients::log_in(&company).await.context("clients log in"),
        verdicts::agree(&company, &minted).await.context("verdicts"),
        admins::emergency_over(&company, &emergency).await.context("an emergency token that has ended"),
    ];
    let faults: Vec<String> =
        outcomes.into_iter().filter_map(|outcome| Some(format!("{:#}", outcome.err()?))).collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    opaque(&company).await.context("opaque tokens")?;
    keys(&mut company).await.context("keys change")?;
    company.stop().await
}

/// A form of the token endpoint for a client that asks for names and passwords.
fn alice(client: &str) -> String {
    format!("grant_type=password&client_id={client}&username={}&password={}", ALICE.user, ALICE.password)
}

/// A list of a server's tools.
fn list(server: &str, token: &str) -> http1::Request {
    request(server, token, "tools/list", json!({}), &[])
}

/// A request of 2026-07-28.
fn request(server: &str, token: &str, method: &str, params: Value, more: &[(&str, &str)]) -> http1::Request {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "e2e", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("traceparent", TRACEPARENT),
    ];
    http1::Request {
        method: "POST".into(),
        target: format!("/{server}/mcp"),
        headers: headers
            .iter()
            .chain(more)
            .map(|(name, value)| ((*name).into(), value.as_bytes().into()))
            .collect(),
        body: json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
            .to_string()
            .into_bytes(),
    }
}

/// Keys that change, and an issuer that goes away and comes back with others.
async fn keys(company: &mut Company) -> Result<()> {
    let old = company.token("").await?;
    company.keycloak.rotate("second", 200).await?;
    let new = company.token("").await?;
    assert_ne!(kid(&old), kid(&new), "it signs with the new key");
    // What was fetched moments ago is not fetched again at once; then nothing valid is refused.
    wait::until("the new key is known", Duration::from_secs(60), || async {
        (company.status(&new).await.ok()? == 200).then_some(())
    })
    .await?;
    assert_eq!(company.status(&old).await?, 200, "the old key is published still");
    let port = company.keycloak.address.port();
    company.keycloak.process.stop().await?;
    assert_eq!(company.status(&new).await?, 200, "known keys go on without their issuer");
    assert_eq!(
        company.status(&Parts::of(&new)?.with_header("kid", &json!("nobodys"))).await?,
        401,
        "unknown ones are refused"
    );
    company.keycloak = Keycloak::start_at(port, &realm::acme()).await?;
    let fresh = company.token("").await?;
    wait::until("the returned issuer's new keys are known", Duration::from_secs(90), || async {
        (company.status(&fresh).await.ok()? == 200).then_some(())
    })
    .await?;
    assert_eq!(company.status(&new).await?, 401, "a key that is published no more signs nothing");
    Ok(())
}

fn kid(token: &str) -> String {
    header(token)["kid"].as_str().unwrap_or_default().to_owned()
}

/// The issuer's word about tokens, and the platform's.
async fn opaque(company: &Company) -> Result<()> {
    company.put("/api/registry/servers/notes?force=true", &realm::opaque_notes()).await?;
    let token = company.token("").await?;
    wait::until("the server asks about tokens", wait::CONVERGE, || async {
        (company.status("nobodys").await.ok()? == 401).then_some(())
    })
    .await?;
    let answer = company.list(&token).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let refused = company.list("not-a-token").await?;
    assert_eq!(refused.status, 401);
    assert!(
        refused.header("www-authenticate").is_some_and(|text| text.contains("resource_metadata")),
        "{refused:?}"
    );
    // Logged out at the issuer: within half a minute.
    let users = company.keycloak.ask("GET", "/admin/realms/acme/users?username=alice", None).await?;
    let id = users[0]["id"].as_str().context("alice's id")?.to_owned();
    company.keycloak.ask("POST", &format!("/admin/realms/acme/users/{id}/logout"), None).await?;
    wait::until("the issuer's word counts", Duration::from_secs(60), || async {
        (company.status(&token).await.ok()? == 401).then_some(())
    })
    .await?;
    // Revoked here: at once.
    let token = company.token("").await?;
    assert_eq!(company.status(&token).await?, 200);
    let revoke = json!({ "type": "user", "org": "acme", "id": "alice" });
    let bearer = format!("Bearer {}", company.admin);
    let headers = [("authorization", bearer.as_str())];
    let revoked =
        http1::post(company.stack.admin(), "/api/revocations", &headers, &revoke.to_string()).await?;
    assert_eq!(revoked.status, 201, "{}", revoked.text());
    wait::until("the platform's word counts", wait::CONVERGE, || async {
        (company.status(&token).await.ok()? == 401).then_some(())
    })
    .await?;
    let schemes = company.put("/api/registry/servers/notes?force=true", &realm::notes()).await?;
    assert_eq!(schemes["changed"], true);
    // Tokens of a later second are not revoked.
    wait::until("alice may come again", wait::CONVERGE, || async {
        let token = company.token("").await.ok()?;
        (company.status(&token).await.ok()? == 200).then_some(())
    })
    .await
}
