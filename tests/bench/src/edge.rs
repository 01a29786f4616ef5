//! The Envoys that are measured: one worker each, so that on two cores the load generator has the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use asp_e2e::envoy::{self, Envoy, Settings};
use asp_e2e::port::Reserved;
use asp_e2e::tool::{self, Build};
use tempfile::TempDir;

use crate::chain::{self, Chain, Policy};
use crate::usage::Processes;

/// Worker threads of a measured Envoy.
pub(crate) const WORKERS: u8 = 1;

/// A measured Envoy.
pub(crate) struct Edge {
    pub envoy: Envoy,
    _directory: TempDir,
}

impl Edge {
    /// Envoy with one chain before the backend.
    pub(crate) async fn start(chain: Chain, policy: &Policy<'_>, backend: SocketAddr) -> Result<Edge> {
        let directory = tempfile::tempdir()?;
        let filters = chain::http_filters(chain, policy, directory.path())?;
        let variables = BTreeMap::from([
            ("BENCH_FILTERS".to_string(), filters),
            ("BENCH_BACKEND_PORT".to_string(), backend.port().to_string()),
        ]);
        let template = tool::root()?.join("tests/bench/envoy.yaml");
        Edge::launch(directory, template, 0, variables)
            .await
            .with_context(|| format!("the Envoy of {chain:?}"))
    }

    /// Envoy as a build ships it, told everything by the control plane at that port.
    pub(crate) async fn shipped(build: &Build, xds_port: u16) -> Result<Edge> {
        let template = build.root.join("envoy/bootstrap.yaml");
        let variables = envoy::filter_variable(&build.filter_wasm);
        Edge::launch(tempfile::tempdir()?, template, xds_port, variables).await
    }

    async fn launch(
        directory: TempDir,
        template: PathBuf,
        xds_port: u16,
        variables: BTreeMap<String, String>,
    ) -> Result<Edge> {
        let settings = Settings {
            directory: directory.path(),
            template,
            port: Reserved::new()?,
            xds_port,
            tls: None,
            variables,
        };
        let envoy = Envoy::start_with(settings, WORKERS).await?;
        Ok(Edge { envoy, _directory: directory })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.envoy.address
    }

    pub(crate) fn processes(&self) -> Processes {
        Processes { envoy: self.envoy.process.id(), ..Processes::default() }
    }
}
