//! Lists of an upstream MCP server, for a client with every capability: some servers list less to others.

use std::sync::Arc;

use anyhow::Context;
use asp_command::failure::Failure;
use asp_command::http_client;
use asp_identity::issuers::credentials::{Credentials, NamedCredentials, User};
use asp_mcp_client::client::modern::Eras;
use asp_mcp_client::client::proof::Proof;
use asp_mcp_client::client::{Client, ClientFault};
use asp_mcp_client::listing::{self, Lists};
use asp_outbound::Outbound;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Lists the upstream with one of the operator's credentials, which `named` reads, or with none.
pub(super) async fn list(
    url: &str,
    credential: Option<&str>,
    named: &dyn Fn() -> Result<NamedCredentials, Failure>,
) -> Result<Lists, Failure> {
    let header = match credential {
        None => None,
        Some(name) => {
            let parsed =
                reqwest::Url::parse(url).map_err(|error| Failure::bad("--mcp", error.to_string()))?;
            Some(credential_header(name, &parsed, named()?).await?)
        }
    };
    list_with(url, header).await
}

/// Lists the upstream with a header that authenticates. The operator named the address, so it may be private.
pub(super) async fn list_with(
    url: &str,
    header: Option<(HeaderName, HeaderValue)>,
) -> Result<Lists, Failure> {
    let parsed = reqwest::Url::parse(url).map_err(|error| Failure::bad("--mcp", error.to_string()))?;
    let has_credential = header.is_some();
    let http = super::openapi::http(match has_credential {
        false => http_client::without_credential(&parsed),
        true => http_client::with_credential(&parsed),
    })?;
    let proof = header.map_or_else(Proof::default, |header| Proof::fixed(HeaderMap::from_iter([header])));
    let client = Client { http, url: parsed, tasks: Arc::default(), eras: Eras::default(), proof };
    let greeted = client.initialize(listing::every_capability()).await;
    let session = greeted.map_err(|fault| {
        anyhow::anyhow!("initialize a session at {url}: {fault}{}", remedy(&fault, has_credential))
    })?;
    let lists = listing::list(&client, &session).await;
    // The session is ended at its server before this process exits.
    drop(session);
    client.tasks.drained().await;
    Ok(lists.with_context(|| format!("read the lists of {url}"))?)
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
        _ => "",
    }
}

/// Returns the header that the operator's credential of this name gives to requests to `url`.
pub(super) async fn credential_header(
    name: &str,
    url: &reqwest::Url,
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
    fn what_a_server_refuses_is_explained() {
        for (status, explained) in
            [(307, "slash"), (308, "slash"), (401, "--credential"), (405, "Streamable HTTP"), (404, "")]
        {
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
