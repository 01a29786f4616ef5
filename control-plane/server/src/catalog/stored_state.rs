//! The state of the store as it was read last: the sources of servers, and each org's policy in its published form.
//!
//! Keeps true: an org is compiled only when one of its records changed; only the compiled form is kept, not the
//! records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_platform::clock;
use asp_proto::snapshot::{ExposureException, Limit, MachineCertificate, MachineKey, OrgPart, snapshot_part};
use asp_registry::CompiledServer;
use asp_snapshot::limits::MAX_DRAWN;
use asp_snapshot::machines::RESERVED;
use asp_store::control::{
    ControlState, IssuerKeysRecord, IssuerRecord, LimitRecord, MachineBound, Machines, OfferRecord, OrgState,
    Placement, ServerRecord, StateDelta, StateUpdate, UnreadableIssuer, UnreadableMachine,
};
use asp_xds::parts::EncodedPart;

use super::fault::Fault;
use super::fault::Part as FaultPart;
use super::offers::OfferTable;
use super::orgs::{OrgPolicy, Records, Size};
use super::revoked::LiveRevocations;
use crate::policy;
use crate::policy::overlap;
use crate::server_records;

pub(super) const ORG_REMEDY: &str =
    "delete or replace the org's entries (an admin of the org or of the platform)";
/// Maximum number of entries that a fault names.
const SHOWN: usize = 5;

/// One org, ready to be published.
pub(super) struct OrgForm {
    /// Revision of the store at which its policy was read; 0 for a denial that replaces it.
    pub(super) at: u64,
    pub(super) size: Size,
    /// Bytes of a policy that denies the org everything.
    pub(super) denial_bytes: usize,
    pub(super) faults: Vec<Fault>,
    /// Exposure exceptions that edges receive.
    pub(super) exposure: Vec<ExposureException>,
    /// Its exposure as written, if that includes servers that are not offered to it.
    wanted: Option<Vec<ExposureException>>,
    pub(super) limits: Vec<Limit>,
    /// Part that gateways receive; `None` if it is empty.
    pub(super) part: Option<EncodedPart>,
    /// Earliest expiry of its machines' keys and certificates, in Unix seconds.
    machines_until: Option<u64>,
    has_machines: bool,
}

impl OrgForm {
    fn of(state: &OrgState, at: u64, offered: &OfferTable) -> OrgForm {
        let (policy, unreadable) = OrgPolicy::compile(&state.org, &Records::of(state));
        let mut faults = Vec::new();
        if !unreadable.is_empty() {
            faults.push(unreadable_records(&state.org, &unreadable));
        }
        let limits: Vec<&LimitRecord> = state.limits.iter().collect();
        let passed_over = overlap::partly_applied(&limits);
        if !passed_over.is_empty() {
            faults.push(partly_applied_limits(&state.org, &passed_over));
        }
        let machines = MachineCredentials::of(state, &mut faults);
        OrgForm { at, faults, ..OrgForm::from_policy(&state.org, policy, machines, offered) }
    }

    /// Returns the same org with other machines.
    fn with_machines(&self, org: &str, machines: MachineCredentials, offered: &OfferTable) -> OrgForm {
        let (at, faults) = (self.at, self.faults.clone());
        OrgForm { at, faults, ..OrgForm::from_policy(org, self.policy(), machines, offered) }
    }

    /// Returns the same org with other offers; `None` if they make no difference to it.
    fn with_offers(&self, org: &str, offered: &OfferTable) -> Option<OrgForm> {
        let wanted = self.wanted.as_ref().unwrap_or(&self.exposure);
        (offered.narrow(wanted) != self.exposure).then(|| self.with_machines(org, self.machines(), offered))
    }

    fn machines(&self) -> MachineCredentials {
        match self.part.as_ref().and_then(EncodedPart::read) {
            Some(snapshot_part::Part::Org(part)) => {
                MachineCredentials { keys: part.machine_keys, certificates: part.machine_certificates }
            }
            _ => MachineCredentials::default(),
        }
    }

    /// Returns the same org without the keys and certificates that have expired at `now` (Unix seconds); `None` if none
    /// has.
    fn without_expired(&self, org: &str, now: u64, offered: &OfferTable) -> Option<OrgForm> {
        self.machines_until.filter(|until| *until <= now)?;
        let MachineCredentials { mut keys, mut certificates } = self.machines();
        keys.retain(|key| key.expires_at > now);
        certificates = certificates.into_iter().filter_map(|known| in_force(known, now)).collect();
        Some(self.with_machines(org, MachineCredentials { keys, certificates }, offered))
    }

    /// Returns the same org with another policy, read at revision `at`.
    pub(super) fn with_policy(&self, org: &str, at: u64, policy: OrgPolicy, offered: &OfferTable) -> OrgForm {
        OrgForm { at, ..OrgForm::from_policy(org, policy, self.machines(), offered) }
    }

    /// Its size includes switches of servers that are not offered: a later offer cannot grow it beyond what was
    /// admitted.
    fn from_policy(
        org: &str,
        policy: OrgPolicy,
        machines: MachineCredentials,
        offered: &OfferTable,
    ) -> OrgForm {
        let size = policy.size();
        let exposure = offered.narrow(&policy.exposure);
        let keys = machines.keys.iter().map(|key| key.expires_at);
        let certificates = machines.certificates.iter().filter(|known| known.expires_at != RESERVED);
        let machines_until = keys.chain(certificates.map(|known| known.expires_at)).min();
        let has_machines = !machines.keys.is_empty() || !machines.certificates.is_empty();
        let mut part = OrgPart {
            org: org.to_owned(),
            bindings: policy.bindings,
            observed_bindings: policy.observed,
            machine_keys: machines.keys,
            machine_certificates: machines.certificates,
            ..OrgPart::default()
        };
        part.exposure.clone_from(&exposure);
        part.limits.clone_from(&policy.limits);
        let says_nothing = part == OrgPart { org: org.to_owned(), ..OrgPart::default() };
        OrgForm {
            at: 0,
            size,
            denial_bytes: OrgPolicy::denied(org).size().policy(),
            faults: Vec::new(),
            wanted: (exposure.len() < policy.exposure.len()).then_some(policy.exposure),
            exposure,
            limits: policy.limits,
            part: (!says_nothing).then(|| EncodedPart::of(snapshot_part::Part::Org(part))),
            machines_until,
            has_machines,
        }
    }

    /// Returns its policy as written, including switches of servers that are not offered to it.
    pub(super) fn policy(&self) -> OrgPolicy {
        let mut policy = match self.part.as_ref().and_then(EncodedPart::read) {
            Some(snapshot_part::Part::Org(part)) => OrgPolicy::read_published(part),
            _ => OrgPolicy::default(),
        };
        if let Some(wanted) = &self.wanted {
            policy.exposure.clone_from(wanted);
        }
        policy
    }

    /// Whether edges see no difference between the two.
    pub(super) fn is_same_at_the_edge(&self, other: &OrgForm) -> bool {
        self.exposure == other.exposure && self.limits == other.limits
    }
}

/// Machine keys and certificates of an org.
#[derive(Default)]
struct MachineCredentials {
    keys: Vec<MachineKey>,
    certificates: Vec<MachineCertificate>,
}

impl MachineCredentials {
    /// Compiles the keys and certificates that have not expired, and the reserved URIs of the others. None is ever
    /// stored in a last form, so that a deleted one cannot grant access again.
    fn of(state: &OrgState, faults: &mut Vec<Fault>) -> MachineCredentials {
        let now = clock::now_ms();
        let mut machines = MachineCredentials::default();
        faults.extend(state.unreadable_machines.iter().map(unreadable_machine));
        for record in state.machine_keys.iter().filter(|record| record.expires_at > now) {
            if let Some(fault) = first_excess(&state.machine_bound, &record.groups, &record.scopes) {
                faults.push(excess_fault(&record.org, "key", &record.id, &fault));
                continue;
            }
            match policy::machine_key(record) {
                Ok(key) => machines.keys.push(key),
                Err(error) => faults.push(org_fault(
                    &record.org,
                    error.to_string(),
                    "the key opens nothing",
                    "delete the key, and make another one",
                )),
            }
        }
        for record in &state.machine_certificates {
            match policy::machine_certificate(record) {
                Ok(certificate) if record.expires_at <= now => {
                    machines.certificates.extend(reservation(certificate));
                }
                Ok(certificate) => match first_excess(&state.machine_bound, &record.groups, &record.scopes) {
                    None => machines.certificates.push(certificate),
                    Some(fault) => {
                        faults.push(excess_fault(&record.org, "certificate", &record.id, &fault));
                        machines.certificates.extend(reservation(certificate));
                    }
                },
                Err(_) if record.expires_at <= now => {}
                Err(error) => faults.push(org_fault(
                    &record.org,
                    error.to_string(),
                    "the certificate opens nothing",
                    "delete the certificate, and register it again",
                )),
            }
        }
        machines
    }
}

/// Returns the certificate as it is in force at `now` (Unix seconds).
fn in_force(certificate: MachineCertificate, now: u64) -> Option<MachineCertificate> {
    if certificate.expires_at > now { Some(certificate) } else { reservation(certificate) }
}

/// Reserves the URI of a registration that grants no access, so that no other org can claim it by fingerprint; `None`
/// for a fingerprint. The reservation has a new id, so that calls that run with the registration end.
fn reservation(certificate: MachineCertificate) -> Option<MachineCertificate> {
    if certificate.expires_at == RESERVED {
        return Some(certificate);
    }
    if certificate.uri.is_empty() {
        return None;
    }
    let MachineCertificate { id, uri, org, user, issued_at, .. } = certificate;
    let id = format!("{id} reserved");
    let expires_at = RESERVED;
    Some(MachineCertificate { id, uri, org, user, issued_at, expires_at, ..MachineCertificate::default() })
}

/// The state of the store.
#[derive(Default)]
pub(super) struct StoredState {
    pub(super) revision: u64,
    /// Stamp that identifies the history of the store.
    pub(super) stamp: String,
    /// Servers sorted by name.
    pub(super) servers: Vec<ServerRecord>,
    pub(super) orgs: BTreeMap<String, Arc<OrgForm>>,
    offers: Vec<OfferRecord>,
    /// Offers of the published servers; the orgs' forms are narrowed by them.
    pub(super) offered: OfferTable,
    pub(super) revocations: LiveRevocations,
    pub(super) issuers: Vec<IssuerRecord>,
    pub(super) issuer_keys: Vec<IssuerKeysRecord>,
    pub(super) unreadable_issuers: Vec<UnreadableIssuer>,
    pub(super) placement: Placement,
}

impl StoredState {
    /// Applies what was read from the store. Returns whether servers or offers changed.
    pub(super) fn take(&mut self, since: StateUpdate) -> bool {
        self.stamp = since.position().stamp;
        match since {
            StateUpdate::Changed(changed) => self.take_changed(changed),
            StateUpdate::All(state) => {
                self.take_all(state);
                true
            }
        }
    }

    fn take_changed(&mut self, changed: StateDelta) -> bool {
        let StateDelta { revision, servers, orgs, machines, offers, revocations, placement, .. } = changed;
        self.revision = revision;
        self.issuers = changed.issuers;
        self.issuer_keys = changed.issuer_keys;
        self.unreadable_issuers = changed.unreadable_issuers;
        let has_offers = offers.is_some();
        self.offers = offers.unwrap_or_else(|| std::mem::take(&mut self.offers));
        if let Some(placement) = placement {
            self.placement = placement;
        }
        let has_servers = !servers.is_empty();
        server_records::change(&mut self.servers, servers);
        let mut taken = BTreeSet::new();
        for state in orgs {
            self.take_org(&state);
            taken.insert(state.org);
        }
        if let Some(machines) = machines {
            self.take_machines(machines, &taken);
        }
        self.revocations.take(revocations);
        has_servers || has_offers
    }

    /// Takes the machines of the orgs that were not read completely: another org may register an expired URI from now
    /// on.
    fn take_machines(&mut self, machines: Machines, taken: &BTreeSet<String>) {
        let mut by_org = BTreeMap::new();
        add_machines(&mut by_org, machines);
        let had = self.orgs.iter().filter(|(_, form)| form.has_machines);
        let had: Vec<String> = had.map(|(org, _)| org.clone()).collect();
        for org in had.into_iter().filter(|org| !taken.contains(org)) {
            let state = by_org.remove(&org).unwrap_or_default();
            let mut faults = Vec::new();
            let machines = MachineCredentials::of(&state, &mut faults);
            let form = self.orgs.get(&org).map(|form| form.with_machines(&org, machines, &self.offered));
            if let Some(form) = form {
                self.put(org, form);
            }
        }
    }

    /// Leaves out the keys and certificates that have expired at `now` (Unix milliseconds).
    pub(super) fn drop_expired(&mut self, now: u64) {
        let ended = |(org, form): (&String, &Arc<OrgForm>)| {
            Some((org.clone(), form.without_expired(org, now / 1_000, &self.offered)?))
        };
        let ended: Vec<(String, OrgForm)> = self.orgs.iter().filter_map(ended).collect();
        ended.into_iter().for_each(|(org, form)| self.put(org, form));
    }

    fn take_all(&mut self, mut state: ControlState) {
        let mut orgs = by_org(&mut state);
        let gone: Vec<String> = self.orgs.keys().filter(|org| !orgs.contains_key(*org)).cloned().collect();
        orgs.extend(gone.into_iter().map(|org| (org.clone(), OrgState { org, ..OrgState::default() })));
        let mut servers = state.servers;
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        self.servers = servers;
        self.revision = state.revision;
        self.issuers = state.issuers;
        self.issuer_keys = state.issuer_keys;
        self.unreadable_issuers = state.unreadable_issuers;
        self.placement = state.placement;
        self.offers = state.offers;
        for state in orgs.values() {
            self.take_org(state);
        }
        self.revocations.take(asp_store::control::ChangedRevocations::All(state.revocations));
    }

    fn take_org(&mut self, state: &OrgState) {
        self.put(state.org.clone(), OrgForm::of(state, self.revision.max(1), &self.offered));
    }

    fn put(&mut self, org: String, form: OrgForm) {
        // An unchanged form stays, so that it is not published again.
        let is_same = |known: &Arc<OrgForm>| {
            known.part == form.part && known.faults == form.faults && known.wanted == form.wanted
        };
        if form.part.is_none() && form.faults.is_empty() && form.wanted.is_none() {
            self.orgs.remove(&org);
        } else if !self.orgs.get(&org).is_some_and(is_same) {
            self.orgs.insert(org, Arc::new(form));
        }
    }

    /// Takes the servers that are published from now on and narrows the orgs' forms to what is offered.
    pub(super) fn offer(&mut self, servers: &[Arc<CompiledServer>]) {
        let offered = OfferTable::of(servers, &self.offers);
        if offered == self.offered {
            return;
        }
        let other =
            |(org, form): (&String, &Arc<OrgForm>)| Some((org.clone(), form.with_offers(org, &offered)?));
        let others: Vec<(String, OrgForm)> = self.orgs.iter().filter_map(other).collect();
        self.offered = offered;
        others.into_iter().for_each(|(org, form)| self.put(org, form));
    }
}

/// Moves the records out of the state: there may be a million of them.
fn by_org(state: &mut ControlState) -> BTreeMap<String, OrgState> {
    let mut orgs = BTreeMap::new();
    for record in std::mem::take(&mut state.exposure) {
        of(&mut orgs, &record.org).exposure.push(record);
    }
    for record in std::mem::take(&mut state.bindings) {
        of(&mut orgs, &record.org).bindings.push(record);
    }
    for (org, record) in std::mem::take(&mut state.limits) {
        of(&mut orgs, &org).limits.push(record);
    }
    add_machines(&mut orgs, std::mem::take(&mut state.machines));
    orgs
}

/// Adds machines to their orgs.
fn add_machines(orgs: &mut BTreeMap<String, OrgState>, machines: Machines) {
    let Machines { keys, certificates, bounds, unreadable } = machines;
    for record in keys {
        of(orgs, &record.org).machine_keys.push(record);
    }
    for record in certificates {
        of(orgs, &record.org).machine_certificates.push(record);
    }
    for (org, bound) in bounds {
        of(orgs, &org).machine_bound = bound;
    }
    for row in unreadable {
        of(orgs, &row.org).unreadable_machines.push(row);
    }
}

fn of<'o>(orgs: &'o mut BTreeMap<String, OrgState>, org: &str) -> &'o mut OrgState {
    orgs.entry(org.to_owned()).or_insert_with(|| OrgState { org: org.to_owned(), ..OrgState::default() })
}

fn unreadable_records(org: &str, unreadable: &[String]) -> Fault {
    let shown: Vec<&str> = unreadable.iter().take(SHOWN).map(String::as_str).collect();
    org_fault(
        org,
        format!("{} entries mean nothing to this version: {}", unreadable.len(), shown.join("; ")),
        "their denials and limits deny, their allows are left out",
        ORG_REMEDY,
    )
}

/// Returns a fault that names limits that do not apply to all of their calls, in a list stored before such lists were
/// refused.
fn partly_applied_limits(org: &str, limits: &[&LimitRecord]) -> Fault {
    let named = |limit: &&LimitRecord| {
        let LimitRecord { server, primitive, user, machine, capacity, refill, .. } = limit;
        format!(
            "server {server}, primitive {primitive}, user {user}, machine {machine}: {capacity}, {refill}"
        )
    };
    let shown: Vec<String> = limits.iter().take(SHOWN).map(named).collect();
    org_fault(
        org,
        format!(
            "one call may draw from more than {MAX_DRAWN} of its rate limits, and {} do not count for every call that they are about: {}",
            limits.len(),
            shown.join("; ")
        ),
        "of the limits that are about a call, the 8 with the slowest refill count",
        "store the list again with fewer kinds of callers, servers and patterns (an admin of the org or of the platform)",
    )
}

fn unreadable_machine(row: &UnreadableMachine) -> Fault {
    let UnreadableMachine { org, kind, id, fault } = row;
    let what = if id.is_empty() { (*kind).to_owned() } else { format!("{kind} {id}") };
    let in_force = match *kind {
        "bound" => "machines of the org may have no group and no scope",
        _ => "it opens nothing",
    };
    org_fault(
        org,
        format!(
            "{what} of its machines cannot be read by this version, a newer one may have written it: {fault}"
        ),
        in_force,
        "run the version that wrote it, or replace it",
    )
}

/// Returns the first group or scope of a machine that exceeds its org's bound.
fn first_excess(bound: &MachineBound, groups: &[String], scopes: &[String]) -> Option<String> {
    bound.beyond(groups, scopes).map(|(kind, name)| format!("{kind} {name}"))
}

/// The whole key or certificate is left out: without a group it could escape a denial of that group.
fn excess_fault(org: &str, what: &str, id: &str, beyond: &str) -> Fault {
    org_fault(
        org,
        format!("{what} {id} has the {beyond}, which machines of the org may not have"),
        "it opens nothing",
        "make another one without it, or have an admin of the platform widen the org's bound (asp machines bound)",
    )
}

fn org_fault(org: &str, fault: String, in_force: &'static str, remedy: &'static str) -> Fault {
    Fault { part: FaultPart::Org, name: org.to_owned(), fault, in_force, remedy }
}
