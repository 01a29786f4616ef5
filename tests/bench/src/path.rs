//! The whole path: a stack of its own (control plane, gateway, builtin `echo`) behind an Envoy as shipped,
//! with one worker like every other row's. Gives the tokens and the sessions that all rows use.

use std::net::SocketAddr;

use anyhow::Result;
use asp_e2e::http1;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool::Build;
use asp_e2e::wait;

use crate::chain::SERVER;
use crate::edge::Edge;
use crate::issuer::Issuer;
use crate::session::Endpoint;
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
    pub(crate) async fn start(build: Build) -> Result<Path> {
        let stack = Stack::start(Options::of(build.clone())).await?;
        let edge = Edge::shipped(&build, stack.ports.xds).await?;
        let address = edge.address();
        wait::until("the measured Envoy serves", wait::START, || async move {
            http1::get(address, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
        })
        .await?;
        let issuer = Issuer::development(stack.state.path())?;
        let mut path = Path { stack, edge, issuer, sessions: Vec::new() };
        for index in 0..USERS {
            let token = path.issuer.mint(&path.public_url(), &user(index))?;
            path.sessions.push(path.endpoint().open_session(&token).await?);
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

    /// The gateway without Envoy.
    fn endpoint(&self) -> Endpoint {
        let target = format!("/{SERVER}/mcp");
        Endpoint { address: self.gateway(), target, authority: self.authority() }
    }

    pub(crate) fn gateway(&self) -> SocketAddr {
        self.stack.gateway()
    }

    /// The gateway, behind the measured Envoy or alone.
    pub(crate) fn processes(&self, with_envoy: bool) -> Processes {
        let envoy = if with_envoy { self.edge.envoy.process.id() } else { None };
        Processes { envoy, gateway: self.stack.asp.id(), backend: None }
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
}

fn user(index: usize) -> String {
    format!("user-{index:02}")
}
