//! An account that a caller links in a real browser at a real Keycloak, behind which a service takes its tokens alone.

use anyhow::{Context, Result, ensure};
use asp_e2e::chromium::Chromium;
use asp_e2e::keycloak::Keycloak;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{http1, wait};
use serde_json::{Value, json};

use super::{Guarded, call, realm};
use crate::trial::Shared;

/// Realm of the provider.
const HUB: &str = "hub";
const HUB_SECRET: &str = "hubs-secret";
const PASSWORD: &str = "wonderland";

pub(super) async fn a_caller_links_an_account_in_a_browser_and_removes_it(_: &Shared) -> Result<()> {
    let keycloak = Keycloak::start(&realm::acme()).await?;
    let dir = tempfile::tempdir()?;
    let service = Guarded::start("python", &dir).await?;
    service.trusts(&json!({
        "keys": format!("{}/protocol/openid-connect/certs", keycloak.issuer_of(HUB)),
        "issuer": keycloak.issuer_of(HUB), "audience": "crm", "algorithms": ["RS256"], "typ": ["JWT"],
    }))?;
    let mut options = Options::repository()?;
    options.environment = vec![
        ("ASP_ISSUER_ORIGINS", keycloak.origin()),
        ("ASP_UPSTREAMS", format!("crm.internal=http://127.0.0.1:{}", service.port)),
    ];
    let stack = Stack::start(options).await?;
    let admin = stack.token(&["--admin", "--user", "ops"]).await?;
    let edge = format!("http://{}", stack.edge());
    keycloak.ask("POST", "/admin/realms", Some(&hub(&edge))).await?;
    let clients = format!("/admin/realms/{}/clients", asp_e2e::keycloak::REALM);
    keycloak.ask("POST", &clients, Some(&login_client(&edge))).await?;
    put(&stack, &admin, "/api/issuers/clients/kc", &issuer(&keycloak)).await?;
    put(&stack, &admin, "/api/link-providers/hub", &provider(&keycloak, service.port)).await?;
    put(&stack, &admin, "/api/registry/servers/crm", &server()).await?;
    let form = format!("grant_type=password&client_id=direct&username=alice&password={PASSWORD}");
    let token = keycloak.token(&form).await?;
    let page = wait::until("the server asks for a link", wait::CONVERGE, || async {
        page_in(&call(&stack, &token, ("crm", "who")).await.ok()?, &edge)
    });
    let page = page.await.with_context(|| stack.asp.tail())?;
    let browser = Chromium::start().await?;
    link(&browser, &keycloak, &page).await.context("the linking page")?;
    let answer = call(&stack, &token, ("crm", "who")).await?;
    let said = &answer["result"]["structuredContent"];
    ensure!(said["preferred_username"] == "alice-at-hub", "{answer}");
    ensure!(service.shown(&token).await? == 401, "the service takes the client's own token");
    browser.open(&format!("{edge}/account")).await?;
    browser.click("form[action=\"/account/sign-in\"] button").await?;
    // The browser is signed in at the issuer already.
    browser.arrives(&format!("{edge}/account")).await?;
    browser.click("form[action=\"/account/remove\"] button").await?;
    wait::until("the account is removed", wait::CONVERGE, || async {
        page_in(&call(&stack, &token, ("crm", "who")).await.ok()?, &edge)
    })
    .await?;
    wait::until("the provider has ended the session", wait::CONVERGE, || async {
        (sessions(&keycloak).await.ok()? == 0).then_some(())
    })
    .await?;
    browser.stop().await?;
    drop(service);
    stack.stop(&[]).await
}

/// Links the account as alice, at her company and at the provider.
async fn link(browser: &Chromium, keycloak: &Keycloak, page: &str) -> Result<()> {
    browser.open(page).await?;
    browser.click("form button").await?;
    for (realm, user) in [(asp_e2e::keycloak::REALM, "alice"), (HUB, "alice-at-hub")] {
        browser.arrives(&keycloak.issuer_of(realm)).await?;
        browser.fill("#username", user).await?;
        browser.fill("#password", PASSWORD).await?;
        browser.click("#kc-login").await?;
    }
    wait::until("the account is linked", wait::CONVERGE, || async {
        let title = browser.run("return document.title").await.ok()?;
        (title == "Account linked").then_some(())
    })
    .await
}

/// Address of the linking page in an answer.
fn page_in(answer: &Value, edge: &str) -> Option<String> {
    let said = answer.to_string();
    let start = format!("{edge}/crm/oauth/link?ticket=");
    let sealed = said.split(&start).nth(1)?;
    let end = sealed.find(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c))?;
    Some(format!("{start}{}", sealed.get(..end)?))
}

/// Number of alice's sessions at the provider.
async fn sessions(keycloak: &Keycloak) -> Result<usize> {
    let users = format!("/admin/realms/{HUB}/users");
    let found = keycloak.ask("GET", &format!("{users}?exact=true&username=alice-at-hub"), None).await?;
    let id = found[0]["id"].as_str().context("alice's id")?;
    let sessions = keycloak.ask("GET", &format!("{users}/{id}/sessions"), None).await?;
    Ok(sessions.as_array().context("sessions")?.len())
}

async fn put(stack: &Stack, admin: &str, path: &str, body: &Value) -> Result<()> {
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
}

/// The client at the company's issuer, as which every client logs in.
fn login_client(edge: &str) -> Value {
    json!({
        "clientId": "mcp", "publicClient": true, "standardFlowEnabled": true,
        "redirectUris": [format!("{edge}/crm/oauth/callback")],
        "attributes": { "pkce.code.challenge.method": "S256" }, "defaultClientScopes": ["asp"],
    })
}

/// The provider's realm, whose tokens are for the service `crm`.
fn hub(edge: &str) -> Value {
    let mapper = |name: &str, kind: &str, config: Value| json!({ "name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config });
    let user = json!({ "claim.name": "preferred_username", "jsonType.label": "String", "user.attribute": "username",
                       "access.token.claim": "true" });
    let audience = json!({ "included.custom.audience": "crm", "access.token.claim": "true" });
    json!({
        "realm": HUB, "enabled": true, "sslRequired": "none", "accessTokenLifespan": 300,
        "clients": [{
            "clientId": "asp", "secret": HUB_SECRET, "standardFlowEnabled": true,
            "redirectUris": [format!("{edge}/account/callback")],
            "attributes": { "pkce.code.challenge.method": "S256" },
            "protocolMappers": [
                mapper("crm", "oidc-audience-mapper", audience),
                mapper("sub", "oidc-sub-mapper", json!({ "access.token.claim": "true" })),
                mapper("user", "oidc-usermodel-attribute-mapper", user),
            ],
        }],
        "users": [{
            "username": "alice-at-hub", "enabled": true, "firstName": "Alice", "lastName": "L",
            "email": "alice@hub.example", "emailVerified": true,
            "credentials": [{ "type": "password", "value": PASSWORD }],
        }],
    })
}

fn issuer(keycloak: &Keycloak) -> Value {
    json!({
        "iss": keycloak.issuer(), "orgs": ["acme"], "typ": ["JWT"], "audiences": ["asp"],
        "claims": { "user": "preferred_username" }, "defaults": { "org": "acme" }, "login": { "clientId": "mcp" },
    })
}

fn provider(keycloak: &Keycloak, port: u64) -> Value {
    json!({
        "discover": keycloak.issuer_of(HUB), "clientSecret": HUB_SECRET,
        "document": { "title": "Hub", "clientId": "asp", "for": ["crm/*"],
                      "origins": [format!("http://127.0.0.1:{port}")] },
    })
}

/// A server with one tool, whose service is behind a linked account.
fn server() -> Value {
    let file = |name: &str, text: &str| json!({ "path": format!("crm/{name}.yaml"), "text": text });
    let server = "apiVersion: asp/v1\nname: crm\ndescription: Customers.\nprotocols: [mcp]\nsessions: both\n\
         defaultExposure: allow\nauth: {schemes: [jwt], issuers: [kc]}\nprimitives: [{ref: crm/crm.who}]\n";
    let tool = "id: crm.who\nname: who\ntype: tool\nversion: 1.0.0\nowner: crm@acme.example\nsummary: Says who calls.\n\
         mutation: read_only\nexposure: {mcp: {tool: {name: who}}}\n\
         primitiveSchema: {input_schema: {type: object}}\n\
         runtime: {mode: proxy, http: {url: \"http://crm.internal/who\"}, auth: {linked: hub}}\n\
         security: {riskClass: low}\n";
    json!({ "files": [file("server", server), file("who", tool)] })
}
