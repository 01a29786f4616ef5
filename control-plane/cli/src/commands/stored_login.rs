//! Logins of admins that are kept between commands: `asp/logins.json` below `$XDG_CONFIG_HOME` or `~/.config`, readable by
//! their owner only.
//!
//! Keeps true: a token is used only for the control plane that named its issuer, prints as `***`, and is refreshed before it
//! expires.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use asp_command::environment::Environment;
use asp_command::http_client;
use asp_command::state_dir;
use asp_platform::clock;
use asp_platform::secret::Secret;
use reqwest::Client;
use serde::{Deserialize, Serialize};

use crate::settings::listen::DEFAULT_ADMIN_PORT;

const ENV_ADMIN_URL: &str = "ASP_ADMIN_URL";
/// Seconds before its expiry at which a token is refreshed.
pub(super) const SOON: u64 = 30;
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);

/// A stored login. Contains secrets, in a file that only its owner can read.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredLogin {
    pub(super) client_id: String,
    pub(super) token_endpoint: String,
    pub(super) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// Unix seconds.
    pub(super) expires_at: u64,
}

/// Response of a token endpoint (RFC 6749 section 5).
#[derive(Deserialize)]
pub(super) struct TokenResponse {
    pub(super) access_token: Option<String>,
    pub(super) refresh_token: Option<String>,
    pub(super) expires_in: Option<u64>,
    pub(super) error: Option<String>,
    pub(super) error_description: Option<String>,
}

/// Returns the URL of the admin API that every command uses.
pub(super) fn admin_url(environment: &dyn Environment) -> String {
    let url = environment.get(ENV_ADMIN_URL);
    let url = url.unwrap_or_else(|| format!("http://127.0.0.1:{DEFAULT_ADMIN_PORT}"));
    url.trim_end_matches('/').to_owned()
}

/// Returns the token of the login for `url`, refreshed if it expires soon; `None` if there is no login.
pub(super) fn token(environment: &dyn Environment, url: &str) -> anyhow::Result<Option<Secret>> {
    let Some(file) = file(environment) else { return Ok(None) };
    let Some(kept) = read(&file)?.remove(url) else { return Ok(None) };
    if kept.expires_at > now() + SOON {
        return Ok(Some(Secret::new(kept.access_token)));
    }
    let over = || anyhow::anyhow!("the login at {url} has expired; run `asp login`");
    let refresh = kept.refresh_token.clone().ok_or_else(over)?;
    let client = http_client::builder(&kept.token_endpoint, environment)?;
    let client = client.timeout(TIMEOUT).build().context("create the HTTP client")?;
    // A thread of its own, because the caller may be running in an async runtime.
    let asked = kept.clone();
    let refreshed = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let form = [
                ("grant_type", "refresh_token"),
                ("refresh_token", refresh.as_str()),
                ("client_id", asked.client_id.as_str()),
            ];
            ask::<TokenResponse>(&client, &asked.token_endpoint, &form).await
        })
    });
    let response = refreshed.join().map_err(|_| over())?.map_err(|_| over())?;
    let access_token = response.access_token.ok_or_else(over)?;
    let token = Secret::new(access_token.clone());
    let refresh_token = response.refresh_token.or(kept.refresh_token);
    let expires_at = now() + response.expires_in.unwrap_or(SOON);
    keep(&file, url, StoredLogin { access_token, refresh_token, expires_at, ..kept })?;
    Ok(Some(token))
}

/// Sends a form to an endpoint of the issuer. Its refusals are JSON too.
pub(super) async fn ask<T: serde::de::DeserializeOwned>(
    client: &Client,
    url: &str,
    form: &[(&str, &str)],
) -> anyhow::Result<T> {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let request = client.post(url).body(body).header("content-type", "application/x-www-form-urlencoded");
    let answer = request.header("accept", "application/json").send().await;
    let answer = answer.with_context(|| format!("ask {url}"))?;
    let status = answer.status();
    answer.json().await.with_context(|| format!("{url} answers with status {status} and no JSON"))
}

pub(super) fn file(environment: &dyn Environment) -> Option<PathBuf> {
    state_dir::of_user(|name| environment.get(name), "logins.json")
}

fn read(file: &Path) -> anyhow::Result<BTreeMap<String, StoredLogin>> {
    match std::fs::read(file) {
        // The error does not repeat the content.
        Ok(text) => serde_json::from_slice(&text).map_err(|_| {
            anyhow::anyhow!("{} is not a valid file of logins: delete it and run `asp login`", file.display())
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
    }
}

pub(super) fn keep(file: &Path, url: &str, kept: StoredLogin) -> anyhow::Result<()> {
    let mut all = read(file)?;
    all.insert(url.to_owned(), kept);
    let text = serde_json::to_vec_pretty(&all)?;
    if let Some(folder) = file.parent() {
        state_dir::create(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    state_dir::replace(file, &text).with_context(|| format!("write {}", file.display()))
}

pub(super) fn now() -> u64 {
    clock::now_ms() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_kept_for_its_control_plane_and_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        let environment = BTreeMap::from([("HOME", home.path().to_str().unwrap())]);
        let file = file(&environment).unwrap();
        let kept = |token: &str, expires_at| StoredLogin {
            client_id: "cli".into(),
            token_endpoint: "http://127.0.0.1:1/token".into(),
            access_token: token.into(),
            refresh_token: None,
            expires_at,
        };
        keep(&file, "http://a", kept("of-a", now() + 600)).unwrap();
        keep(&file, "http://b", kept("of-b", now() + 1)).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let of = |url: &str| token(&environment, url);
        assert_eq!(of("http://a").unwrap().unwrap().expose(), "of-a");
        assert!(of("http://b").err().unwrap().to_string().contains("asp login"), "it has ended");
        assert!(of("http://c").unwrap().is_none());
        std::fs::write(&file, "of-a").unwrap();
        let fault = of("http://a").err().unwrap().to_string();
        assert!(fault.contains("not a valid file of logins") && !fault.contains("of-a"), "{fault}");
    }
}
