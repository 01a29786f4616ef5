//! The MCP client of `asp mcp --embedded`, on this process's standard input and output: it talks to one of the servers
//! that the session serves, through the gateway's own port, as every other client does.
//!
//! Keeps true: it is served from the first load on, and what it said before waits; one that cannot be served ends the
//! process, which its user sees, where waiting for the specs to be mended would look like a server that hangs.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio_util::task::AbortOnDropHandle;

use super::{Readers, Served};
use crate::bridge::{self, Credential, Place};
use crate::stack::ready;

/// How far the client is.
pub(super) enum Client {
    /// There is none.
    None,
    /// For the server of this name, else the only one.
    Waits(Option<String>),
    Talks(AbortOnDropHandle<anyhow::Result<()>>),
}

impl Client {
    pub(super) fn of(readers: &Readers) -> Client {
        match readers {
            Readers::Client { server } => Client::Waits(server.clone()),
            Readers::Person | Readers::Programs => Client::None,
        }
    }

    /// These servers are in force.
    pub(super) fn begin(&mut self, servers: &[String], served: &Served) -> anyhow::Result<()> {
        let Client::Waits(wanted) = self else { return Ok(()) };
        let server = wanted_of(wanted.as_deref(), servers)?;
        let base = served.urls.edge.parse().context("the gateway's own URL")?;
        let url = bridge::below(base, server).context("the gateway's own URL")?;
        let issuer = Arc::clone(&served.issuer);
        let credential = Credential::Minted(Arc::new(move || ready::client_token(&issuer)));
        // Its end is the process's: nothing else stops it.
        let talking = bridge::run(Place { url, credential }, std::future::pending());
        *self = Client::Talks(AbortOnDropHandle::new(tokio::spawn(talking)));
        Ok(())
    }

    /// The directory has faults, which were told.
    pub(super) fn refused(&self, directory: &Path) -> anyhow::Result<()> {
        match self {
            Client::Waits(_) => bail!("{} has faults, and is not served", directory.display()),
            Client::None | Client::Talks(_) => Ok(()),
        }
    }

    /// Returns when the client is gone.
    pub(super) async fn ended(&mut self) -> anyhow::Result<()> {
        match self {
            Client::Talks(talking) => talking.await.context("the client's bridge")?,
            Client::None | Client::Waits(_) => std::future::pending().await,
        }
    }
}

/// The server that is meant.
fn wanted_of<'a>(wanted: Option<&str>, servers: &'a [String]) -> anyhow::Result<&'a str> {
    let there = servers.join(", ");
    match (wanted, servers) {
        (Some(name), _) => match servers.iter().find(|server| *server == name) {
            Some(server) => Ok(server),
            None => bail!("there is no server {name}; there are: {there}"),
        },
        (None, [server]) => Ok(server),
        (None, _) => bail!("say by --server NAME which one is meant; there are: {there}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_server_needs_no_name_and_one_of_several_does() {
        let servers = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let two = servers(&["demo", "greet"]);
        assert_eq!(wanted_of(None, &servers(&["greet"])).unwrap(), "greet");
        assert_eq!(wanted_of(Some("greet"), &two).unwrap(), "greet");
        for (wanted, there) in [(None, &two), (Some("other"), &two), (None, &servers(&[]))] {
            let why = wanted_of(wanted, there).unwrap_err().to_string();
            assert!(there.iter().all(|name| why.contains(name)), "{why}");
        }
    }
}
