//! Where the processes of a fleet are: those that were started again are elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use parking_lot::RwLock;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::Fleet;

/// Where gateways and control planes are at the moment.
#[derive(Clone, Default)]
pub struct Places(Arc<RwLock<At>>);

#[derive(Default)]
struct At {
    edge: Option<SocketAddr>,
    gateways: Vec<SocketAddr>,
    admins: Vec<SocketAddr>,
}

impl Places {
    /// After a process was started again.
    pub fn learn(&self, fleet: &Fleet) {
        let edge = Some(fleet.cluster.envoy.address);
        *self.0.write() = At { edge, gateways: fleet.cluster.addresses(), admins: fleet.admins() };
    }

    /// Envoy, or one of the gateways.
    pub(super) fn any(&self, random: &mut StdRng) -> Result<SocketAddr> {
        let at = self.0.read();
        let gateway = at.gateways.choose(random).copied();
        if random.random_bool(0.5) { at.edge } else { gateway }.context("a place")
    }

    pub(super) fn any_admin(&self, random: &mut StdRng) -> Result<SocketAddr> {
        self.0.read().admins.choose(random).copied().context("an admin API")
    }
}
