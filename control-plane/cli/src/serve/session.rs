//! The session of `asp dev` in the serving process: applies a directory, announces its URLs, follows its changes.
//!
//! Keeps true: a directory with faults is reported and changes nothing that is served, neither specs nor code. A client on
//! standard input and output (`asp mcp --embedded`) is served from the first load on.

mod call_line;
mod client;
mod load;
mod reporter;
mod schemas;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use asp_backends::plugin::LogListener;
use asp_call::call::Call;
use asp_call::call::outcome::Outcome;
use asp_control::catalog::Compiler;
use asp_control::publisher::Handle;
use asp_gateway::gateway::Gateway;
use asp_packaging::output;
use asp_pipeline::pipeline::EndListener;
use asp_store::control::sql::ControlStore;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use super::standing::RuntimeFailure;
use crate::dev_issuer::DevIssuer;
use crate::stack::child::Listener;
use crate::stack::plugins::PastBuilds;
use crate::stack::ready;
use crate::stack::runtime::LocalRuntime;
use crate::stack::table::DevMachine;
use client::EmbeddedClient;
use reporter::SessionReporter;
use watch::Watch;

/// Parts of the process that a session uses.
pub(super) struct SessionContext {
    pub(super) store: Arc<ControlStore>,
    pub(super) compiler: Compiler,
    pub(super) publisher: Handle,
    pub(super) gateway: Weak<Gateway>,
    /// Requests wait while it is held for writing.
    pub(super) gate: Arc<RwLock<()>>,
    pub(super) runtime: Option<Arc<LocalRuntime>>,
    pub(super) died: RuntimeFailure,
    pub(super) machine: DevMachine,
    pub(super) issuer: Arc<DevIssuer>,
    pub(super) state_dir: PathBuf,
    pub(super) urls: ready::Urls,
}

/// Readers of a session's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    Person,
    /// Programs: standard output carries lines of JSON.
    Programs,
    /// An MCP client on standard input and output. It talks to the server of this name, or to the only one.
    Client {
        server: Option<String>,
    },
}

/// A directory to serve, and the readers of its output.
pub(crate) struct DevSession {
    directory: PathBuf,
    readers: Readers,
    /// Cancelled when the client is gone, which ends the session.
    pub(super) ended: CancellationToken,
}

impl DevSession {
    pub(crate) fn new(directory: PathBuf, readers: Readers) -> DevSession {
        DevSession { directory, readers, ended: CancellationToken::new() }
    }

    fn line_output(&self) -> reporter::LineOutput {
        reporter::LineOutput { on_output: self.readers == Readers::Person }
    }

    /// Returns a listener that shows the output of plugins, prefixed with their names.
    pub(super) fn listener(&self) -> Listener {
        let line_output = self.line_output();
        Arc::new(move |line| {
            let Some(said) = output::parse_line(line) else { return false };
            said.lines.iter().for_each(|line| line_output.print(&output::prefix_line(&said.plugin, line)));
            true
        })
    }

    /// Returns a listener that shows what plugins log during calls, along with their other output.
    pub(super) fn log_listener(&self) -> LogListener {
        let line_output = self.line_output();
        Arc::new(move |plugin, level, text| {
            // One line each, so that no plugin can imitate the output of another.
            text.lines().for_each(|line| line_output.print(&output::logged(plugin, level.as_str(), line)));
        })
    }

    /// Returns a listener that shows every call.
    pub(super) fn end_listener(&self) -> EndListener {
        let line_output = self.line_output();
        Arc::new(move |call: &Call, outcome: &Outcome| line_output.print(&call_line::of_end(call, outcome)))
    }

    /// Applies the directory, announces its URLs and follows its changes, until its client is gone, if it has one.
    pub(super) async fn run(self, mut served: SessionContext) -> anyhow::Result<()> {
        ready::write_env(&served.state_dir, &served.urls, &served.issuer)?;
        served.machine.root = self.directory.display().to_string();
        let mut reporter = SessionReporter::new(&self.readers, &served)?;
        let mut client = EmbeddedClient::of(&self.readers);
        let mut watch = Watch::new(self.directory.clone());
        if let Some(runtime) = &served.runtime {
            runtime.listens(|| served.died.get().is_some()).await;
        }
        let mut made = PastBuilds::default();
        loop {
            match load::load(&served, &self.directory, &mut made).await {
                Ok(loaded) => {
                    served.machine.not_installed = loaded.not_installed.clone();
                    loaded.written.iter().for_each(|path| watch.record_write(path));
                    reporter.report_load(&loaded, &served).await;
                    client.begin(&loaded.servers, &served)?;
                }
                Err(refused) => {
                    reporter.report_faults(&refused);
                    client.fail_if_waiting(&self.directory)?;
                }
            }
            tokio::select! {
                () = watch.wait_for_change() => {}
                ended = client.client_gone() => {
                    self.ended.cancel();
                    return ended;
                }
            }
        }
    }
}
