//! Offers of servers to orgs: those of a server's own file, and those that are stored beside it.
//!
//! Keeps true: an org's exposure only narrows what it is offered. What it switched on and is not offered, because the
//! offer was withdrawn or there never was one, is in no snapshot; it counts again when it is offered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_proto::snapshot::ExposureException;
use asp_registry::CompiledServer;
use asp_store::control::{ControlState, ExposureRecord, OfferRecord};

use super::Compiler;

/// The reason that an org is offered a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `defaultExposure: allow`.
    Everybody,
    /// `offeredTo` of its file.
    File,
    /// An admin of the platform, or of the server.
    Offer,
}

/// Finds why `org` is offered a server with this form; `stored` says whether an offer is stored.
pub fn source(server: &CompiledServer, org: &str, stored: bool) -> Option<Source> {
    if server.edge.default_allow {
        return Some(Source::Everybody);
    }
    if server.offered_to.binary_search_by(|known| known.as_str().cmp(org)).is_ok() {
        return Some(Source::File);
    }
    stored.then_some(Source::Offer)
}

/// All offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferTable {
    to_all: BTreeSet<String>,
    /// The orgs of each server.
    to: BTreeMap<String, BTreeSet<String>>,
}

impl OfferTable {
    /// Joins those of the published servers' files with those that are stored.
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

    /// Leaves out of an org's exposure what it is not offered.
    pub fn narrow(&self, exposure: &[ExposureException]) -> Vec<ExposureException> {
        let counts = |exception: &&ExposureException| {
            !exception.enabled || self.includes(&exception.server, &exception.org)
        };
        exposure.iter().filter(counts).cloned().collect()
    }
}

/// Lists what orgs have switched on and are not offered: it opens nothing. After an upgrade from a version without offers
/// these are the servers that orgs have lost.
pub fn switched_on_in_vain(compiler: &Compiler, state: &ControlState) -> Vec<ExposureRecord> {
    let offered = OfferTable::of(&compiler.compile_all(&state.servers), &state.offers);
    let is_vain = |record: &&ExposureRecord| record.enabled && !offered.includes(&record.server, &record.org);
    state.exposure.iter().filter(is_vain).cloned().collect()
}

/// Servers that orgs have switched on in vain, each with these orgs.
pub struct Lost {
    pub server: String,
    pub orgs: BTreeSet<String>,
}

impl Lost {
    /// The command that offers it to them again; of many orgs the first, and how many there are.
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

/// Most orgs that one command names.
const MOST_ORGS: usize = 100;

/// Finds which of the stored servers orgs have switched on in vain. One that is gone can be offered to nobody.
pub fn lost(compiler: &Compiler, state: &ControlState) -> Vec<Lost> {
    let mut lost: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ExposureRecord { server, org, .. } in switched_on_in_vain(compiler, state) {
        if state.servers.iter().any(|known| known.name == server) {
            lost.entry(server).or_default().insert(org);
        }
    }
    lost.into_iter().map(|(server, orgs)| Lost { server, orgs }).collect()
}

#[cfg(test)]
mod tests;
