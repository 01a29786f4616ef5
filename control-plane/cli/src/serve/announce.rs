//! Announces when the whole path of `--stack` answers, its addresses, and which servers work; without a stack, the same for
//! the gateway.
//!
//! Keeps true: `ready` does not wait for plugins.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;

use asp_command::print;

use super::Process;
use super::ports;
use super::standing::{RuntimeFailure, status};
use crate::stack::plugins::MissingPlugin;
use crate::stack::table::{self, DevMachine, OffCause};
use crate::stack::{everything, ready};

/// Waits until the path answers, writes `env`, prints `ready` and the table.
pub(super) fn announce(
    process: &Process,
    not_installed: Vec<MissingPlugin>,
    died: RuntimeFailure,
) -> impl Future<Output = anyhow::Result<()>> + 'static {
    let urls = urls(process);
    let is_stack = process.settings.stack.is_some();
    let state_dir = process.settings.state_dir.clone();
    let issuer = process.dev_issuer.clone();
    let gateway = process.gateway.get().cloned().unwrap_or_default();
    let machine = machine(process, not_installed);
    async move {
        match ready::wait(&urls).await {
            Err(error) if !is_stack => {
                tracing::warn!(%error, "addresses are not announced: the gateway has no snapshot yet");
                return Ok(());
            }
            waited => waited?,
        }
        if let Some(issuer) = issuer {
            ready::write_env(&state_dir, &urls, &issuer)?;
        }
        ready::announce(&state_dir, &urls);
        let (servers, machine) = status(&gateway, &died, machine).await;
        print::line(&format!("\n{}", table::render(&servers, &machine)));
        Ok(())
    }
}

/// Returns the URLs for clients and admins.
pub(super) fn urls(process: &Process) -> ready::Urls {
    let listen = &process.settings.listen;
    let scheme = if process.certificates.admin.is_some() { "https" } else { "http" };
    let admin = format!("{scheme}://{}", SocketAddr::new(listen.admin(), process.ports.admin));
    if process.settings.stack.is_none() {
        // With an Envoy that this process did not start, the edge is at the public URL; otherwise there is no Envoy.
        let gateway = format!("http://{}", ports::local(listen.gateway(), process.ports.gateway));
        let probe = format!("{gateway}/readyz");
        let edge = process.settings.public_url.clone().unwrap_or(gateway);
        return ready::Urls { edge, admin, probe, statistics: None };
    }
    ready::Urls {
        edge: process.public_url.clone(),
        admin,
        probe: match process.settings.tls {
            None => format!("http://{}/healthz", SocketAddr::new(listen.bind, process.ports.edge)),
            // The edge's certificate may not be trusted here, so Envoy's admin port is asked whether its listeners are up.
            Some(_) => format!("http://127.0.0.1:{}/ready", process.ports.envoy_admin),
        },
        statistics: Some(format!("http://127.0.0.1:{}/stats", process.ports.envoy_admin)),
    }
}

/// Describes what is known of the machine before anything runs.
pub(super) fn machine(process: &Process, not_installed: Vec<MissingPlugin>) -> DevMachine {
    let stack = process.settings.stack.as_ref();
    let without_runtime =
        match stack {
            Some(stack) => stack.runtime.is_none().then(|| {
                OffCause::new(
                    "asp-runtime was not found next to asp (ASP_RUNTIME_BIN)",
                    "make build, then make run",
                )
            }),
            None => process.settings.gateway.runtimes.is_empty().then(|| {
                OffCause::new("no language runtime is named (ASP_RUNTIMES)", "asp serve --dev --stack")
            }),
        };
    let mut absent_hosts = BTreeMap::new();
    if stack.is_none_or(|stack| everything::program(stack, process.ports.everything).is_none()) {
        absent_hosts.insert(
            everything::HOST.to_owned(),
            OffCause::new("the sample MCP server is not here (ASP_EVERYTHING_JS, ASP_NODE_BIN)", "make run"),
        );
    }
    DevMachine {
        public_url: urls(process).edge,
        org: ready::ORG.into(),
        root: process.settings.primitives.as_deref().unwrap_or(Path::new(".")).display().to_string(),
        without_runtime,
        absent: process.absent.iter().map(|(name, lacks)| ((*name).to_owned(), lacks.clone())).collect(),
        not_installed,
        absent_hosts,
        ..DevMachine::default()
    }
}
