//! The processes of a fleet, each of which can be lost and started again.

use std::fmt::{self, Display};
use std::net::SocketAddr;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::Fleet;
use crate::history::What;
use crate::{http1, wait};

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Gateway(usize),
    Control,
    SecondControl,
    Envoy,
    Redis,
    Postgres,
}

impl Part {
    pub const ALL: [Part; 8] = [
        Part::Gateway(0),
        Part::Gateway(1),
        Part::Gateway(2),
        Part::Control,
        Part::SecondControl,
        Part::Envoy,
        Part::Redis,
        Part::Postgres,
    ];
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Gateway(number) => write!(f, "gateway {number}"),
            Part::Control => f.write_str("control plane"),
            Part::SecondControl => f.write_str("second control plane"),
            Part::Envoy => f.write_str("Envoy"),
            Part::Redis => f.write_str("Redis"),
            Part::Postgres => f.write_str("PostgreSQL"),
        }
    }
}

impl Fleet {
    /// SIGKILL; PostgreSQL, whose processes are several, is told to leave at once and save nothing.
    pub async fn kill(&mut self, part: Part) -> Result<()> {
        self.history.add(&part.to_string(), What::Lost);
        let signal = if part == Part::Postgres { Signal::QUIT } else { Signal::KILL };
        let cluster = &mut self.cluster;
        let process = match part {
            Part::Gateway(number) => {
                &mut cluster.gateways.get_mut(number).context("a gateway of this number")?.process
            }
            Part::Control => &mut cluster.control,
            Part::SecondControl => &mut cluster.second_control.as_mut().context("a second control plane")?.0,
            Part::Envoy => &mut cluster.envoy.process,
            Part::Redis => &mut self.redis.process,
            Part::Postgres => &mut self.postgres.process,
        };
        process.signal(signal)?;
        process.wait(wait::CONVERGE).await?;
        Ok(())
    }

    /// Starts it again as it was.
    pub async fn start_again(&mut self, part: Part) -> Result<()> {
        match part {
            Part::Gateway(number) => self.cluster.restart_gateway(number).await,
            Part::Control => self.cluster.restart_control().await,
            Part::SecondControl => self.cluster.restart_second_control().await,
            Part::Envoy => self.cluster.envoy.restart().await,
            Part::Redis => self.redis.start_again().await,
            Part::Postgres => self.postgres.start_again().await,
        }
        .with_context(|| format!("start {part} again"))
    }

    /// Waits until Envoy sends to every gateway, each is ready and every control plane serves what is stored.
    pub async fn is_well(&self) -> Result<()> {
        self.cluster.wait_hosts(self.cluster.gateways.len()).await?;
        for at in self.cluster.addresses() {
            let ready = || async { http1::get(at, "/readyz", &[]).await.ok().filter(|it| it.status == 200) };
            wait::until("a gateway is ready", wait::START, ready).await?;
        }
        for control in self.cluster.controls() {
            let is_current = || async {
                let snapshot = self.cluster.admin_of(control, "/api/snapshot").await.ok()?;
                (snapshot.get("coversRevision") == snapshot.get("storeRevision")).then_some(())
            };
            wait::until("a control plane serves what is stored", wait::START, is_current).await?;
        }
        Ok(())
    }

    /// The admin APIs.
    pub fn admins(&self) -> Vec<SocketAddr> {
        let ports = self.cluster.controls();
        ports.iter().map(|ports| SocketAddr::from(([127, 0, 0, 1], ports.admin))).collect()
    }
}
