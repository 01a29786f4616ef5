//! Last published forms, between the builder and the store.
//!
//! Keeps true: what the store has counts for every control plane, so that one that has just started publishes the same; only a
//! form that this process published later stays in its place; what goes into the store was built of what is stored, and published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_registry::CompiledServer;
use asp_snapshot::parts::{self as names, Name};
use asp_store::control::PublishedForm;

use super::super::fault::{LAST_FORM, ORG_DENIED};
use super::super::form;
use super::{Builder, Built, OrgForm, OrgPolicy, Orgs, Room};

/// Parts whose forms are kept at a time.
const BATCH: usize = 64;
/// Bytes of forms from which on no more are added to a batch.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The answer of the store to what an org's last published form is.
pub(super) struct AskedOrg {
    /// The org as it was stored then.
    of: Arc<OrgForm>,
    /// With the revision at which it was read.
    form: Option<(u64, OrgPolicy)>,
}

/// A part as it was published, or its end.
enum Form {
    /// A server as it is stored, with the revision of its record.
    Server(Arc<CompiledServer>, u64),
    /// An org, with its name.
    Org(String, Arc<OrgForm>),
    /// It is published no more, which is known of that revision.
    Gone(u64),
}

/// Parts as they were published, whose forms the store does not have yet; of each the last one.
#[derive(Default)]
pub struct Unkept {
    /// Name of each, with its form.
    parts: BTreeMap<String, Form>,
}

/// Some of them, encoded.
#[derive(Default)]
pub struct Batch {
    pub of: Unkept,
    pub forms: Vec<PublishedForm>,
    /// The parts that are not published any more, with the revision of which that is known.
    pub gone: Vec<(String, u64)>,
}

impl Unkept {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Adds what was published later.
    pub fn add(&mut self, later: Unkept) {
        self.parts.extend(later.parts);
    }

    /// Adds what was published before.
    pub fn add_earlier(&mut self, earlier: Unkept) {
        for (part, form) in earlier.parts {
            self.parts.entry(part).or_insert(form);
        }
    }

    /// Takes out some; nothing if it is empty.
    pub fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while batch.of.parts.len() < BATCH && bytes < BATCH_BYTES {
            let Some((part, form)) = self.parts.pop_first() else { break };
            let encoded = match &form {
                Form::Server(server, at) => Some(form::of_server(server, *at)),
                Form::Org(org, published) => Some(form::of_org(org, published.policy(), published.at)),
                Form::Gone(at) => {
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
    /// Names of the parts that are not published as they are stored, and of whose last forms the store was not asked.
    pub fn unasked(&self) -> Vec<String> {
        let orgs = self.held.orgs.iter().filter(|(org, held)| {
            let is_instead = self.orgs.get(*org).is_some_and(|form| !Arc::ptr_eq(form, held));
            is_instead && !self.asked.contains_key(*org)
        });
        let servers = self.compiler.unasked().into_iter().map(|name| names::of_server(&name));
        servers.chain(orgs.map(|(org, _)| names::of_org(org))).collect()
    }

    /// Takes what the store has of the parts that it was asked for.
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
                    self.asked.insert(org.to_owned(), AskedOrg { of: Arc::clone(of), form });
                }
                _ => {}
            }
        }
    }

    /// Builds the same state once more, with the forms that were taken since.
    pub fn build_again(&mut self, before: Built, raise: bool) -> anyhow::Result<Built> {
        self.gateway.changed.extend(before.changed);
        self.build_held(true, raise)
    }

    /// Puts the orgs in the place of those before.
    pub(super) fn publish_orgs(&mut self, orgs: Orgs) {
        for (org, form) in &orgs {
            if !self.orgs.get(org).is_some_and(|former| Arc::ptr_eq(former, form)) {
                self.gateway.put(&names::of_org(org), form.part.clone());
                self.note_unkept(org, form);
            }
        }
        for org in self.orgs.keys().filter(|org| !orgs.contains_key(*org)) {
            self.gateway.put(&names::of_org(org), None);
            self.unkept.insert(names::of_org(org));
        }
        self.orgs = orgs;
        let held = &self.held.orgs;
        let is_instead = |org: &String| {
            held.get(org).zip(self.orgs.get(org)).is_some_and(|(held, form)| !Arc::ptr_eq(held, form))
        };
        self.asked.retain(|org, asked| {
            is_instead(org) && held.get(org).is_some_and(|held| Arc::ptr_eq(held, &asked.of))
        });
    }

    /// The org's last published form where it still fits, else a denial. Its machines are those of now.
    pub(super) fn instead(&self, org: &str, form: &OrgForm, room: &mut Room) -> (Arc<OrgForm>, &'static str) {
        let (at, last) = self.last_form(org);
        let (at, policy, in_force) =
            match !last.is_empty() && self.compiler.evaluate(&last).is_ok() && room.take(last.size()) {
                true => (at, last, LAST_FORM),
                false => (0, OrgPolicy::denied(org), ORG_DENIED),
            };
        let instead = form.instead(org, at, policy, &self.held.offered);
        match self.orgs.get(org).filter(|last| last.part == instead.part && last.at == instead.at) {
            Some(last) => (Arc::clone(last), in_force),
            None => (Arc::new(instead), in_force),
        }
    }

    /// The last published form of an org that is not published as it is stored; an empty policy of none.
    fn last_form(&self, org: &str) -> (u64, OrgPolicy) {
        let own = self.orgs.get(org).filter(|own| own.at > 0);
        let own_at = own.map_or(0, |own| own.at);
        match self.asked.get(org).and_then(|asked| asked.form.as_ref()) {
            Some((at, policy)) if *at >= own_at => (*at, policy.clone()),
            _ => (own_at, own.map(|own| own.policy()).unwrap_or_default()),
        }
    }

    /// Notes that an org's form is to be kept, if it is published as it is stored. One from the store takes the place of what was
    /// noted before.
    fn note_unkept(&mut self, org: &str, form: &Arc<OrgForm>) {
        let is_stored = self.held.orgs.get(org).is_some_and(|held| Arc::ptr_eq(held, form));
        let asked = self.asked.get(org).and_then(|asked| asked.form.as_ref());
        if is_stored {
            self.unkept.insert(names::of_org(org));
        } else if asked.is_some_and(|(at, _)| *at == form.at) {
            self.unkept.remove(&names::of_org(org));
        }
    }

    /// Takes out what is published now and the store does not have yet: servers as they are stored, and orgs that are not denied.
    pub fn unkept(&mut self) -> Unkept {
        let parts = std::mem::take(&mut self.unkept);
        if parts.is_empty() {
            return Unkept::default();
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
                    Form::Server(Arc::clone(self.servers.get(index)?), *stored.get(name)?)
                }
                Name::Org(org) => match self.orgs.get(org) {
                    Some(form) if form.at > 0 => Form::Org(org.to_owned(), Arc::clone(form)),
                    // What a denial takes the place of was taken out when it was published.
                    Some(_) => return None,
                    None => Form::Gone(self.held.revision),
                },
                _ => return None,
            };
            Some((part, form))
        });
        Unkept { parts: published.collect() }
    }
}
