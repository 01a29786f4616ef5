//! What `asp dev` does in the process that serves: applies a directory, says where it is, follows its changes.
//!
//! Keeps true: what has a fault is told and changes nothing of what is served, specs and code. Whoever waits for the
//! servers on standard input and output (`asp mcp --embedded`) is served from the first load on.

mod client;
mod load;
mod schemas;
mod tell;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use asp_control::catalog::Compiler;
use asp_control::publisher::Handle;
use asp_gateway::executors::plugin::logs::LogListener;
use asp_gateway::gateway::Gateway;
use asp_store::control::ControlStore;
use tokio_util::sync::CancellationToken;

use super::standing::Died;
use crate::dev_issuer::DevIssuer;
use crate::packaging::output;
use crate::stack::child::Listener;
use crate::stack::plugins::Made;
use crate::stack::ready;
use crate::stack::runtime::LocalRuntime;
use crate::stack::table::Machine;
use client::Client;
use tell::Told;
use watch::Watch;

/// What a session works with.
pub(super) struct Served {
    pub(super) store: Arc<dyn ControlStore>,
    pub(super) compiler: Compiler,
    pub(super) publisher: Handle,
    pub(super) gateway: Weak<Gateway>,
    pub(super) runtime: Option<Arc<LocalRuntime>>,
    pub(super) died: Died,
    pub(super) machine: Machine,
    pub(super) issuer: Arc<DevIssuer>,
    pub(super) state_dir: PathBuf,
    pub(super) urls: ready::Urls,
}

/// Who reads what a session says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    Person,
    /// Standard output has lines of JSON for them.
    Programs,
    /// Standard output is an MCP client's, which talks to one of the servers: the one of this name, else the only one.
    Client {
        server: Option<String>,
    },
}

/// What is served, and how it is told.
pub(crate) struct Session {
    directory: PathBuf,
    readers: Readers,
    /// Its client is gone, and with it what the session is for.
    pub(super) ended: CancellationToken,
}

impl Session {
    pub(crate) fn new(directory: PathBuf, readers: Readers) -> Session {
        Session { directory, readers, ended: CancellationToken::new() }
    }

    fn way(&self) -> tell::Way {
        tell::Way { on_output: self.readers == Readers::Person }
    }

    /// Shows what plugins write, with their names.
    pub(super) fn listener(&self) -> Listener {
        let way = self.way();
        Arc::new(move |line| {
            let Some(said) = output::said(line) else { return };
            said.lines.iter().for_each(|line| way.say(&output::named(&said.plugin, line)));
        })
    }

    /// Shows what plugins log during calls among the rest of what they write.
    pub(super) fn log_listener(&self) -> LogListener {
        let way = self.way();
        Arc::new(move |plugin, level, text| {
            // A line of its own for each: none of them passes for another plugin's.
            text.lines().for_each(|line| way.say(&output::logged(plugin, level.as_str(), line)));
        })
    }

    /// Applies the directory, says where it is served, and follows its changes: for ever, or until its client is gone.
    pub(super) async fn run(self, mut served: Served) -> anyhow::Result<()> {
        ready::write_env(&served.state_dir, &served.urls, &served.issuer)?;
        served.machine.root = self.directory.display().to_string();
        let mut told = Told::new(&self.readers, &served)?;
        let mut client = Client::of(&self.readers);
        let mut watch = Watch::new(self.directory.clone());
        if let Some(runtime) = &served.runtime {
            runtime.listens(|| served.died.get().is_some()).await;
        }
        let mut made = Made::default();
        loop {
            match load::load(&served, &self.directory, &mut made).await {
                Ok(loaded) => {
                    served.machine.not_installed = loaded.not_installed.clone();
                    loaded.written.iter().for_each(|path| watch.wrote(path));
                    told.in_force(&loaded, &served).await;
                    client.begin(&loaded.servers, &served)?;
                }
                Err(faults) => {
                    told.refused(&faults);
                    client.refused(&self.directory)?;
                }
            }
            tokio::select! {
                () = watch.changed() => {}
                ended = client.ended() => {
                    self.ended.cancel();
                    return ended;
                }
            }
        }
    }
}
