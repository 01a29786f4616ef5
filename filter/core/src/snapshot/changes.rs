//! A snapshot made from another one and what changed since, for those that get it in parts (gateways).
//!
//! Owns the same checks as for a whole message. Costs what changed, and a copy of each map of references it is in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asp_proto::snapshot::{BasePart, EdgeServer, ExposureException, RecentRevocations, RevokedPart};

use super::{Snapshot, check_public_url, given_twice};
use crate::error::SnapshotError;
use crate::region::Homes;
use crate::route::Routes;
use crate::server::Server;
use crate::token::issuer::Issuers;

/// What changed since another snapshot. By default: nothing, at revision 0.
#[derive(Default)]
pub struct Changes<'a> {
    /// Of the snapshot that comes of it. Whether it may follow the other one is for the caller to know.
    pub revision: u64,
    /// What all servers are indexed by: it comes with all of them.
    pub base: Option<&'a BasePart>,
    /// New or changed; all of them where `base` is there.
    pub servers: Vec<&'a EdgeServer>,
    /// Names. One that is not there is no fault, and one that is among `servers` stays.
    pub servers_gone: Vec<&'a str>,
    /// An org and all of its exceptions; none: it has none any more. The servers they name need not be there.
    pub exposure: Vec<(&'a str, &'a [ExposureException])>,
    /// The base of the revocations.
    pub revoked: Option<RevokedPart>,
    /// An older list than the one held is left out, as in [`Snapshot::with_recent`].
    pub recent: Option<RecentRevocations>,
}

impl Snapshot {
    /// This snapshot with `changes`; without coarse limits, and with revocations that come apart: no token is accepted
    /// before both their base and the recent ones are there. Begins at [`Snapshot::boot`].
    ///
    /// Refused: what [`Snapshot::from_message`] refuses, a recent list that [`crate::Recent::from_message`] refuses, a
    /// server or org given twice, and changes without a base where none came before.
    pub fn changed(&self, changes: Changes<'_>) -> Result<Snapshot, SnapshotError> {
        let mut changed = Snapshot {
            boot: false,
            revision: changes.revision,
            limits: Arc::default(),
            exceptions: self.exceptions.with(&changes.exposure)?,
            revocations: self.revocations.changed(changes.revoked, changes.recent)?,
            ..self.clone()
        };
        match changes.base {
            Some(base) => changed.set_base(base)?,
            None if self.boot => {
                return Err(SnapshotError::invalid("base".to_owned(), "has not come"));
            }
            None => {}
        }
        changed.set_servers(&changes.servers, &changes.servers_gone)?;
        Ok(changed)
    }

    /// Without the servers that were indexed by another base.
    fn set_base(&mut self, base: &BasePart) -> Result<(), SnapshotError> {
        check_public_url(&base.public_url)?;
        self.public_url = base.public_url.as_str().into();
        self.dev = base.dev;
        self.issuers = Arc::new(Issuers::index(&base.issuers)?);
        self.routes = Arc::new(Routes::index(&base.routes)?);
        self.homes = Arc::new(Homes::index(&base.regions)?);
        self.servers = Arc::new(HashMap::new());
        Ok(())
    }

    fn set_servers(&mut self, new: &[&EdgeServer], gone: &[&str]) -> Result<(), SnapshotError> {
        if new.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let servers = Arc::make_mut(&mut self.servers);
        for name in gone {
            servers.remove(*name);
        }
        let mut seen = HashSet::new();
        for entry in new {
            let server = Server::index(entry, &self.public_url, self.dev, &self.issuers)?;
            if !seen.insert(entry.name.as_str()) {
                return Err(given_twice(&entry.name));
            }
            servers.insert(server.name.as_str().into(), Arc::new(server));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
