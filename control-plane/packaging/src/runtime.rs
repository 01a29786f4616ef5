//! `asp-runtime` on one developer's machine: its command line, its start, and the connection to it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use asp_proto::supervisor::runtime_supervisor_client::RuntimeSupervisorClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

/// Maximum size of a message: the largest answer of a stdio server and its envelope.
const MAX_MESSAGE: usize = (16 << 20) + (64 << 10);
const CONNECT_EVERY: Duration = Duration::from_millis(20);

/// `true` has the effect of `--allow-private`.
pub const ENV_ALLOW_PRIVATE: &str = "ASP_ALLOW_PRIVATE";

/// Reads the value of `ASP_ALLOW_PRIVATE`.
pub fn allow_private(text: Option<&str>) -> Result<bool, String> {
    match text {
        Some("true") => Ok(true),
        None | Some("" | "false") => Ok(false),
        Some(other) => Err(format!("must be `true` or `false`, not `{other}`")),
    }
}

/// Paths that the runtime uses.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Folder of the installed plugins.
    pub plugins: &'a Path,
    /// State directory of the runtime.
    pub state: &'a Path,
    pub socket: &'a Path,
    /// Whether plugins may reach the private services that their specs list.
    pub allow_private: bool,
}

impl Places<'_> {
    pub fn arguments(&self) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let places = [("--plugins", self.plugins), ("--state", self.state), ("--socket", self.socket)];
        let places = places.into_iter().flat_map(|(name, path)| [name.to_owned(), text(path)]);
        // The plugins are the author's own.
        let development = self.allow_private.then(|| "--egress-development".to_owned());
        places.chain(["--bounds".to_owned(), "sampled".to_owned()]).chain(development).collect()
    }
}

/// Completes once something listens on the socket.
pub async fn listens(socket: &Path) {
    while UnixStream::connect(socket).await.is_err() {
        tokio::time::sleep(CONNECT_EVERY).await;
    }
}

/// Returns a client that connects with its first request.
pub fn client(socket: &Path) -> anyhow::Result<RuntimeSupervisorClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()));
    let channel = endpoint.context("name the runtime's socket")?.connect_lazy();
    Ok(RuntimeSupervisorClient::new(channel).max_decoding_message_size(MAX_MESSAGE))
}
