//! `asp login`: logs an admin in at the company's issuer, on a machine without a browser (RFC 8628).

use anyhow::{Context, Result, bail};
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::http_client;
use asp_command::print;
use reqwest::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer;
use super::client::block_on;
use super::device_login::DeviceLogin;
use super::stored_login::{SOON, StoredLogin, TIMEOUT, admin_url, file, keep, now};
use crate::args::LoginArgs;

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

/// Logs in and stores the token.
pub fn run(args: &LoginArgs) -> Result<(), Failure> {
    let environment = ProcessEnvironment;
    let url = admin_url(&environment);
    let file = file(&environment).context("find the file of logins: set HOME or XDG_CONFIG_HOME")?;
    block_on(async {
        let method = method(&client(&url, &environment)?, &url, args.issuer.as_deref()).await?;
        let login = DeviceLogin {
            client_id: &method.client_id,
            scopes: &method.scopes,
            audience: None,
            device_authorization_endpoint: &method.device_authorization_endpoint,
            token_endpoint: &method.token_endpoint,
        };
        let tokens = login.run(&environment).await?;
        let expires_at = now() + tokens.expires_in.unwrap_or(SOON);
        let access_token = tokens.access_token;
        let refresh_token = tokens.refresh_token;
        let LoginMethod { name, client_id, token_endpoint, .. } = method;
        keep(
            &file,
            &url,
            StoredLogin { client_id, token_endpoint, access_token, refresh_token, expires_at },
        )?;
        let words = format!("logged in at {name} for {url}");
        answer::show(&json!({ "issuer": name, "url": url }), args.json, &words);
        if !args.json {
            print::next_step("asp servers list");
        }
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
