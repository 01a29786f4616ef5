//! The peer: the `mcp-proxy` crate before an MCP server of the bench, alone and behind the plain Envoy. It has no
//! authentication, no policy, no limits and no audit to do.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use asp_e2e::process::Process;
use asp_e2e::{http1, tool, wait};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::process::Command;

use crate::echo;
use crate::session::Endpoint;
use crate::traffic::Caller;
use crate::usage::Processes;

/// The peer's name for its one backend.
const BACKEND: &str = "bench";
/// The tool behind the peer, which puts the backend's name before it.
pub(crate) const PEER_TOOL: &str = "bench/echo";

/// The running peer.
pub(crate) struct Peer {
    process: Process,
    echo: Process,
    address: SocketAddr,
    echo_address: SocketAddr,
    /// Keeps the port: bound and not listening, so that the peer alone can take it.
    _port: TcpSocket,
    _directory: TempDir,
}

impl Peer {
    pub(crate) async fn start() -> Result<Peer> {
        let (echo, echo_address) = echo::start().await?;
        let port = TcpSocket::new_v4()?;
        port.set_reuseaddr(true)?;
        port.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = port.local_addr()?;
        let directory = tempfile::tempdir()?;
        let config = directory.path().join("proxy.toml");
        std::fs::write(&config, configuration(address, echo_address))?;
        let mut command = Command::new(tool::mcp_proxy()?);
        command.arg("--config").arg(&config);
        let process = Process::start("mcp-proxy", command)?;
        let up = wait::until("mcp-proxy serves", wait::START, || async move {
            http1::get(address, "/livez", &[]).await.ok().filter(|answer| answer.status == 200)
        });
        up.await.with_context(|| process.tail())?;
        Ok(Peer { process, echo, address, echo_address, _port: port, _directory: directory })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn echo_address(&self) -> SocketAddr {
        self.echo_address
    }

    /// The peer and its backend.
    pub(crate) fn processes(&self) -> Processes {
        Processes { envoy: None, gateway: self.process.id(), backend: self.echo.id() }
    }
}

/// The same callers with sessions of another server, one for each of theirs.
pub(crate) async fn admitted(endpoint: &Endpoint, callers: &[Caller]) -> Result<Vec<Caller>> {
    let mut known: Vec<(&str, String)> = Vec::new();
    let mut admitted = Vec::with_capacity(callers.len());
    for caller in callers {
        let session = match known.iter().find(|(before, _)| *before == caller.session) {
            Some((_, session)) => session.clone(),
            None => {
                let session = endpoint.open_session(&caller.token).await?;
                known.push((&caller.session, session.clone()));
                session
            }
        };
        admitted.push(Caller { token: caller.token.clone(), session });
    }
    Ok(admitted)
}

fn configuration(listen: SocketAddr, backend: SocketAddr) -> String {
    format!(
        "[proxy]\nname = \"bench\"\n[proxy.listen]\nhost = \"{}\"\nport = {}\n\
         [[backends]]\nname = \"{BACKEND}\"\ntransport = \"http\"\nurl = \"http://{backend}/mcp\"\n",
        listen.ip(),
        listen.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::TOOL;

    #[test]
    fn the_peers_tool_is_its_backends() {
        assert_eq!(PEER_TOOL, format!("{BACKEND}/{TOOL}"));
    }

    #[tokio::test]
    async fn callers_that_shared_a_session_share_one_there() {
        let address = crate::backend::start_with(crate::echo::answer).unwrap();
        let endpoint = Endpoint { address, target: "/mcp".into(), authority: address.to_string() };
        let caller = |token: &str, session: &str| Caller { token: token.into(), session: session.into() };
        let callers = [caller("a", "one"), caller("b", "two"), caller("c", "one")];
        let there = admitted(&endpoint, &callers).await.unwrap();
        assert_eq!(there.iter().map(|one| one.token.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(there[0].session, there[2].session);
        assert_ne!(there[0].session, "one");
    }
}
