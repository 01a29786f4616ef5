//! The MCP client of `asp mcp --embedded`, on this process's standard input and output. It talks to one of the session's
//! servers through the gateway's port, like every other client.
//!
//! Keeps true: the client is served from the first load on, and messages it sent before wait; if it cannot be served, the
//! process ends, which its user notices, whereas waiting for corrected specs would look like a hanging server.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio_util::task::AbortOnDropHandle;

use super::{Readers, SessionContext};
use crate::bridge::{self, Credential, ServerEndpoint};
use crate::stack::ready;

/// State of the client.
pub(super) enum EmbeddedClient {
    /// The session has no client.
    None,
    /// The client waits for the server of this name, or for the only one.
    Waits(Option<String>),
    Talks(AbortOnDropHandle<anyhow::Result<()>>),
}

impl EmbeddedClient {
    pub(super) fn of(readers: &Readers) -> EmbeddedClient {
        match readers {
            Readers::Client { server } => EmbeddedClient::Waits(server.clone()),
            Readers::Person | Readers::Programs => EmbeddedClient::None,
        }
    }

    /// Starts serving the client once these servers are in force.
    pub(super) fn begin(&mut self, servers: &[String], served: &SessionContext) -> anyhow::Result<()> {
        let EmbeddedClient::Waits(wanted) = self else { return Ok(()) };
        let server = server_of(wanted.as_deref(), servers)?;
        let base = served.urls.edge.parse().context("the gateway's own URL")?;
        let url = bridge::below(base, server, "mcp").context("the gateway's own URL")?;
        let issuer = Arc::clone(&served.issuer);
        let credential = Credential::Minted(Arc::new(move || ready::client_token(&issuer)));
        // Runs until the client is gone, which ends the process; nothing else stops it.
        let talking = bridge::run(ServerEndpoint { url, credential }, std::future::pending());
        *self = EmbeddedClient::Talks(AbortOnDropHandle::new(tokio::spawn(talking)));
        Ok(())
    }

    /// Fails if the client waits for a directory that has faults, which have been reported.
    pub(super) fn fail_if_waiting(&self, directory: &Path) -> anyhow::Result<()> {
        match self {
            EmbeddedClient::Waits(_) => bail!("{} has faults, and is not served", directory.display()),
            EmbeddedClient::None | EmbeddedClient::Talks(_) => Ok(()),
        }
    }

    /// Completes when the client is gone.
    pub(super) async fn client_gone(&mut self) -> anyhow::Result<()> {
        match self {
            EmbeddedClient::Talks(talking) => talking.await.context("the client's bridge")?,
            EmbeddedClient::None | EmbeddedClient::Waits(_) => std::future::pending().await,
        }
    }
}

/// Returns the name of the server that the client is for.
fn server_of<'a>(wanted: Option<&str>, servers: &'a [String]) -> anyhow::Result<&'a str> {
    let there = servers.join(", ");
    match (wanted, servers) {
        (Some(name), _) => match servers.iter().find(|server| *server == name) {
            Some(server) => Ok(server),
            None => bail!("server {name} does not exist; existing servers: {there}"),
        },
        (None, [server]) => Ok(server),
        (None, _) => bail!("choose a server with --server NAME; existing servers: {there}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_server_needs_no_name_and_one_of_several_does() {
        let servers = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let two = servers(&["demo", "greet"]);
        assert_eq!(server_of(None, &servers(&["greet"])).unwrap(), "greet");
        assert_eq!(server_of(Some("greet"), &two).unwrap(), "greet");
        for (wanted, there) in [(None, &two), (Some("other"), &two), (None, &servers(&[]))] {
            let why = server_of(wanted, there).unwrap_err().to_string();
            assert!(there.iter().all(|name| why.contains(name)), "{why}");
        }
    }
}
