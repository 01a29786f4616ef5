//! Tells when the whole path of `--stack` answers, where it is, and what of it works.
//!
//! Keeps true: `ready` waits for no plugin.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;

use super::Process;
use super::standing::{Died, standing};
use crate::print;
use crate::stack::plugins::NotInstalled;
use crate::stack::table::{self, Cause, Machine};
use crate::stack::{everything, ready};

/// Waits until the path answers, writes `env`, says `ready` and shows the table.
pub(super) fn announce(
    process: &Process,
    not_installed: Vec<NotInstalled>,
    died: Died,
) -> impl Future<Output = anyhow::Result<()>> + 'static {
    let urls = urls(process);
    let state_dir = process.settings.state_dir.clone();
    let issuer = process.dev_issuer.clone();
    let gateway = process.gateway.get().cloned().unwrap_or_default();
    let machine = machine(process, not_installed);
    async move {
        ready::wait(&urls).await?;
        if let Some(issuer) = issuer {
            ready::write_env(&state_dir, &urls, &issuer)?;
        }
        ready::announce(&state_dir, &urls);
        let (servers, machine) = standing(&gateway, &died, machine).await;
        print::line(&format!("\n{}", table::render(&servers, &machine)));
        Ok(())
    }
}

/// Where clients and admins are served.
pub(super) fn urls(process: &Process) -> ready::Urls {
    let listen = &process.settings.listen;
    let scheme = if process.certificates.admin.is_some() { "https" } else { "http" };
    ready::Urls {
        edge: process.public_url.clone(),
        admin: format!("{scheme}://{}", SocketAddr::new(listen.admin, process.ports.admin)),
        probe: match process.settings.tls {
            None => format!("http://{}/healthz", SocketAddr::new(listen.bind, process.ports.edge)),
            // Its certificate may be anybody's; Envoy itself says whether its listeners are up.
            Some(_) => format!("http://127.0.0.1:{}/ready", process.ports.envoy_admin),
        },
        statistics: format!("http://127.0.0.1:{}/stats", process.ports.envoy_admin),
    }
}

/// What is known before anything runs.
pub(super) fn machine(process: &Process, not_installed: Vec<NotInstalled>) -> Machine {
    let stack = process.settings.stack.as_ref();
    let has_runtime = stack.is_some_and(|stack| stack.runtime.is_some());
    let mut absent_hosts = BTreeMap::new();
    if stack.is_none_or(|stack| everything::program(stack, process.ports.everything).is_none()) {
        absent_hosts.insert(
            everything::HOST.to_owned(),
            Cause::new("the sample MCP server is not here (ASP_EVERYTHING_JS, ASP_NODE_BIN)", "make run"),
        );
    }
    Machine {
        public_url: process.public_url.clone(),
        org: ready::ORG.into(),
        root: process.settings.primitives.as_deref().unwrap_or(Path::new(".")).display().to_string(),
        without_runtime: (!has_runtime).then(|| {
            Cause::new("there is no asp-runtime beside asp (ASP_RUNTIME_BIN)", "make build, then make run")
        }),
        absent: process.absent.iter().map(|(name, lacks)| ((*name).to_owned(), lacks.clone())).collect(),
        not_installed,
        absent_hosts,
        ..Machine::default()
    }
}
