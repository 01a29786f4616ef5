//! The HTTP clients of commands, most of which send credentials: tokens, refresh tokens, device codes.
//!
//! Keeps true: redirects are not followed, so that a credential goes only where it was meant to; requests to this machine
//! ignore the environment's proxies; beyond this machine credentials are sent over TLS only, or within a mesh that encrypts.
//! A credential sent over plain HTTP, which an operator may allow for an origin of its own, bypasses every proxy.

use std::time::Duration;

use anyhow::bail;
use asp_platform::address;
use reqwest::{Client, ClientBuilder, Url, redirect};

use crate::environment::Environment;

/// `mesh` if a service mesh encrypts, so that plain HTTP may carry credentials.
pub const ENV_PEER_PLAINTEXT: &str = "ASP_PEER_PLAINTEXT";
/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Returns the settings of a client for `url`; fails if credentials would be sent unencrypted.
pub fn builder(url: &str, environment: &dyn Environment) -> anyhow::Result<ClientBuilder> {
    Ok(with_credential(&check(url, environment)?))
}

/// Returns the settings of a client for a URL that may receive a credential over whichever scheme it names.
pub fn with_credential(url: &Url) -> ClientBuilder {
    settings(is_direct(url, true))
}

/// Returns the settings of a client for a URL to which no credential is sent but the URL's own.
pub fn without_credential(url: &Url) -> ClientBuilder {
    settings(is_direct(url, false))
}

fn settings(is_direct: bool) -> ClientBuilder {
    let builder = Client::builder().redirect(redirect::Policy::none()).connect_timeout(CONNECT);
    if is_direct { builder.no_proxy() } else { builder }
}

/// Whether to ignore the environment's proxies: a proxy could answer in place of this machine, and would see a credential
/// sent over plain HTTP, one in the URL included.
fn is_direct(url: &Url, has_credential: bool) -> bool {
    let has_credential = has_credential || !url.username().is_empty() || url.password().is_some();
    names_this_machine(url) || (has_credential && url.scheme() == "http")
}

/// Rejects a URL to which credentials would be sent unencrypted.
fn check(url: &str, environment: &dyn Environment) -> anyhow::Result<Url> {
    let parsed = Url::parse(url).ok().filter(Url::has_host);
    let Some(parsed) = parsed else { bail!("`{url}` is not an http or https URL") };
    let in_mesh = environment.get(ENV_PEER_PLAINTEXT).is_some_and(|value| value == "mesh");
    match parsed.scheme() {
        "https" => Ok(parsed),
        "http" if names_this_machine(&parsed) || in_mesh => Ok(parsed),
        "http" => bail!(
            "{url}: credentials are not sent in clear beyond this machine: use https, a tunnel to a loopback address, or \
             {ENV_PEER_PLAINTEXT}=mesh where a mesh encrypts"
        ),
        _ => bail!("`{url}` is not an http or https URL"),
    }
}

fn names_this_machine(url: &Url) -> bool {
    url.host_str().is_some_and(address::is_this_machine)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn credentials_leave_this_machine_over_tls_or_within_a_mesh() {
        let none = BTreeMap::<&str, &str>::new();
        let mesh = BTreeMap::from([(ENV_PEER_PLAINTEXT, "mesh")]);
        for url in
            ["https://asp.example.com", "http://127.0.0.1:8081", "http://[::1]:1", "http://localhost/x"]
        {
            assert!(check(url, &none).is_ok(), "{url}");
        }
        for url in ["http://asp.example.com", "http://10.0.0.1:8081", "http://localhost.evil.example"] {
            let fault = check(url, &none).unwrap_err().to_string();
            assert!(fault.contains(url) && fault.contains("https"), "{fault}");
            assert!(check(url, &mesh).is_ok(), "{url}");
        }
        for url in ["", "asp.example.com", "ftp://127.0.0.1/", "file:///etc/passwd"] {
            assert!(check(url, &mesh).is_err(), "{url}");
        }
    }

    #[test]
    fn no_proxy_answers_for_this_machine_or_sees_a_credential_in_clear() {
        for (url, has_credential, direct) in [
            ("http://127.0.0.1:8080/demo/mcp", false, true),
            ("https://localhost/", false, true),
            ("http://crm.internal/mcp", true, true),
            ("http://crm.internal/mcp", false, false),
            ("http://team:pass@crm.internal/openapi.json", false, true),
            ("http://:pass@crm.internal/openapi.json", false, true),
            ("https://team:pass@crm.example.com/openapi.json", false, false),
            ("https://crm.example.com/mcp", true, false),
        ] {
            assert_eq!(is_direct(&Url::parse(url).unwrap(), has_credential), direct, "{url}");
        }
    }

    #[tokio::test]
    async fn no_redirect_is_followed_and_no_proxy_sees_what_is_for_this_machine() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).await.unwrap();
            let answer = "HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:1/b\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&bytes[..read]).into_owned()
        });
        let client = builder(&url, &BTreeMap::<&str, &str>::new()).unwrap().build().unwrap();
        let answer = client.post(&url).body("code").send().await.unwrap();
        assert_eq!(answer.status(), 307);
        assert!(
            served.await.unwrap().starts_with("POST /a HTTP/1.1"),
            "a proxy would be asked by the whole URL"
        );
    }
}
