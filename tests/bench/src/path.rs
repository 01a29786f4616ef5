//! The whole path: a stack of its own (control plane, gateway, builtin `echo`) behind an Envoy as shipped,
//! with one worker like every other row's. Gives the tokens and the sessions that all rows use.

use std::net::SocketAddr;

use anyhow::Result;
use asp_e2e::http1;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool::Build;
use asp_e2e::wait;

use crate::chain::SERVER;
use crate::edge::{self, Edge};
use crate::issuer::Issuer;
use crate::measurement::Place;
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
        Path::start_with(Options::of(build)).await
    }

    pub(crate) async fn start_with(options: Options) -> Result<Path> {
        let build = options.build.clone();
        let stack = Stack::start(options).await?;
        let edge = Edge::shipped(&build, stack.ports.xds, edge::ONE).await?;
        serves(&edge).await?;
        let issuer = Issuer::development(stack.state.path())?;
        let mut path = Path { stack, edge, issuer, sessions: Vec::new() };
        for index in 0..USERS {
            let token = path.issuer.mint(&path.public_url(), &user(index));
            path.sessions.push(path.endpoint().open_session(&token).await?);
        }
        Ok(path)
    }

    /// Another Envoy as shipped, with that many workers.
    pub(crate) async fn another_edge(&self, build: &Build, workers: u8) -> Result<Edge> {
        let edge = Edge::shipped(build, self.stack.ports.xds, workers).await?;
        serves(&edge).await?;
        Ok(edge)
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

    /// A row of the gateway alone.
    pub(crate) fn alone(&self, row: &'static str) -> Place {
        let processes = Processes { gateway: self.stack.asp.id(), ..Processes::default() };
        Place { row, address: self.gateway(), processes }
    }

    /// A row of the gateway behind one of its Envoys.
    pub(crate) fn behind(&self, row: &'static str, edge: &Edge) -> Place {
        let processes = Processes { gateway: self.stack.asp.id(), ..edge.processes() };
        Place { row, address: edge.address(), processes }
    }

    /// That many callers with tokens nobody has seen, signed by `issuer`.
    pub(crate) fn callers(&self, issuer: &Issuer, count: usize) -> Result<Vec<Caller>> {
        let audience = self.public_url();
        let mut callers = Vec::with_capacity(count);
        for (index, session) in (0..USERS).zip(&self.sessions).cycle().take(count) {
            callers.push(Caller { token: issuer.mint(&audience, &user(index)), session: session.clone() });
        }
        Ok(callers)
    }
}

/// Until it has its configuration.
async fn serves(edge: &Edge) -> Result<()> {
    let address = edge.address();
    wait::until("the measured Envoy serves", wait::START, || async move {
        http1::get(address, "/healthz", &[]).await.ok().filter(|answer| answer.status == 200)
    })
    .await?;
    Ok(())
}

fn user(index: usize) -> String {
    format!("user-{index:02}")
}
