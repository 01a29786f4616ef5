//! Partial application of changes, for gateways that reject some of the parts.
//!
//! Keeps true: revocation lists and removals of parts always take effect. A rejected part keeps its last version,
//! minus everything that may have been withdrawn since, or is denied: a server is not served, and an org is denied
//! every call or all primitives that its faulty bindings name. A server that is incompatible with the current base is
//! retried with the next one.

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_edge::Changes;
use asp_proto::snapshot::{BasePart, Binding, EdgeServer, Issuer};

use super::Snapshot;
use super::draft::{PartRejection, SnapshotDraft};
use super::fault::{
    AS_READ, LAST_FORM, LEFT_OUT, NARROWED, NO_MACHINES, NOT_SERVED, NOTHING_SERVED, ORG_DENIED, PartFault,
};
use crate::parts::{self, BASE, Name};
use crate::policy::{Policy, denials, deny_instead};

impl SnapshotDraft<'_> {
    /// Puts the fallback of a rejected part in force. Fails if there is none.
    pub(super) fn leave_out(&mut self, name: &str, rejection: &PartRejection) -> Result<(), String> {
        let may_keep = !matches!(rejection, PartRejection::Needs(_));
        let in_force = match Name::read(name) {
            Some(Name::Base) if self.before.edge.is_boot() => return Err(format!("{name}: {rejection}")),
            Some(Name::Base) if may_keep && self.before.base.is_some() => LAST_FORM,
            Some(Name::Base) => {
                self.next.base = None;
                NOTHING_SERVED
            }
            Some(Name::Server(server)) if may_keep && self.before.servers.contains_key(server) => {
                self.next.waiting.remove(server);
                LAST_FORM
            }
            Some(Name::Server(server)) => {
                self.drop_server(server);
                NOT_SERVED
            }
            Some(Name::Org(org)) => self.leave_out_org(org, rejection)?,
            Some(Name::Revoked | Name::Recent) if may_keep => return Err(format!("{name}: {rejection}")),
            Some(Name::Revoked | Name::Recent) => AS_READ,
            None => LEFT_OUT,
        };
        self.fault(name.to_owned(), rejection.to_string(), in_force);
        Ok(())
    }

    fn leave_out_org(&mut self, org: &str, rejection: &PartRejection) -> Result<&'static str, String> {
        if !matches!(rejection, PartRejection::Faulty(_)) {
            // Deleted keys must stop working, and the part does not tell which ones were deleted.
            self.close_machines(org);
        }
        match std::mem::take(&mut self.faulty_bindings) {
            bindings if matches!(rejection, PartRejection::Faulty(_)) => self.narrow_org(org, bindings),
            _ => self.deny_org(org).map(|()| ORG_DENIED),
        }
    }

    /// Keeps the bindings of an org that compile, and denies to everybody in it all primitives that the others name.
    /// The last policy would allow what has been denied since and what was not served then.
    fn narrow_org(&mut self, org: &str, bindings: Vec<Binding>) -> Result<&'static str, String> {
        let compiles = |binding: &Binding| Policy::new(vec![binding.clone()], Vec::new()).is_ok();
        let (mut compiled, faulty): (Vec<Binding>, Vec<Binding>) = bindings.into_iter().partition(compiles);
        let denied: BTreeSet<&str> = faulty.iter().map(|binding| binding.primitive.as_str()).collect();
        deny_instead(org, &denied, &mut compiled);
        self.next.policy.replace(org, compiled, Vec::new()).map(|()| NARROWED)
    }

    fn deny_org(&mut self, org: &str) -> Result<(), String> {
        self.next.limits.remove(org);
        self.next.policy.replace(org, denials(org, "*").into(), Vec::new())
    }

    fn close_machines(&mut self, org: &str) {
        self.machines_changed |= self.next.machine_parts.replace(org, Vec::new(), Vec::new());
    }

    pub(super) fn fault(&mut self, name: String, reason: String, in_force: &'static str) {
        Arc::make_mut(&mut self.next.faults).insert(name, PartFault { reason, in_force });
    }

    /// Finishes the snapshot like [`SnapshotDraft::done`], and leaves out parts that do not compile.
    pub(super) fn done_lenient(mut self) -> Result<Snapshot, String> {
        self.retry_waiting();
        if self.next.base.is_none() && !self.before.edge.is_boot() {
            self.stop_serving();
        }
        self.index_machines_lenient()?;
        if let Ok(edge) = self.edge() {
            return Ok(self.finish(edge));
        }
        self.settle_base()?;
        let bare = self.bare()?;
        self.settle_exposure(&bare)?;
        self.settle_servers(&bare);
        let edge = self.edge()?;
        Ok(self.finish(edge))
    }

    /// Retries rejected servers with a new base.
    fn retry_waiting(&mut self) {
        if self.base.is_none() {
            return;
        }
        for (name, server) in std::mem::take(&mut self.next.waiting) {
            self.forget_fault(&parts::of_server(&name));
            self.next.servers.insert(name.clone(), server);
            self.servers.insert(name);
        }
    }

    /// Stops serving all servers while there is no base; they wait for the next one.
    fn stop_serving(&mut self) {
        for (name, server) in std::mem::take(&mut self.next.servers) {
            self.servers_gone.push(name.clone());
            // A server that is already waiting is newer.
            self.next.waiting.entry(name).or_insert(server);
        }
        self.servers.clear();
    }

    fn index_machines_lenient(&mut self) -> Result<(), String> {
        if self.index_machines().is_ok() {
            return Ok(());
        }
        let mut orgs = std::mem::take(&mut self.orgs);
        orgs.retain(|org| match self.next.machine_parts.check(org) {
            Ok(()) => true,
            Err(reason) => {
                self.refuse_machines(org, reason);
                false
            }
        });
        if let Err(reason) = self.index_machines() {
            // Two orgs have the same id, certificate or URI.
            for org in &orgs {
                self.refuse_machines(org, reason.clone());
            }
        }
        self.index_machines()
    }

    fn refuse_machines(&mut self, org: &str, reason: String) {
        self.close_machines(org);
        let name = parts::of_org(org);
        if !self.next.faults.contains_key(&name) {
            self.fault(name, reason, NO_MACHINES);
        }
    }

    /// Replaces a base that does not compile with the last one, without the issuers, keys and orgs that the new one
    /// withdraws.
    fn settle_base(&mut self) -> Result<(), String> {
        let Some(base) = self.base.clone() else { return Ok(()) };
        let alone = Changes { base: Some(&*base), ..Changes::default() };
        let Err(error) = asp_edge::Snapshot::boot().changed(alone) else { return Ok(()) };
        if self.before.edge.is_boot() {
            return Err(format!("{BASE}: {error}"));
        }
        self.next.upstreams = Arc::clone(&self.before.upstreams);
        let in_force = match &self.before.base {
            Some(last) => {
                let mut last = BasePart::clone(last);
                last.issuers.retain_mut(|known| {
                    let is_it = |new: &&Issuer| new.name == known.name && new.iss == known.iss;
                    let Some(new) = base.issuers.iter().find(is_it) else { return false };
                    // Keys that the new base withdraws are invalid.
                    known.keys.retain(|key| new.keys.contains(key));
                    // An empty list means every org.
                    if known.orgs.is_empty() {
                        known.orgs.clone_from(&new.orgs);
                        return true;
                    }
                    known.orgs.retain(|org| new.orgs.is_empty() || new.orgs.contains(org));
                    !known.orgs.is_empty()
                });
                let mut access = (*self.before.access).clone();
                access.retain(|name, _| last.issuers.iter().any(|known| known.name == *name));
                self.next.access = Arc::new(access);
                self.put_base(last);
                LAST_FORM
            }
            None => {
                (self.base, self.next.base) = (None, None);
                self.stop_serving();
                NOTHING_SERVED
            }
        };
        self.fault(BASE.to_owned(), error.to_string(), in_force);
        Ok(())
    }

    /// Compiles the base alone; every other part is then checked against it by itself.
    fn bare(&self) -> Result<asp_edge::Snapshot, String> {
        let Some(base) = self.next.base.as_deref() else { return Ok(self.before.edge.clone()) };
        let alone = Changes { base: Some(base), ..Changes::default() };
        asp_edge::Snapshot::boot().changed(alone).map_err(|error| error.to_string())
    }

    fn settle_exposure(&mut self, bare: &asp_edge::Snapshot) -> Result<(), String> {
        for (org, list) in std::mem::take(&mut self.exposure) {
            let alone = Changes { exposure: vec![(org.as_str(), list.as_slice())], ..Changes::default() };
            match bare.changed(alone) {
                Ok(_) => self.exposure.push((org, list)),
                Err(error) => {
                    self.deny_org(&org)?;
                    self.fault(parts::of_org(&org), error.to_string(), ORG_DENIED);
                }
            }
        }
        Ok(())
    }

    fn settle_servers(&mut self, bare: &asp_edge::Snapshot) {
        let new: BTreeSet<String> = match self.base {
            Some(_) => self.next.servers.keys().cloned().collect(),
            None => self.servers.clone(),
        };
        for name in new {
            let Some(newest) = self.next.servers.get(&name).cloned() else { continue };
            let Err(reason) = check_with_base(bare, &newest.edge) else { continue };
            let last = self
                .before
                .servers
                .get(&name)
                .filter(|last| !Arc::ptr_eq(last, &newest) && check_with_base(bare, &last.edge).is_ok());
            let in_force = match last {
                Some(last) => {
                    self.next.servers.insert(name.clone(), Arc::clone(last));
                    LAST_FORM
                }
                None => {
                    self.drop_server(&name);
                    NOT_SERVED
                }
            };
            self.fault(parts::of_server(&name), reason, in_force);
            self.next.waiting.insert(name, newest);
        }
    }
}

/// Checks a server with the edge's code, together with the base only.
fn check_with_base(bare: &asp_edge::Snapshot, server: &EdgeServer) -> Result<(), String> {
    let alone = Changes { servers: vec![server], ..Changes::default() };
    bare.changed(alone).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
