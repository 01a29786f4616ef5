//! Exchange of last published forms between the builder and the store.
//!
//! Keeps true: the stored form counts for every control plane, so that one that has just started publishes the same.
//! Only a later form published by this process takes precedence. A form is stored only if it was built from stored
//! records and published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_registry::CompiledServer;
use asp_snapshot::parts::{self as names, Name};
use asp_store::control::PublishedForm;

use super::super::fault::{LAST_FORM, ORG_DENIED};
use super::super::form;
use super::{Builder, OrgForm, OrgPolicy, Room, SnapshotBuild};

/// Maximum number of forms in a batch.
const BATCH: usize = 64;
/// Size in bytes at which a batch is complete.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Last published form of an org, as read from the store.
pub(super) struct StoredOrgForm {
    /// The org as stored at the time of the read.
    pub(super) of: Arc<OrgForm>,
    /// Policy with its revision; `None` if the store has no form that this version reads.
    form: Option<(u64, OrgPolicy)>,
}

/// The published form of a part, or its removal.
enum PendingForm {
    /// A server published as stored, with the revision of its record.
    Server(Arc<CompiledServer>, u64),
    /// An org, by name.
    Org(String, Arc<OrgForm>),
    /// Removal of the part, known at that revision.
    Gone(u64),
}

/// Published forms that the store does not have yet; the last one of each part.
#[derive(Default)]
pub struct PendingForms {
    /// Forms by name of the part.
    parts: BTreeMap<String, PendingForm>,
}

/// A batch of them, encoded.
#[derive(Default)]
pub struct Batch {
    pub of: PendingForms,
    pub forms: Vec<PublishedForm>,
    /// Parts that are no longer published, with the revision at which that is known.
    pub gone: Vec<(String, u64)>,
}

impl PendingForms {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Adds forms that were published later.
    pub fn add(&mut self, later: PendingForms) {
        self.parts.extend(later.parts);
    }

    /// Adds forms that were published before.
    pub fn add_earlier(&mut self, earlier: PendingForms) {
        for (part, form) in earlier.parts {
            self.parts.entry(part).or_insert(form);
        }
    }

    /// Removes and returns the next batch; it is empty if there are no forms.
    pub fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while batch.of.parts.len() < BATCH && bytes < BATCH_BYTES {
            let Some((part, form)) = self.parts.pop_first() else { break };
            let encoded = match &form {
                PendingForm::Server(server, at) => Some(form::of_server(server, *at)),
                PendingForm::Org(org, published) => Some(form::of_org(org, published.policy(), published.at)),
                PendingForm::Gone(at) => {
                    batch.gone.push((part.clone(), *at));
                    None
                }
            };
            if let Some(encoded) = encoded {
                bytes += encoded.form.len();
                batch.forms.push(encoded);
            }
            batch.of.parts.insert(part, form);
        }
        batch
    }
}

impl Builder {
    /// Returns the names of the parts that are not published as stored and whose last form was not read from the store
    /// yet.
    pub fn unread_parts(&self) -> Vec<String> {
        let orgs = self.held.orgs.iter().filter(|(org, held)| {
            let is_instead = self.orgs.get(*org).is_some_and(|form| !Arc::ptr_eq(form, held));
            is_instead && !self.asked.contains_key(*org)
        });
        let servers = self.compiler.unread_servers().into_iter().map(|name| names::of_server(&name));
        servers.chain(orgs.map(|(org, _)| names::of_org(org))).collect()
    }

    /// Takes the forms that were read from the store for the parts `asked`.
    pub fn take_forms(&mut self, asked: &[String], forms: &[PublishedForm]) {
        let forms: BTreeMap<&str, &PublishedForm> =
            forms.iter().map(|form| (form.part.as_str(), form)).collect();
        for part in asked {
            let form = forms.get(part.as_str()).copied();
            match Name::read(part) {
                Some(Name::Server(name)) => self.compiler.take_form(name, form),
                Some(Name::Org(org)) => {
                    let Some(of) = self.held.orgs.get(org) else { continue };
                    let form = form.and_then(|form| Some((form.revision, form::policy(form)?)));
                    self.asked.insert(org.to_owned(), StoredOrgForm { of: Arc::clone(of), form });
                }
                _ => {}
            }
        }
    }

    /// Builds the same state again, with the forms that were taken since.
    pub fn build_again(&mut self, before: SnapshotBuild, raise: bool) -> anyhow::Result<SnapshotBuild> {
        self.gateway.changed.extend(before.changed);
        self.build_held(true, raise)
    }

    /// Returns the org's last published form if it still fits, else a denial, both with the current machines.
    pub(super) fn last_form_or_denial(
        &self,
        org: &str,
        form: &OrgForm,
        room: &mut Room,
    ) -> (Arc<OrgForm>, &'static str) {
        let (at, last) = self.last_form(org);
        let (at, policy, in_force) =
            match !last.is_empty() && self.compiler.evaluate(org, &last).is_ok() && room.take(last.size()) {
                true => (at, last, LAST_FORM),
                false => (0, OrgPolicy::denied(org), ORG_DENIED),
            };
        let instead = form.with_policy(org, at, policy, &self.held.offered);
        match self.orgs.get(org).filter(|last| last.part == instead.part && last.at == instead.at) {
            Some(last) => (Arc::clone(last), in_force),
            None => (Arc::new(instead), in_force),
        }
    }

    /// Returns the last published form of an org that is not published as stored; an empty policy if there is none.
    fn last_form(&self, org: &str) -> (u64, OrgPolicy) {
        let own = self.orgs.get(org).filter(|own| own.at > 0);
        let own_at = own.map_or(0, |own| own.at);
        match self.asked.get(org).and_then(|asked| asked.form.as_ref()) {
            Some((at, policy)) if *at >= own_at => (*at, policy.clone()),
            _ => (own_at, own.map(|own| own.policy()).unwrap_or_default()),
        }
    }

    /// Marks an org's form to be stored if the org is published as stored. A form that came from the store removes an
    /// earlier mark.
    pub(super) fn note_pending(&mut self, org: &str, form: &Arc<OrgForm>) {
        let is_stored = self.held.orgs.get(org).is_some_and(|held| Arc::ptr_eq(held, form));
        let asked = self.asked.get(org).and_then(|asked| asked.form.as_ref());
        if is_stored {
            self.pending.insert(names::of_org(org));
        } else if asked.is_some_and(|(at, _)| *at == form.at) {
            self.pending.remove(&names::of_org(org));
        }
    }

    /// Removes and returns the published forms that the store does not have yet: of servers published as stored, and of
    /// orgs that are not denied.
    pub fn pending(&mut self) -> PendingForms {
        let parts = std::mem::take(&mut self.pending);
        if parts.is_empty() {
            return PendingForms::default();
        }
        let faulty: BTreeSet<&str> = self.server_faults.iter().map(|fault| fault.name.as_str()).collect();
        let stored = self.held.servers.iter().filter(|record| !faulty.contains(record.name.as_str()));
        let stored: BTreeMap<&str, u64> =
            stored.map(|record| (record.name.as_str(), record.revision)).collect();
        let published = parts.into_iter().filter_map(|part| {
            let form = match Name::read(&part)? {
                Name::Server(name) => {
                    let by_name = |server: &Arc<CompiledServer>| server.server.name.as_str().cmp(name);
                    let index = self.servers.binary_search_by(by_name).ok()?;
                    PendingForm::Server(Arc::clone(self.servers.get(index)?), *stored.get(name)?)
                }
                Name::Org(org) => match self.orgs.get(org) {
                    Some(form) if form.at > 0 => PendingForm::Org(org.to_owned(), Arc::clone(form)),
                    // The form that a denial replaces was taken when it was published.
                    Some(_) => return None,
                    None => PendingForm::Gone(self.held.revision),
                },
                _ => return None,
            };
            Some((part, form))
        });
        PendingForms { parts: published.collect() }
    }
}
