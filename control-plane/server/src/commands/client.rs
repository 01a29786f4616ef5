//! The commands' client of the admin API (`ASP_ADMIN_URL`, `ASP_ADMIN_TOKEN`).

use std::time::Duration;

use anyhow::Context;
use asp_platform::secret::Secret;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::Value;

use super::Failure;
use crate::settings::DEFAULT_ADMIN_PORT;
use crate::settings::source::Environment;

pub const ENV_ADMIN_URL: &str = "ASP_ADMIN_URL";
pub const ENV_ADMIN_TOKEN: &str = "ASP_ADMIN_TOKEN";
/// Compiling a large server takes seconds on a small machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The admin API of one control plane.
pub struct AdminClient {
    client: Client,
    url: String,
    token: Secret,
}

/// A refusal of the API, or its answer.
pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

impl AdminClient {
    pub fn new(environment: &dyn Environment) -> Result<AdminClient, Failure> {
        let url = environment
            .get(ENV_ADMIN_URL)
            .unwrap_or_else(|| format!("http://127.0.0.1:{DEFAULT_ADMIN_PORT}"));
        let Some(token) = environment.get(ENV_ADMIN_TOKEN) else {
            return Err(Failure::bad(
                ENV_ADMIN_TOKEN,
                "is required: `asp token --admin --user NAME` mints one",
            ));
        };
        let client = Client::builder().timeout(TIMEOUT).build().context("make the HTTP client")?;
        Ok(AdminClient { client, url: url.trim_end_matches('/').to_owned(), token: Secret::new(token) })
    }

    pub async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.send(self.request(Method::PUT, path).json(body)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(self.token.expose())
    }

    async fn send(&self, request: RequestBuilder) -> Result<Answer, Failure> {
        let response = request.send().await.with_context(|| format!("ask {}", self.url))?;
        let status = response.status();
        let text = response.text().await.context("read the answer")?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, body })
    }
}

impl Answer {
    /// The body of a success; a refusal in words.
    pub fn accepted(self) -> Result<Value, Failure> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        Err(Failure::Other(anyhow::anyhow!("{}", self.refusal())))
    }

    /// A refusal in one line, its faults after it.
    pub fn refusal(&self) -> String {
        let text = |key: &str| self.body.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut line = format!("{} {}: {}", self.status.as_u16(), text("code"), text("title"));
        if !text("detail").is_empty() {
            line = format!("{line}: {}", text("detail"));
        }
        for fault in self.body.get("errors").and_then(Value::as_array).into_iter().flatten() {
            let field = |key: &str| fault.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let at = fault.get("line").and_then(Value::as_u64).unwrap_or(0);
            line = format!("{line}\n  {}:{at}: {}: {}", field("file"), field("code"), field("message"));
        }
        line
    }
}

/// Runs the future of a command that talks to the API.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(work)
}
