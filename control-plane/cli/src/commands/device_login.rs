//! Login of a person from a machine without a browser (RFC 8628).

use std::time::Duration;

use anyhow::{Context, Result, bail};
use asp_command::environment::Environment;
use asp_command::{http_client, print};
use reqwest::Client;
use serde::Deserialize;
use serde_json::Value;

use super::answer::text;
use super::stored_login::{TIMEOUT, TokenResponse, ask, now};

/// Seconds between requests for the token: the default if the issuer names none (RFC 8628 section 3.2), and the maximum.
const INTERVAL: u64 = 5;
const MAX_INTERVAL: u64 = 60;
/// Maximum seconds that the user has to log in, unless the issuer allows less.
const MAX_WAIT: u64 = 900;

/// A client of an issuer and the issuer's endpoints.
pub(super) struct DeviceLogin<'a> {
    pub(super) client_id: &'a str,
    pub(super) scopes: &'a [String],
    /// `audience`, a parameter of some issuers.
    pub(super) audience: Option<&'a str>,
    pub(super) device_authorization_endpoint: &'a str,
    pub(super) token_endpoint: &'a str,
}

/// Tokens of a login.
pub(super) struct IssuedTokens {
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    /// Seconds; `None` if the issuer does not say.
    pub(super) expires_in: Option<u64>,
}

/// Response with a device code (RFC 8628 section 3.2).
#[derive(Deserialize)]
struct DeviceCode {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

impl DeviceLogin<'_> {
    /// Prints where to log in, and waits until the user has done so.
    pub(super) async fn run(&self, environment: &dyn Environment) -> Result<IssuedTokens> {
        // Both endpoints receive the device code; who named the issuer has named both.
        let for_device = client(self.device_authorization_endpoint, environment)?;
        let for_token = client(self.token_endpoint, environment)?;
        let device = self.begin(&for_device).await?;
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
                ("client_id", self.client_id),
            ];
            let response: TokenResponse = ask(&for_token, self.token_endpoint, &form).await?;
            match (response.access_token, response.error.as_deref()) {
                (Some(access_token), _) => {
                    return Ok(IssuedTokens {
                        access_token,
                        refresh_token: response.refresh_token,
                        expires_in: response.expires_in,
                    });
                }
                (None, Some("authorization_pending")) => {}
                (None, Some("slow_down")) => interval = (interval + INTERVAL).min(MAX_INTERVAL),
                (None, error) => {
                    let why = response.error_description.as_deref().or(error).unwrap_or("no token");
                    bail!("the login failed: {why}");
                }
            }
        }
        bail!("the login was not completed in time: run the command again")
    }

    async fn begin(&self, client: &Client) -> Result<DeviceCode> {
        let scopes = self.scopes.join(" ");
        let mut form = vec![("client_id", self.client_id)];
        if !scopes.is_empty() {
            form.push(("scope", scopes.as_str()));
        }
        form.extend(self.audience.map(|audience| ("audience", audience)));
        let answer: Value = ask(client, self.device_authorization_endpoint, &form).await?;
        if !text(&answer, "error").is_empty() {
            bail!(
                "the issuer begins no login for this client: {}: {}",
                text(&answer, "error"),
                text(&answer, "error_description")
            );
        }
        serde_json::from_value(answer).context("read the issuer's device code")
    }
}

fn client(url: &str, environment: &dyn Environment) -> Result<Client> {
    http_client::builder(url, environment)?.timeout(TIMEOUT).build().context("create the HTTP client")
}
