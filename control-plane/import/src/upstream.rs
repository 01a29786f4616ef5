//! Lists of an upstream MCP server, for a client with every capability: some servers list less to others.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use asp_command::failure::Failure;
use asp_command::http_client;
use asp_command::print::printable;
use asp_identity::issuers::credentials::{Credentials, NamedCredentials, User};
use asp_mcp_client::client::modern::Eras;
use asp_mcp_client::client::proof::Proof;
use asp_mcp_client::client::{Client, ClientFault};
use asp_mcp_client::listing::{self, Lists};
use asp_outbound::Outbound;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};
use tokio::time::timeout;

/// Longest wait for a session, and for all of its lists. Each byte resets the timeout of a silent service.
const WITHIN: Duration = Duration::from_secs(120);
const SLOW: &str = "the service did not answer in full within two minutes";

/// Lists the upstream with one of the operator's credentials, which `named` reads, or with none.
pub(super) async fn list(
    url: &str,
    credential: Option<&str>,
    named: &dyn Fn() -> Result<NamedCredentials, Failure>,
) -> Result<Lists, Failure> {
    let header = match credential {
        None => None,
        Some(name) => Some(credential_header(name, &endpoint(url)?, named()?).await?),
    };
    list_with(url, header).await
}

/// Lists the upstream with a header that authenticates. The operator named the address, so it may be private.
pub(super) async fn list_with(
    url: &str,
    header: Option<(HeaderName, HeaderValue)>,
) -> Result<Lists, Failure> {
    let parsed = endpoint(url)?;
    let has_credential = header.is_some();
    let http = super::openapi::http(match has_credential {
        false => http_client::without_credential(&parsed),
        true => http_client::with_credential(&parsed),
    })?;
    let proof = header.map_or_else(Proof::default, |header| Proof::fixed(HeaderMap::from_iter([header])));
    let client = Client { http, url: parsed, tasks: Arc::default(), eras: Eras::default(), proof };
    // A service's own words are one line, lest they look like lines of this command.
    let said = |fault: &ClientFault| printable(&fault.to_string(), &[]);
    let greeted = timeout(WITHIN, client.initialize(listing::every_capability())).await;
    let greeted = greeted.map_err(|_| anyhow!("initialize a session at {url}: {SLOW}"))?;
    let session = greeted.map_err(|fault| {
        anyhow!("initialize a session at {url}: {}{}", said(&fault), remedy(&fault, has_credential))
    })?;
    let lists = timeout(WITHIN, listing::list(&client, &session)).await;
    // The session is ended at its server before this process exits.
    drop(session);
    client.tasks.drained().await;
    let lists = lists.map_err(|_| anyhow!("read the lists of {url}: {SLOW}"))?;
    Ok(lists.map_err(|fault| anyhow!("read the lists of {url}: {}", said(&fault)))?)
}

/// Reads the address of an endpoint. Without a scheme, the host of `localhost:3001` would be one.
fn endpoint(url: &str) -> Result<Url, Failure> {
    let parsed =
        Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    let refused = || format!("`{url}` is not an http or https URL, such as https://tickets.example.com/mcp");
    parsed.ok_or_else(|| Failure::bad("--mcp", refused()))
}

/// Remedy for a server's refusal of the greeting with this credential; empty where none is known.
fn remedy(fault: &ClientFault, has_credential: bool) -> &'static str {
    match fault {
        ClientFault::Refused { status, .. } if status.is_redirection() => {
            "; redirects are not followed: import the address that it leads to, often the same with or without a slash at \
             the end"
        }
        ClientFault::Refused { status: StatusCode::UNAUTHORIZED, .. } => match has_credential {
            false => "; name a credential for it with --credential",
            true => "; it does not accept this credential: look at its entry in ASP_CREDENTIALS",
        },
        ClientFault::Refused { status: StatusCode::METHOD_NOT_ALLOWED, .. } => {
            "; it accepts no messages there: import its Streamable HTTP URL, which differs from its URL for HTTP \
             with SSE (MCP 2024-11-05)"
        }
        ClientFault::Refused { status: StatusCode::NOT_FOUND, .. } => {
            "; there is no MCP endpoint at this path, which often ends with /mcp"
        }
        _ => "",
    }
}

/// Returns the header that the operator's credential of this name gives to requests to `url`.
pub(super) async fn credential_header(
    name: &str,
    url: &Url,
    named: NamedCredentials,
) -> Result<(HeaderName, HeaderValue), Failure> {
    let credentials = Credentials::new(named, Arc::new(Outbound::new().context("build the HTTP clients")?));
    let header = credentials.header(name, User::Platform, url).await;
    header.map_err(|error| Failure::bad("--credential", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_of_http_is_refused_before_anything_is_sent() {
        for url in ["localhost:3001/mcp", "tickets.example.com/mcp", "ftp://a.example/mcp", "http://", ""] {
            assert!(matches!(endpoint(url), Err(Failure::Configuration(_))), "{url}");
        }
        assert_eq!(endpoint("http://localhost:3001/mcp").unwrap().port(), Some(3001));
    }

    #[test]
    fn what_a_server_refuses_is_explained() {
        for (status, explained) in [
            (307, "slash"),
            (308, "slash"),
            (401, "--credential"),
            (405, "Streamable HTTP"),
            (404, "/mcp"),
            (500, ""),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let fault =
                ClientFault::Refused { status, wait: None, names_session: false, said: String::new() };
            let remedy = remedy(&fault, false);
            assert!(remedy.contains(explained) && remedy.is_empty() == explained.is_empty(), "{status}");
        }
        let status = StatusCode::UNAUTHORIZED;
        let fault = ClientFault::Refused { status, wait: None, names_session: false, said: String::new() };
        assert!(remedy(&fault, true).contains("does not accept"));
    }
}
