//! The admin API client of the commands (`ASP_ADMIN_URL`, `ASP_ADMIN_TOKEN`).

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_command::http_client;
use asp_control::catalog::without_commands;
use asp_platform::secret::Secret;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, LINK, LOCATION};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use super::answer::{self, is, list, number, text};
use super::stored_login;

pub const ENV_ADMIN_TOKEN: &str = "ASP_ADMIN_TOKEN";
/// All characters except the unreserved ones (RFC 3986 section 2.3).
pub(super) const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Timeout of a request: compiling a large server takes seconds on a small machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a transfer: the largest package at 3 Mbit/s.
const TRANSFER: Duration = Duration::from_secs(900);

/// The admin API of one control plane.
pub struct AdminClient {
    client: Client,
    url: String,
    token: Secret,
}

/// A response of the API, successful or not.
pub struct ApiResponse {
    pub status: StatusCode,
    pub body: Value,
    /// Revision of the resource for `If-Match`; `None` if it was never written.
    pub etag: Option<String>,
    /// Path of the next page, from the `Link` header.
    pub next: Option<String>,
}

impl AdminClient {
    pub fn new(environment: &dyn Environment) -> Result<AdminClient, Failure> {
        AdminClient::of(None, environment)
    }

    /// Creates a client for `url` or, without one, for the environment's URL.
    pub fn of(url: Option<&str>, environment: &dyn Environment) -> Result<AdminClient, Failure> {
        let url = url
            .map_or_else(|| stored_login::admin_url(environment), |url| url.trim_end_matches('/').to_owned());
        let token = match environment.get(ENV_ADMIN_TOKEN) {
            Some(token) => Some(Secret::new(token)),
            None => stored_login::token(environment, &url)?,
        };
        let Some(token) = token else {
            return Err(Failure::bad(
                ENV_ADMIN_TOKEN,
                "is required: `asp login` gets one, in development `asp token --admin --user NAME` mints one",
            ));
        };
        let client = http_client::builder(&url, environment)?;
        let client = client.timeout(TIMEOUT).build().context("create the HTTP client")?;
        Ok(AdminClient { client, url, token })
    }

    pub async fn get(&self, path: &str) -> Result<ApiResponse, Failure> {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<ApiResponse, Failure> {
        self.send(self.request(Method::PUT, path).json(body)).await
    }

    /// Replaces the resource that was read with this ETag; rejected (412) if it was written since.
    pub async fn put_if_match(
        &self,
        path: &str,
        body: &Value,
        read: Option<&str>,
    ) -> Result<ApiResponse, Failure> {
        let request = self.request(Method::PUT, path).json(body);
        let request = match read {
            Some(etag) => request.header(IF_MATCH, etag),
            None => request.header(IF_NONE_MATCH, "*"),
        };
        self.send(request).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<ApiResponse, Failure> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// Posts without a body if the resource is as it was read with this ETag; rejected (412) if it was written since.
    pub async fn post_if_match(&self, path: &str, read: Option<&str>) -> Result<ApiResponse, Failure> {
        let request = self.request(Method::POST, path);
        self.send(read.into_iter().fold(request, |request, etag| request.header(IF_MATCH, etag))).await
    }

    /// Deletes from the resource that was read with this ETag; rejected (412) if it was written since.
    pub async fn delete_if_match(&self, path: &str, read: Option<&str>) -> Result<ApiResponse, Failure> {
        let request = self.request(Method::DELETE, path);
        self.send(read.into_iter().fold(request, |request, etag| request.header(IF_MATCH, etag))).await
    }

    pub async fn delete(&self, path: &str) -> Result<ApiResponse, Failure> {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Uploads a file of `size` bytes.
    pub async fn upload(&self, path: &str, file: tokio::fs::File, size: u64) -> Result<ApiResponse, Failure> {
        let request = self
            .request(Method::PUT, path)
            .timeout(TRANSFER)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, size)
            .body(file);
        self.send(request).await
    }

    /// Downloads into a file, at most `bound` bytes; `None` if the API does not have the resource.
    pub async fn download(&self, path: &str, file: &Path, bound: u64) -> Result<Option<()>, Failure> {
        let request = self.request(Method::GET, path).timeout(TRANSFER);
        let mut response = request.send().await.map_err(|error| self.connection_failure(&error))?;
        if response.status() == StatusCode::TEMPORARY_REDIRECT {
            response = self.follow_redirect(&response).await?;
        }
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !response.status().is_success() {
            return Err(read(response).await?.accepted().err().unwrap_or(Failure::Refused));
        }
        let mut written = tokio::fs::File::create(file).await.context("create a file")?;
        let mut size = 0;
        // It may come from an object store, by a URL that is a credential.
        let without_url = reqwest::Error::without_url;
        while let Some(piece) = response.chunk().await.map_err(without_url).context("read the answer")? {
            size += piece.len() as u64;
            if size > bound {
                return Err(anyhow::anyhow!("{} sends more than {bound} bytes", self.url).into());
            }
            written.write_all(&piece).await.context("write a file")?;
        }
        written.flush().await.context("write a file")?;
        Ok(Some(()))
    }

    /// Copies a long answer to `out` as it arrives.
    pub async fn copy(&self, path: &str, out: &mut impl std::io::Write) -> Result<(), Failure> {
        let request = self.request(Method::GET, path).timeout(TRANSFER);
        let mut response = request.send().await.map_err(|error| self.connection_failure(&error))?;
        if !response.status().is_success() {
            return Err(read(response).await?.accepted().err().unwrap_or(Failure::Refused));
        }
        while let Some(piece) = response.chunk().await.context("read the answer, which is incomplete")? {
            out.write_all(&piece).context("write the answer")?;
        }
        out.flush().context("write the answer")?;
        Ok(())
    }

    /// Follows the API's redirect to a signed URL of the object store, without sending the token there.
    async fn follow_redirect(&self, answer: &Response) -> Result<Response, Failure> {
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.context("the API redirects to no URL")?;
        let client = http_client::builder(location, &ProcessEnvironment)?;
        let client = client.timeout(TRANSFER).build().context("create the HTTP client")?;
        let got = client.get(location).send().await;
        // The URL is a credential.
        Ok(got.map_err(reqwest::Error::without_url).context("get the file from the object store")?)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(self.token.expose())
    }

    async fn send(&self, request: RequestBuilder) -> Result<ApiResponse, Failure> {
        read(request.send().await.map_err(|error| self.connection_failure(&error))?).await
    }

    /// Returns one line that names the setting and the remedy, in place of the client library's nested errors.
    fn connection_failure(&self, error: &reqwest::Error) -> Failure {
        let problem = if is_about_a_certificate(error) {
            "its certificate is not trusted here, or is for another name: name its authority's PEM file in SSL_CERT_FILE, and \
             in ASP_ADMIN_URL the host that the certificate names"
        } else if error.is_connect() {
            "nothing answers there: start one with `make run` or `asp serve --dev`, or name another with \
             ASP_ADMIN_URL"
        } else if error.is_timeout() {
            "no answer in time: look at its log, or try again"
        } else {
            tracing::debug!(%error, "the request to the admin API failed");
            "the request failed: is ASP_ADMIN_URL (scheme, host and port) the admin API's?"
        };
        Failure::Other(anyhow::anyhow!("{}: {problem}", self.url))
    }
}

/// Whether the server was reached and its certificate was rejected. The TLS library is not a dependency of this crate, so its
/// message has to be matched.
fn is_about_a_certificate(error: &reqwest::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.to_string().contains("invalid peer certificate") {
            return true;
        }
        source = error.source();
    }
    false
}

async fn read(response: Response) -> Result<ApiResponse, Failure> {
    let status = response.status();
    let etag = response.headers().get(ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let link = response.headers().get(LINK).and_then(|value| value.to_str().ok());
    let next = link.and_then(next_path).map(str::to_owned);
    let text = response.text().await.context("read the answer")?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(ApiResponse { status, body, etag, next })
}

/// Returns the path of a link to the next page (RFC 8288), if it is one of the API.
fn next_path(link: &str) -> Option<&str> {
    let (path, parameters) = link.strip_prefix('<')?.split_once('>')?;
    (path.starts_with("/api/") && parameters == "; rel=\"next\"").then_some(path)
}

impl ApiResponse {
    /// Returns the body of a success, or fails with the refusal in words.
    pub fn accepted(self) -> Result<Value, Failure> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        Err(Failure::Other(anyhow::anyhow!("{}", self.refusal())))
    }

    /// Returns the refusal in one line, followed by its faults.
    pub fn refusal(&self) -> String {
        let text = |key: &str| text(&self.body, key);
        let mut line = format!("{} {}: {}", self.status.as_u16(), text("code"), text("title"));
        if !text("detail").is_empty() {
            line = format!("{line}: {}", text("detail"));
        }
        for fault in list(&self.body, "errors") {
            let field = |key: &str| answer::text(fault, key);
            let at = number(fault, "line");
            let said = format!("{}:{at}: {}: {}", field("file"), field("code"), field("message"));
            line = format!("{line}\n  {}", without_commands(&said));
        }
        for change in list(&self.body, "changes") {
            line = format!("{line}\n  {}", describe_change(change));
        }
        line
    }
}

/// Describes a difference between two versions of a server, in the form of the API and `asp diff`.
pub fn describe_change(change: &Value) -> String {
    let text = |key: &str| text(change, key);
    let weight = match (is(change, "breaking"), is(change, "versioned")) {
        (true, true) => "breaking, in a new major version",
        (true, false) => "BREAKING without a new major version",
        (false, _) => "compatible",
    };
    without_commands(&format!("{}{}: {} ({weight})", text("primitive"), text("path"), text("message")))
}

/// Returns an API path. Names are escaped, so that each stays one segment (RFC 3986 section 3.3).
pub fn api_path(segments: &[&str]) -> String {
    segments.iter().map(|segment| format!("/{}", utf8_percent_encode(segment, RESERVED))).collect()
}

/// Returns a path with its query; names and values are escaped.
pub fn with_query(path: &str, query: &[(&str, String)]) -> Result<String, Failure> {
    // Only the query of the URL is used.
    let url = Url::parse_with_params("http://localhost/", query).context("write the query")?;
    Ok(format!("{path}?{}", url.query().unwrap_or_default()))
}

/// Runs the future of a command that talks to the API.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_a_path_of_the_api() {
        assert_eq!(
            next_path("</api/audit/calls?cursor=1.2>; rel=\"next\""),
            Some("/api/audit/calls?cursor=1.2")
        );
        for link in
            ["", "/api/x", "</api/x>", "<https://evil.example/api/x>; rel=\"next\"", "</api/x>; rel=\"last\""]
        {
            assert_eq!(next_path(link), None, "{link}");
        }
    }

    #[test]
    fn a_name_in_a_path_is_one_segment_whatever_characters_it_has() {
        let of = |org: &str| api_path(&["api", "ratelimits", "orgs", org]);
        assert_eq!(of("acme-2.eu_x~"), "/api/ratelimits/orgs/acme-2.eu_x~");
        assert_eq!(of("Acme Holding/EMEA?#50%"), "/api/ratelimits/orgs/Acme%20Holding%2FEMEA%3F%2350%25");
        assert_eq!(of("ü"), "/api/ratelimits/orgs/%C3%BC");
    }
}
