//! The Envoys that are measured: one worker each, so that on two cores the load generator has the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use asp_e2e::envoy::{Envoy, Settings};
use asp_e2e::port::Reserved;
use asp_e2e::tool;
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
        Edge::launch(directory, "tests/bench/envoy.yaml", 0, variables)
            .await
            .with_context(|| format!("the Envoy of {chain:?}"))
    }

    /// Envoy as the platform ships it, told everything by the control plane at that port.
    pub(crate) async fn shipped(xds_port: u16) -> Result<Edge> {
        Edge::launch(tempfile::tempdir()?, "envoy/bootstrap.yaml", xds_port, BTreeMap::new()).await
    }

    async fn launch(
        directory: TempDir,
        template: &str,
        xds_port: u16,
        variables: BTreeMap<String, String>,
    ) -> Result<Edge> {
        let settings = Settings {
            directory: directory.path(),
            template: tool::root()?.join(template),
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
        Processes { envoy: self.envoy.process.id(), gateway: None }
    }
}
