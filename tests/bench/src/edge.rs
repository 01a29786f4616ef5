//! The Envoys that are measured, with one worker or with as many as the development stack gives them.

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

/// One worker thread, so that on two cores the load generator has the other.
pub(crate) const ONE: u8 = 1;
/// As many as `asp serve --stack` gives it (`ASP_EDGE_WORKERS`).
pub(crate) const SHIPPED: u8 = 2;

/// A measured Envoy.
pub(crate) struct Edge {
    pub envoy: Envoy,
    _directory: TempDir,
}

impl Edge {
    /// Envoy with one chain before the backend.
    pub(crate) async fn start(
        chain: Chain,
        policy: &Policy<'_>,
        backend: SocketAddr,
        workers: u8,
    ) -> Result<Edge> {
        let directory = tempfile::tempdir()?;
        let filters = chain::http_filters(chain, policy, directory.path())?;
        let variables = BTreeMap::from([
            ("BENCH_FILTERS".to_string(), filters),
            ("BENCH_BACKEND_PORT".to_string(), backend.port().to_string()),
        ]);
        let template = tool::root()?.join("tests/bench/envoy.yaml");
        Edge::launch((directory, template), 0, variables, workers)
            .await
            .with_context(|| format!("the Envoy of {chain:?}"))
    }

    /// Envoy as a build ships it, told everything by the control plane at that port.
    pub(crate) async fn shipped(build: &Build, xds_port: u16, workers: u8) -> Result<Edge> {
        let template = build.root.join("envoy/bootstrap.yaml");
        let variables = envoy::filter_variable(&build.filter_wasm);
        Edge::launch((tempfile::tempdir()?, template), xds_port, variables, workers).await
    }

    async fn launch(
        (directory, template): (TempDir, PathBuf),
        xds_port: u16,
        variables: BTreeMap<String, String>,
        workers: u8,
    ) -> Result<Edge> {
        let settings = Settings {
            directory: directory.path(),
            template,
            port: Reserved::new()?,
            xds_port,
            tls: None,
            variables,
        };
        let envoy = Envoy::start_with(settings, workers).await?;
        Ok(Edge { envoy, _directory: directory })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.envoy.address
    }

    pub(crate) fn processes(&self) -> Processes {
        Processes { envoy: self.envoy.process.id(), ..Processes::default() }
    }
}
