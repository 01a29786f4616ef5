//! The page on which a person decides about a client, in a real browser: what it shows, where either decision leads, and
//! that nobody shows it within a page of his own.

use anyhow::{Context, Result, ensure};
use asp_e2e::browser::encoded;
use asp_e2e::chromium::Chromium;
use asp_e2e::http1;
use asp_e2e::recorder::Recorder;
use serde_json::{Value, json};

use super::{ALICE, Company};

/// RFC 7636 appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
/// Markup in a text, in an attribute, and of a script.
const NAME: &str =
    "<b>Mallory</b> \"'> <img src=x onerror=document.title=1> <script>document.title=1</script>";
const STATE: &str = "a state & more";

pub(super) async fn decided_in_a_browser(company: &Company) -> Result<()> {
    let client = Client::register(company).await?;
    let browser = Chromium::start().await?;
    shown_as_text(&browser, &client).await.context("markup in the client's name")?;
    in_no_frame(&browser, &client, company).await.context("in a frame")?;
    denied(&browser, &client).await.context("Deny")?;
    allowed(&browser, &client, company).await.context("Allow")?;
    browser.stop().await
}

/// A client with a server on this machine to which its user is sent back.
struct Client {
    recorder: Recorder,
    id: String,
    /// Of the server's login front.
    front: String,
}

impl Client {
    async fn register(company: &Company) -> Result<Client> {
        let recorder = Recorder::start().await?;
        let redirect = format!("http://{}/callback", recorder.address);
        let metadata = json!({ "client_name": NAME, "redirect_uris": [redirect] });
        let edge = company.stack.edge();
        let answer = http1::post(edge, "/notes/oauth/register", &[], &metadata.to_string()).await?;
        ensure!(answer.status == 201, "{}", answer.text());
        let id = answer.json()?["client_id"].as_str().context("an id")?.to_owned();
        Ok(Client { recorder, id, front: format!("http://{edge}/notes/oauth") })
    }

    fn redirect(&self) -> String {
        format!("http://{}/callback", self.recorder.address)
    }

    /// Where it sends its user.
    fn asks(&self) -> String {
        format!(
            "{}/authorize?response_type=code&client_id={}&redirect_uri={}&state={}&code_challenge={CHALLENGE}\
             &code_challenge_method=S256",
            self.front,
            encoded(&self.id),
            encoded(&self.redirect()),
            encoded(STATE)
        )
    }

    /// What the address says where its user was sent back to.
    async fn told(&self, browser: &Chromium) -> Result<Value> {
        browser.arrives(&format!("{}?", self.redirect())).await?;
        let told = browser.run("return Object.fromEntries(new URL(location.href).searchParams)").await?;
        ensure!(told["state"] == STATE && told["iss"] == self.front.as_str(), "{told}");
        Ok(told)
    }
}

/// What the client calls itself is text, in every place.
async fn shown_as_text(browser: &Chromium, client: &Client) -> Result<()> {
    browser.open(&client.asks()).await?;
    let shown = browser
        .run(
            "return { name: document.querySelector('strong').textContent, title: document.title,
              address: document.querySelector('code').textContent,
              foreign: document.querySelectorAll('b, img, script, iframe, link, object').length,
              buttons: [...document.querySelectorAll('button')].map(button => button.textContent) }",
        )
        .await?;
    let wanted = json!({
        "name": NAME, "title": "Allow access", "address": client.redirect(), "foreign": 0,
        "buttons": ["Allow", "Deny"],
    });
    ensure!(shown == wanted, "{shown}");
    Ok(())
}

/// Neither another site nor the server's own origin shows the page in a frame, in which a click could be stolen.
async fn in_no_frame(browser: &Chromium, client: &Client, company: &Company) -> Result<()> {
    let others = format!("http://{}/page", client.recorder.address);
    let own = format!("http://{}/.well-known/oauth-protected-resource/notes/mcp", company.stack.edge());
    for page in [&others, &own] {
        // A page that lets itself be shown is shown: else this could not fail.
        ensure!(framed(browser, page, &others).await? == others, "{page} shows a page in a frame");
        let shown = framed(browser, page, &client.asks()).await?;
        ensure!(shown.starts_with("chrome-error:"), "{page} shows {shown}");
    }
    Ok(())
}

/// What a frame of `page` shows that is sent to `target`.
async fn framed(browser: &Chromium, page: &str, target: &str) -> Result<String> {
    browser.open(page).await?;
    let frame = format!(
        "const frame = document.createElement('iframe'); frame.onload = () => done(true); frame.src = {};
         document.documentElement.append(frame)",
        json!(target)
    );
    browser.run_until_done(&frame).await?;
    browser.look_into(Some("iframe")).await?;
    let shown = browser.run("return location.href").await?;
    browser.look_into(None).await?;
    Ok(shown.as_str().unwrap_or_default().to_owned())
}

async fn denied(browser: &Chromium, client: &Client) -> Result<()> {
    browser.open(&client.asks()).await?;
    browser.click("button[value=deny]").await?;
    let told = client.told(browser).await?;
    ensure!(told["error"] == "access_denied" && told["code"].is_null(), "{told}");
    Ok(())
}

/// On to the issuer, where the person logs in, and back with a code that is good for a token of his.
async fn allowed(browser: &Chromium, client: &Client, company: &Company) -> Result<()> {
    browser.open(&client.asks()).await?;
    browser.click("button[value=allow]").await?;
    browser.arrives(&company.keycloak.origin()).await?;
    browser.fill("#username", ALICE.user).await?;
    browser.fill("#password", ALICE.password).await?;
    browser.click("#kc-login").await?;
    let told = client.told(browser).await?;
    let code = told["code"].as_str().with_context(|| told.to_string())?;
    let form = format!(
        "grant_type=authorization_code&client_id={}&code={}&code_verifier={VERIFIER}&redirect_uri={}",
        encoded(&client.id),
        encoded(code),
        encoded(&client.redirect())
    );
    let kind = [("content-type", "application/x-www-form-urlencoded")];
    let answer = http1::post(company.stack.edge(), "/notes/oauth/token", &kind, &form).await?;
    let answer = answer.json()?;
    let token = answer["access_token"].as_str().with_context(|| answer.to_string())?;
    ensure!(company.status(token).await? == 200, "{answer}");
    Ok(())
}
