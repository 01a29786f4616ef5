//! What `asp dev` does in the process that serves: applies a directory, says where it is, follows its changes.
//!
//! Keeps true: what has a fault is told and changes nothing of what is served, specs and code.

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

use super::standing::Died;
use crate::dev_issuer::DevIssuer;
use crate::packaging::output;
use crate::stack::child::Listener;
use crate::stack::plugins::Made;
use crate::stack::ready;
use crate::stack::runtime::LocalRuntime;
use crate::stack::table::Machine;
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

/// What is served, and how it is told.
pub(crate) struct Session {
    pub(crate) directory: PathBuf,
    /// Whether programs read it.
    pub(crate) json: bool,
}

impl Session {
    /// Shows what plugins write, with their names.
    pub(super) fn listener(&self) -> Listener {
        let way = tell::Way { json: self.json };
        Arc::new(move |line| {
            let Some(said) = output::said(line) else { return };
            said.lines.iter().for_each(|line| way.say(&output::named(&said.plugin, line)));
        })
    }

    /// Shows what plugins log during calls among the rest of what they write.
    pub(super) fn log_listener(&self) -> LogListener {
        let way = tell::Way { json: self.json };
        Arc::new(move |plugin, level, text| {
            // A line of its own for each: none of them passes for another plugin's.
            text.lines().for_each(|line| way.say(&output::logged(plugin, level.as_str(), line)));
        })
    }

    /// Applies the directory, says where it is served, and follows its changes for ever.
    pub(super) async fn run(self, mut served: Served) -> anyhow::Result<()> {
        ready::write_env(&served.state_dir, &served.urls, &served.issuer)?;
        served.machine.root = self.directory.display().to_string();
        let mut told = Told::new(self.json, &served)?;
        let mut watch = Watch::new(self.directory.clone());
        if let Some(runtime) = &served.runtime {
            runtime.listens().await;
        }
        let mut made = Made::default();
        loop {
            match load::load(&served, &self.directory, &mut made).await {
                Ok(loaded) => {
                    served.machine.not_installed = loaded.not_installed.clone();
                    loaded.written.iter().for_each(|path| watch.wrote(path));
                    told.in_force(&loaded, &served).await;
                }
                Err(faults) => told.refused(&faults),
            }
            watch.changed().await;
        }
    }
}
