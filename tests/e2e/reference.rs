//! The reference server behind the MCP backend, with the recorder on both of its sides: what official clients, the
//! platform and an official server say to each other fits the schemas.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait::ErrorDetails;
use asp_e2e::wire::{self, Link, Tap};
use asp_e2e::{http1, tool, wait};
use tokio::net::TcpSocket;
use tokio::process::Command;

use crate::clients::{self, Place};
use crate::trial::{Shared, trials};

trials! { reference:
    official_clients_call_the_official_server_and_all_that_is_said_fits,
}

async fn official_clients_call_the_official_server_and_all_that_is_said_fits(_: &Shared) -> Result<()> {
    let (mut everything, address, _port) = everything().await?;
    let record = wire::recording().context("the run is recorded")?;
    let tap = Tap::start(address, Link::UPSTREAM, record).await?;
    let environment = vec![("ASP_UPSTREAMS", format!("everything.internal=http://{}", tap.address))];
    let stack = Stack::start(Options { environment, ..Options::repository()? }).await?;
    let url = stack.mcp_url("everything");
    let token = stack.alice().await?;
    clients::all_at(&Place::everything(&url, &token)).await.with_details(|| everything.tail())?;
    stack.stop(&[]).await?;
    everything.stop().await?;
    Ok(())
}

/// The running server, and what keeps its port: bound and not listening, so that the server alone can take it.
async fn everything() -> Result<(Process, SocketAddr, TcpSocket)> {
    let port = TcpSocket::new_v4()?;
    port.set_reuseaddr(true)?;
    port.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = port.local_addr()?;
    let mut command = Command::new(tool::node()?);
    command.arg(tool::everything_js()?).arg("streamableHttp").env("PORT", address.port().to_string());
    let process = Process::start("everything", command)?;
    let answers = || async move { http1::get(address, "/mcp", &[]).await.ok() };
    wait::until("the reference server answers", wait::START, answers)
        .await
        .with_details(|| process.tail())?;
    Ok((process, address, port))
}
