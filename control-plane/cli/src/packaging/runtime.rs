//! `asp-runtime` on one developer's machine: its command line, when it listens, how it is spoken to.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

const CONNECT_EVERY: Duration = Duration::from_millis(20);

/// Where it finds what.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The installed plugins.
    pub plugins: &'a Path,
    /// Its own directory.
    pub state: &'a Path,
    pub socket: &'a Path,
}

impl Places<'_> {
    pub fn arguments(&self) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let places = [("--plugins", self.plugins), ("--state", self.state), ("--socket", self.socket)];
        let places = places.into_iter().flat_map(|(name, path)| [name.to_owned(), text(path)]);
        // The plugins are the author's own.
        places.chain(["--bounds".to_owned(), "sampled".to_owned()]).collect()
    }
}

/// Ends when something listens on the socket, else never.
pub async fn listens(socket: &Path) {
    while UnixStream::connect(socket).await.is_err() {
        tokio::time::sleep(CONNECT_EVERY).await;
    }
}

/// Connects with the first request.
pub fn client(socket: &Path) -> anyhow::Result<RuntimeSupervisorClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()));
    Ok(RuntimeSupervisorClient::new(endpoint.context("name the runtime's socket")?.connect_lazy()))
}
