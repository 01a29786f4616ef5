//! Derives a snapshot from another one and the changes since, for processes that receive it in parts (gateways).
//!
//! Owns the same checks as for a whole message. The cost grows with the changes, plus a copy of each map of references
//! that they touch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asp_proto::snapshot::{BasePart, EdgeServer, ExposureException, RecentRevocations, RevokedPart};

use super::{Snapshot, check_public_url, duplicate_server};
use crate::agent;
use crate::error::SnapshotError;
use crate::region::Homes;
use crate::route::Routes;
use crate::server::Server;
use crate::token::issuer::Issuers;

/// Changes since another snapshot. The default is no change, at revision 0.
#[derive(Default)]
pub struct Changes<'a> {
    /// Revision of the resulting snapshot. The caller must know whether it may follow the other one.
    pub revision: u64,
    /// Settings that all servers are indexed by; if present, `servers` must hold all servers.
    pub base: Option<&'a BasePart>,
    /// New or changed servers; all of them if `base` is present.
    pub servers: Vec<&'a EdgeServer>,
    /// Names of removed servers. An unknown name is ignored, and a server that is also in `servers` stays.
    pub servers_gone: Vec<&'a str>,
    /// All exceptions of each listed org; an empty list removes them. The servers they name need not exist.
    pub exposure: Vec<(&'a str, &'a [ExposureException])>,
    /// Base list of the revocations.
    pub revoked: Option<RevokedPart>,
    /// Recent revocations; a list older than the current one is ignored, as in [`Snapshot::with_recent`].
    pub recent: Option<RecentRevocations>,
}

impl Snapshot {
    /// Returns this snapshot with `changes` applied, without coarse limits, and with revocations that arrive
    /// separately: no token is accepted before both the base and the recent list are there. Starts from
    /// [`Snapshot::boot`].
    ///
    /// Rejects everything that [`Snapshot::from_message`] rejects, a recent list that [`crate::RecentList::from_message`]
    /// rejects, a server or org given twice, and changes without a base if none came before.
    pub fn changed(&self, changes: Changes<'_>) -> Result<Snapshot, SnapshotError> {
        let mut changed = Snapshot {
            is_pushed: true,
            revision: changes.revision,
            limits: Arc::default(),
            exceptions: self.exceptions.with(&changes.exposure)?,
            revocations: self.revocations.changed(changes.revoked, changes.recent)?,
            ..self.clone()
        };
        match changes.base {
            Some(base) => changed.set_base(base)?,
            None if !self.is_pushed => {
                return Err(SnapshotError::invalid("base".to_owned(), "is missing"));
            }
            None => {}
        }
        changed.set_servers(&changes.servers, &changes.servers_gone)?;
        Ok(changed)
    }

    /// Replaces the base and drops all servers, which were indexed by the previous base.
    fn set_base(&mut self, base: &BasePart) -> Result<(), SnapshotError> {
        check_public_url(&base.public_url)?;
        self.public_url = base.public_url.as_str().into();
        self.dev = base.dev;
        self.all_servers = base.all_servers;
        self.unauthenticated_rate = base.unauthenticated_rate;
        self.default_agent = base.default_agent.as_str().into();
        self.issuers = Arc::new(Issuers::index(&base.issuers)?);
        self.routes = Arc::new(Routes::index(&base.routes)?);
        self.homes = Arc::new(Homes::index(&base.regions)?);
        self.servers = Arc::new(HashMap::new());
        self.agent_hosts = Arc::default();
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
            let url = (&*self.public_url, self.all_servers);
            let server = Server::index(entry, url, self.dev, &self.issuers)?;
            if !seen.insert(entry.name.as_str()) {
                return Err(duplicate_server(&entry.name));
            }
            servers.insert(server.name.as_str().into(), Arc::new(server));
        }
        self.agent_hosts = Arc::new(agent::index(&self.servers, &self.public_url));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
