//! The first day of a person: the pages of the platform in a browser, and the login in development, by which a client without
//! a token registers, its person chooses who to be, and it calls.

use anyhow::{Context, Result, ensure};
use asp_e2e::browser::encoded;
use asp_e2e::http1::{self, Response};
use serde_json::{Value, json};

use crate::message;
use crate::trial::{Shared, trials};

/// RFC 7636 appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const REDIRECT: &str = "http://127.0.0.1:4711/callback";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

trials! { dev_login:
    a_browser_finds_the_servers_and_how_to_connect,
    a_client_without_a_token_logs_in_as_bob,
}

async fn a_client_without_a_token_logs_in_as_bob(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let edge = stack.edge();
    let admin = stack.admin();
    let resource = http1::get(edge, "/.well-known/oauth-protected-resource/demo/mcp", &[]).await?.json()?;
    ensure!(resource["authorization_servers"] == json!([format!("http://{edge}/demo/oauth")]), "{resource}");
    let metadata = json!({ "client_name": "mcp-remote", "redirect_uris": [REDIRECT] });
    let registered = http1::post(edge, "/demo/oauth/register", &[], &metadata.to_string()).await?;
    let client = text(&registered.json()?, "client_id")?;

    let query = format!(
        "response_type=code&client_id={}&redirect_uri={}&state=s&code_challenge={CHALLENGE}&code_challenge_method=S256",
        encoded(&client),
        encoded(REDIRECT)
    );
    let consent = http1::get(edge, &format!("/demo/oauth/authorize?{query}"), &[]).await?;
    let cookie =
        consent.header("set-cookie").context("a cookie")?.split(';').next().unwrap_or_default().to_owned();
    let page = consent.text();
    let ticket = page.split("name=ticket value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let body = format!("decision=allow&ticket={}", encoded(ticket.context("a ticket")?));
    let agreed = http1::post(edge, "/demo/oauth/consent", &[FORM, ("cookie", &cookie)], &body).await?;

    let login = target(&agreed, &format!("http://{admin}"))?;
    let page = http1::get(admin, &login, &[]).await?;
    ensure!(page.status == 200 && page.text().contains("bob of acme"), "{}", page.text());
    let asked = login.split_once('?').context("a query")?.1;
    let elsewhere = asked.replace(&encoded(&format!("http://{edge}")), &encoded("http://evil.example"));
    let refused = http1::get(admin, &format!("/dev-login/authorize?{elsewhere}"), &[]).await?;
    ensure!(refused.status == 400, "nobody is sent elsewhere: {}", refused.text());
    let rebound = http1::get(admin, &login, &[("host", "evil.example")]).await?;
    ensure!(rebound.status == 403, "a page reaches it under no other name: {}", rebound.status);
    let chosen = http1::post(admin, "/dev-login/choose", &[FORM], &format!("{asked}&user=bob")).await?;

    let callback = target(&chosen, &format!("http://{edge}"))?;
    let back = http1::get(edge, &callback, &[("cookie", &cookie)]).await?;
    let back = target(&back, REDIRECT)?;
    let code = back.split(['?', '&']).find_map(|pair| pair.strip_prefix("code=")).context("a code")?;
    let body = format!(
        "grant_type=authorization_code&code={code}&code_verifier={VERIFIER}&client_id={}&redirect_uri={}",
        encoded(&client),
        encoded(REDIRECT)
    );
    let tokens = http1::post(edge, "/demo/oauth/token", &[FORM], &body).await?;
    ensure!(tokens.status == 200, "{}", tokens.text());
    let token = text(&tokens.json()?, "access_token")?;
    let listed = http1::send(edge, &message::modern(&token, "tools/list", json!({}), &[])).await?;
    ensure!(listed.status == 200 && listed.text().contains("\"echo\""), "{}", listed.text());
    let again = http1::post(edge, "/demo/oauth/token", &[FORM], &body).await?;
    ensure!(again.status == 400, "a code is good once: {}", again.text());
    Ok(())
}

async fn a_browser_finds_the_servers_and_how_to_connect(shared: &Shared) -> Result<()> {
    let edge = shared.stack().await?.edge();
    let browser = [("accept", "text/html")];
    let list = http1::get(edge, "/", &browser).await?;
    ensure!(list.status == 200 && list.text().contains("<a href=\"/demo\">demo</a>"), "{}", list.text());
    let demo = http1::get(edge, "/demo", &browser).await?;
    ensure!(
        demo.text().contains(&format!("claude mcp add --transport http demo http://{edge}/demo/mcp")),
        "{}",
        demo.text()
    );
    let program = http1::get(edge, "/demo", &[]).await?;
    ensure!(program.reason().as_deref() == Some("unknown_server"), "{}", program.text());
    Ok(())
}

/// The target of a redirect, below an origin or URL.
fn target(answer: &Response, below: &str) -> Result<String> {
    let location = answer.header("location").with_context(|| answer.text())?;
    Ok(location.strip_prefix(below).with_context(|| location.to_owned())?.to_owned())
}

fn text(answer: &Value, member: &str) -> Result<String> {
    Ok(answer[member].as_str().with_context(|| answer.to_string())?.to_owned())
}
