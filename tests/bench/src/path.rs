//! The whole path: a stack of its own (control plane, gateway, builtin `echo`) behind an Envoy as shipped,
//! with one worker like every other row's. Gives the tokens and the sessions that all rows use.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use asp_e2e::http1::{self, Request};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use serde_json::{Value, json};

use crate::chain::SERVER;
use crate::edge::Edge;
use crate::issuer::Issuer;
use crate::traffic::Caller;
use crate::usage::Processes;

/// Principals; each opens one legacy session, and all its tokens share it.
const USERS: usize = 16;

/// The running path.
pub(crate) struct Path {
    pub stack: Stack,
    pub edge: Edge,
    pub issuer: Issuer,
    sessions: Vec<String>,
}

impl Path {
    pub(crate) async fn start() -> Result<Path> {
        let stack = Stack::start(Options::repository()?).await?;
        let edge = Edge::shipped(stack.ports.xds).await?;
        let address = edge.address();
        wait::until("the measured Envoy serves", wait::START, || async move {
            http1::get(address, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
        })
        .await?;
        let issuer = Issuer::development(stack.state.path())?;
        let mut path = Path { stack, edge, issuer, sessions: Vec::new() };
        for index in 0..USERS {
            let session = path.open_session(&user(index)).await?;
            path.sessions.push(session);
        }
        Ok(path)
    }

    /// The origin clients use: the audience of every token and the `host` of every request.
    pub(crate) fn public_url(&self) -> String {
        format!("http://{}", self.stack.edge())
    }

    pub(crate) fn authority(&self) -> String {
        self.stack.edge().to_string()
    }

    pub(crate) fn gateway(&self) -> SocketAddr {
        self.stack.gateway()
    }

    /// The gateway, behind the measured Envoy or alone.
    pub(crate) fn processes(&self, with_envoy: bool) -> Processes {
        let envoy = if with_envoy { self.edge.envoy.process.id() } else { None };
        Processes { envoy, gateway: self.stack.asp.id() }
    }

    /// That many callers with tokens nobody has seen, signed by `issuer`.
    pub(crate) fn callers(&self, issuer: &Issuer, count: usize) -> Result<Vec<Caller>> {
        let audience = self.public_url();
        let mut callers = Vec::with_capacity(count);
        for (index, session) in (0..USERS).zip(&self.sessions).cycle().take(count) {
            callers.push(Caller { token: issuer.mint(&audience, &user(index))?, session: session.clone() });
        }
        Ok(callers)
    }

    async fn open_session(&self, user: &str) -> Result<String> {
        let token = self.issuer.mint(&self.public_url(), user)?;
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
        });
        let opened = self.post(
            &token,
            None,
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}),
        );
        let opened = opened.await?;
        let session =
            opened.header("mcp-session-id").context("initialize answers with a session")?.to_string();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post(&token, Some(&session), ready).await?;
        Ok(session)
    }

    async fn post(&self, token: &str, session: Option<&str>, message: Value) -> Result<http1::Response> {
        let mut headers = vec![
            ("host".to_string(), self.authority()),
            ("authorization".into(), format!("Bearer {token}")),
            ("content-type".into(), "application/json".into()),
            ("accept".into(), "application/json, text/event-stream".into()),
        ];
        if let Some(session) = session {
            headers.push(("mcp-session-id".into(), session.into()));
            headers.push(("mcp-protocol-version".into(), "2025-11-25".into()));
        }
        let request = Request {
            method: "POST".into(),
            target: format!("/{SERVER}/mcp"),
            headers: headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect(),
            body: message.to_string().into_bytes(),
        };
        let answer = http1::send(self.gateway(), &request).await?;
        anyhow::ensure!((200..300).contains(&answer.status), "{}: {}", answer.status, answer.text());
        Ok(answer)
    }
}

fn user(index: usize) -> String {
    format!("user-{index:02}")
}
