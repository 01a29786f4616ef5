//! Offers of servers to orgs: those in a server's own file, and those in the store.
//!
//! Keeps true: an org's exposure only narrows what it is offered. A server that an org switched on without an offer (it
//! was withdrawn, or never made) is in no snapshot; the switch takes effect once the server is offered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_proto::snapshot::ExposureException;
use asp_registry::CompiledServer;
use asp_store::control::{ControlState, ExposureRecord, OfferRecord};

use super::Compiler;

/// The reason that an org is offered a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferSource {
    /// `defaultExposure: allow`.
    Everybody,
    /// `offeredTo` of its file.
    File,
    /// Offer stored by an admin of the platform or of the server.
    Offer,
}

/// Returns why a server is offered to `org`; `stored` says whether an offer is stored.
pub fn source(server: &CompiledServer, org: &str, stored: bool) -> Option<OfferSource> {
    if server.edge.default_allow {
        return Some(OfferSource::Everybody);
    }
    if server.offered_to.binary_search_by(|known| known.as_str().cmp(org)).is_ok() {
        return Some(OfferSource::File);
    }
    stored.then_some(OfferSource::Offer)
}

/// All offers of servers to orgs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferTable {
    to_all: BTreeSet<String>,
    /// The orgs of each server.
    to: BTreeMap<String, BTreeSet<String>>,
}

impl OfferTable {
    /// Joins the offers in the published servers' files with the stored ones.
    pub fn of(servers: &[Arc<CompiledServer>], stored: &[OfferRecord]) -> OfferTable {
        let mut offered = OfferTable::default();
        for server in servers {
            let name = &server.server.name;
            if server.edge.default_allow {
                offered.to_all.insert(name.clone());
            }
            if !server.offered_to.is_empty() {
                offered.to.entry(name.clone()).or_default().extend(server.offered_to.iter().cloned());
            }
        }
        for OfferRecord { server, org } in stored {
            offered.to.entry(server.clone()).or_default().insert(org.clone());
        }
        offered
    }

    pub fn includes(&self, server: &str, org: &str) -> bool {
        self.to_all.contains(server) || self.to.get(server).is_some_and(|orgs| orgs.contains(org))
    }

    /// Removes from an org's exposure what is not offered to it.
    pub fn narrow(&self, exposure: &[ExposureException]) -> Vec<ExposureException> {
        let counts = |exception: &&ExposureException| {
            !exception.enabled || self.includes(&exception.server, &exception.org)
        };
        exposure.iter().filter(counts).cloned().collect()
    }
}

/// Returns the servers that orgs have switched on without an offer, which has no effect. After an upgrade from a
/// version without offers these are the servers that orgs have lost.
pub fn ineffective_exposures(compiler: &Compiler, state: &ControlState) -> Vec<ExposureRecord> {
    let offered = OfferTable::of(&compiler.compile_all(&state.servers), &state.offers);
    let is_vain = |record: &&ExposureRecord| record.enabled && !offered.includes(&record.server, &record.org);
    state.exposure.iter().filter(is_vain).cloned().collect()
}

/// A server that orgs have switched on without an offer.
pub struct LostServer {
    pub server: String,
    pub orgs: BTreeSet<String>,
}

impl LostServer {
    /// Returns the command that offers it to them again: the first orgs, then how many more there are.
    pub fn command(&self) -> String {
        let mut command = format!("asp servers offer {}", self.server);
        for org in self.orgs.iter().take(MOST_ORGS) {
            command.push_str(" --to ");
            command.push_str(org);
        }
        match self.orgs.len().saturating_sub(MOST_ORGS) {
            0 => command,
            more => format!("{command} (and {more} more)"),
        }
    }
}

/// Maximum number of orgs that one command names.
const MOST_ORGS: usize = 100;

/// Returns the stored servers that orgs have switched on without an offer. A deleted server cannot be offered.
pub fn unoffered_servers(compiler: &Compiler, state: &ControlState) -> Vec<LostServer> {
    let mut lost: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ExposureRecord { server, org, .. } in ineffective_exposures(compiler, state) {
        if state.servers.iter().any(|known| known.name == server) {
            lost.entry(server).or_default().insert(org);
        }
    }
    lost.into_iter().map(|(server, orgs)| LostServer { server, orgs }).collect()
}

#[cfg(test)]
mod tests;
