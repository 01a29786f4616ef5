//! `asp login`: logs an admin in at the company's issuer, on a machine without a browser (RFC 8628).

use std::time::Duration;

use anyhow::{Context, Result, bail};
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::http_client;
use asp_command::print;
use reqwest::Client;
use serde::Deserialize;
use serde_json::Value;

use super::client::block_on;
use super::stored_login::{SOON, StoredLogin, TIMEOUT, TokenResponse, admin_url, ask, file, keep, now};
use crate::args::LoginArgs;

/// Seconds between requests for the token: the default if the issuer names none (RFC 8628 section 3.2), and the maximum.
const INTERVAL: u64 = 5;
const MAX_INTERVAL: u64 = 60;
/// Maximum seconds that the user has to log in, unless the issuer allows less.
const MAX_WAIT: u64 = 900;

/// A way for admins to log in, as the control plane announces it.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoginMethod {
    name: String,
    client_id: String,
    #[serde(default)]
    scopes: Vec<String>,
    device_authorization_endpoint: String,
    token_endpoint: String,
}

/// Response with a device code (RFC 8628 section 3.2).
#[derive(Deserialize)]
struct Device {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// Logs in and stores the token.
pub fn run(args: &LoginArgs) -> Result<(), Failure> {
    let environment = ProcessEnvironment;
    let url = admin_url(&environment);
    let file = file(&environment).context("find the file of logins: set HOME or XDG_CONFIG_HOME")?;
    block_on(async {
        let method = method(&client(&url, &environment)?, &url, args.issuer.as_deref()).await?;
        // Both endpoints receive the device code; the control plane has named both.
        let device = client(&method.device_authorization_endpoint, &environment)?;
        let token = client(&method.token_endpoint, &environment)?;
        let kept = log_in((&device, &token), &method).await?;
        keep(&file, &url, kept)?;
        print::line(&format!("logged in at {} for {url}", method.name));
        print::next_step("asp servers list");
        Ok(())
    })
}

fn client(url: &str, environment: &ProcessEnvironment) -> Result<Client> {
    http_client::builder(url, environment)?.timeout(TIMEOUT).build().context("create the HTTP client")
}

async fn method(client: &Client, url: &str, name: Option<&str>) -> Result<LoginMethod> {
    let answer = client.get(format!("{url}/api/login")).send().await;
    let answer = answer.with_context(|| format!("read how admins of {url} log in"))?;
    let mut found: Value = answer.json().await.with_context(|| format!("read the login methods of {url}"))?;
    let methods: Vec<LoginMethod> =
        serde_json::from_value(found.get_mut("issuers").map(Value::take).unwrap_or_default())
            .context("read how admins log in")?;
    let names = methods.iter().map(|method| method.name.clone()).collect::<Vec<_>>().join(", ");
    let mut fitting = methods.into_iter().filter(|method| name.is_none_or(|name| name == method.name));
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => bail!("several issuers log admins in; choose one with --issuer: {names}"),
        (None, _) if names.is_empty() => {
            bail!(
                "{url} has no admin issuer with `login`, or its discovery names no device endpoint (docs/identity.md)"
            )
        }
        (None, _) => bail!("no admin issuer with this name has a login; existing ones: {names}"),
    }
}

async fn log_in((for_device, for_token): (&Client, &Client), method: &LoginMethod) -> Result<StoredLogin> {
    let scopes = method.scopes.join(" ");
    let mut form = vec![("client_id", method.client_id.as_str())];
    if !scopes.is_empty() {
        form.push(("scope", scopes.as_str()));
    }
    let device: Device = ask(for_device, &method.device_authorization_endpoint, &form).await?;
    match &device.verification_uri_complete {
        Some(url) => print::line(&format!("open {url}\nand see that it shows {}", device.user_code)),
        None => print::line(&format!("open {}\nand enter {}", device.verification_uri, device.user_code)),
    }
    let deadline = now() + device.expires_in.min(MAX_WAIT);
    let mut interval = device.interval.unwrap_or(INTERVAL).clamp(1, MAX_INTERVAL);
    while now() < deadline {
        tokio::time::sleep(Duration::from_secs(interval)).await;
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", device.device_code.as_str()),
            ("client_id", method.client_id.as_str()),
        ];
        let response: TokenResponse = ask(for_token, &method.token_endpoint, &form).await?;
        match (response.access_token, response.error.as_deref()) {
            (Some(access_token), _) => {
                return Ok(StoredLogin {
                    client_id: method.client_id.clone(),
                    token_endpoint: method.token_endpoint.clone(),
                    access_token,
                    refresh_token: response.refresh_token,
                    expires_at: now() + response.expires_in.unwrap_or(SOON),
                });
            }
            (None, Some("authorization_pending")) => {}
            (None, Some("slow_down")) => interval = (interval + INTERVAL).min(MAX_INTERVAL),
            (None, error) => {
                let why =
                    response.error_description.unwrap_or_else(|| error.unwrap_or("no token").to_owned());
                bail!("the login failed: {why}");
            }
        }
    }
    bail!("the login was not completed in time: run `asp login` again")
}
