//! Clients of either era, through the gateway's router.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Fixture, token};

/// Trace of every request, so that answers do not differ by their trace.
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A legacy client with one session.
pub(crate) struct Legacy {
    pub fixture: Fixture,
    pub server: String,
    pub token: String,
    pub session: String,
    pub revision: String,
}

impl Legacy {
    pub(crate) async fn connect(
        fixture: &Fixture,
        server: &str,
        user: &str,
        revision: &str,
        capabilities: Value,
    ) -> Legacy {
        Legacy::connect_as(fixture, server, token(user), revision, capabilities).await
    }

    pub(crate) async fn connect_as(
        fixture: &Fixture,
        server: &str,
        token: String,
        revision: &str,
        capabilities: Value,
    ) -> Legacy {
        let mut client = Legacy {
            fixture: fixture.clone(),
            server: server.into(),
            token,
            session: String::new(),
            revision: revision.into(),
        };
        let answer = client
            .request(
                1,
                "initialize",
                json!({"protocolVersion": revision, "capabilities": capabilities,
                     "clientInfo": {"name": "test", "version": "1"}}),
            )
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        assert_eq!(answer.json()["result"]["protocolVersion"], revision);
        client.session = answer.headers["mcp-session-id"].to_str().unwrap().into();
        let answer = client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
        client
    }

    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("authorization", format!("Bearer {}", self.token)),
            ("content-type", "application/json".into()),
            ("accept", "application/json, text/event-stream".into()),
            ("traceparent", TRACEPARENT.into()),
        ];
        if !self.session.is_empty() {
            headers.push(("mcp-session-id", self.session.clone()));
            headers.push(("mcp-protocol-version", self.revision.clone()));
        }
        headers
    }

    pub(crate) async fn request(&self, id: u64, method: &str, params: Value) -> Answer {
        self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await
    }

    pub(crate) async fn post(&self, message: &Value) -> Answer {
        let headers = self.headers();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.fixture
            .send(Method::POST, &format!("/{}/mcp", self.server), &headers, &message.to_string())
            .await
    }

    /// Sends a request and returns with the headers, the body still open.
    pub(crate) async fn open(&self, message: &Value) -> axum::response::Response {
        let headers = self.headers();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.fixture
            .open(Method::POST, &format!("/{}/mcp", self.server), &headers, &message.to_string())
            .await
    }
}

/// A modern request with everything the revision requires.
#[derive(Clone)]
pub(crate) struct Modern {
    pub headers: Vec<(String, String)>,
    pub body: Value,
    pub server: String,
}

impl Modern {
    pub(crate) fn new(server: &str, token: &str, method: &str, mut params: Value) -> Modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        let mut headers = vec![
            ("authorization".into(), format!("Bearer {token}")),
            ("content-type".into(), "application/json".into()),
            ("accept".into(), "application/json, text/event-stream".into()),
            ("mcp-protocol-version".into(), "2026-07-28".into()),
            ("mcp-method".into(), method.into()),
            ("traceparent".into(), TRACEPARENT.into()),
        ];
        if let Some(name) = params.get("name").or(params.get("uri")).and_then(Value::as_str) {
            headers.push(("mcp-name".into(), name.into()));
        }
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        Modern { headers, body, server: server.into() }
    }

    pub(crate) fn without(mut self, header: &str) -> Modern {
        self.headers.retain(|(name, _)| name != header);
        self
    }

    pub(crate) fn with(self, header: &str, value: &str) -> Modern {
        let mut without = self.without(header);
        without.headers.push((header.into(), value.into()));
        without
    }

    pub(crate) fn capabilities(mut self, capabilities: Value) -> Modern {
        self.body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        self
    }

    pub(crate) async fn send(&self, fixture: &Fixture) -> Answer {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fixture.send(Method::POST, &format!("/{}/mcp", self.server), &headers, &self.body.to_string()).await
    }

    pub(crate) async fn open(&self, fixture: &Fixture) -> axum::response::Response {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fixture.open(Method::POST, &format!("/{}/mcp", self.server), &headers, &self.body.to_string()).await
    }
}
