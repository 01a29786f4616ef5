//! Compiles an org's stored records to its policy in a snapshot, and checks that edges and gateways accept it.
//!
//! Keeps true: a record that this version cannot read never becomes an allow. An unreadable denial or limit denies its
//! primitive; an unreadable allow is left out.

use std::collections::{BTreeMap, BTreeSet};

use asp_proto::snapshot::{
    Binding, ExposureException, Limit, OrgPart, Protocol, snapshot_part::Part as Says,
};
use asp_snapshot::parts as names;
use asp_snapshot::policy::{denials, deny_instead};
use asp_store::control::{BindingRecord, ControlState, ExposureRecord, LimitRecord, OrgState};

use super::Compiler;
use super::budget::{FRAMING, bytes};
use crate::policy;

/// Stored policy records of an org.
#[derive(Clone, Default)]
pub struct Records<'a> {
    pub exposure: Vec<&'a ExposureRecord>,
    pub bindings: Vec<&'a BindingRecord>,
    pub limits: Vec<&'a LimitRecord>,
}

/// Policy of an org in a snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrgPolicy {
    pub exposure: Vec<ExposureException>,
    pub bindings: Vec<Binding>,
    /// Bindings that are evaluated but not enforced.
    pub observed: Vec<Binding>,
    pub limits: Vec<Limit>,
}

/// Encoded bytes of an org's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Exposure exceptions in the edge snapshot.
    pub exposure: usize,
    /// Exposure exceptions in the gateway snapshot.
    pub named_exposure: usize,
    pub bindings: usize,
    pub limits: usize,
}

/// Maximum bytes of a number in `OrgExposure.exceptions`: there are at most 1,000 servers.
const EXCEPTION: usize = 3;

impl Size {
    /// Bytes that count against the budget of policies.
    pub fn policy(&self) -> usize {
        self.named_exposure + self.bindings + self.limits
    }
}

/// Groups the records of the state by org.
pub fn of_state(state: &ControlState) -> BTreeMap<&str, Records<'_>> {
    let mut orgs: BTreeMap<&str, Records<'_>> = BTreeMap::new();
    for record in &state.exposure {
        orgs.entry(&record.org).or_default().exposure.push(record);
    }
    for record in &state.bindings {
        orgs.entry(&record.org).or_default().bindings.push(record);
    }
    for (org, record) in &state.limits {
        orgs.entry(org).or_default().limits.push(record);
    }
    orgs
}

impl<'a> Records<'a> {
    /// Borrows the records of one org's state.
    pub fn of(state: &'a OrgState) -> Records<'a> {
        Records {
            exposure: state.exposure.iter().collect(),
            bindings: state.bindings.iter().collect(),
            limits: state.limits.iter().collect(),
        }
    }
}

impl OrgPolicy {
    /// Compiles the records; also returns a text for each record that this version cannot read.
    pub fn compile(org: &str, records: &Records<'_>) -> (OrgPolicy, Vec<String>) {
        let mut compiled = OrgPolicy::default();
        let mut unreadable = Vec::new();
        let mut denied: BTreeSet<&str> = BTreeSet::new();
        for record in &records.bindings {
            match policy::binding(record) {
                Ok(binding) if record.observed => compiled.observed.push(binding),
                Ok(binding) => compiled.bindings.push(binding),
                Err(error) => {
                    unreadable.push(format!("binding on {}: {error}", record.primitive));
                    let narrows = !record.allowed || record.is_rule();
                    if narrows && !record.observed {
                        denied.insert(&record.primitive);
                    }
                }
            }
        }
        for record in &records.limits {
            match policy::limit(org, record) {
                Ok(limit) => compiled.limits.push(limit),
                Err(error) => {
                    unreadable.push(format!("rate limit on {}: {error}", record.primitive));
                    denied.insert(&record.primitive);
                }
            }
        }
        deny_instead(org, &denied, &mut compiled.bindings);
        let mut hidden: Vec<&str> = Vec::new();
        for record in &records.exposure {
            match policy::protocol(&record.protocol) {
                Ok(protocol) => compiled.exposure.push(ExposureException {
                    org: record.org.clone(),
                    server: record.server.clone(),
                    protocol: protocol.into(),
                    enabled: record.enabled,
                }),
                Err(error) => {
                    unreadable.push(format!("exposure of {}: {error}", record.server));
                    hidden.extend((!record.enabled).then_some(record.server.as_str()));
                }
            }
        }
        hidden.into_iter().for_each(|server| compiled.hide(org, server));
        (compiled, unreadable)
    }

    /// Returns a policy that denies the org everything.
    pub fn denied(org: &str) -> OrgPolicy {
        OrgPolicy { bindings: denials(org, "*").into(), ..OrgPolicy::default() }
    }

    /// Reads the policy of a published part.
    pub fn read_published(part: OrgPart) -> OrgPolicy {
        let OrgPart { exposure, bindings, observed_bindings, limits, .. } = part;
        OrgPolicy { exposure, bindings, observed: observed_bindings, limits }
    }

    /// Returns the part that publishes the policy, without machines.
    pub fn into_part(self, org: &str) -> OrgPart {
        let OrgPolicy { exposure, bindings, observed: observed_bindings, limits } = self;
        OrgPart { org: org.to_owned(), exposure, bindings, observed_bindings, limits, ..OrgPart::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.exposure.is_empty()
            && self.bindings.is_empty()
            && self.observed.is_empty()
            && self.limits.is_empty()
    }

    /// Adds another org's policy.
    pub fn add(&mut self, other: OrgPolicy) {
        self.exposure.extend(other.exposure);
        self.bindings.extend(other.bindings);
        self.observed.extend(other.observed);
        self.limits.extend(other.limits);
    }

    pub fn size(&self) -> Size {
        let bindings = bytes(&self.bindings) + bytes(&self.observed);
        let org = self.exposure.first().map_or(0, |exception| exception.org.len() + 3 * FRAMING);
        Size {
            exposure: org + EXCEPTION * self.exposure.len(),
            named_exposure: bytes(&self.exposure),
            bindings,
            limits: bytes(&self.limits),
        }
    }

    /// Hides a server over every protocol.
    fn hide(&mut self, org: &str, server: &str) {
        self.exposure.retain(|exception| exception.server != server);
        self.exposure.push(ExposureException {
            org: org.to_owned(),
            server: server.to_owned(),
            protocol: Protocol::Unspecified.into(),
            enabled: false,
        });
    }
}

impl Compiler {
    /// Checks that edges and gateways accept a snapshot with this policy of an org; the error says what is wrong with it.
    pub fn evaluate(&self, org: &str, policy: &OrgPolicy) -> Result<(), String> {
        self.evaluate_alone(names::of_org(org), Says::Org(policy.clone().into_part(org)))
    }
}

#[cfg(test)]
mod tests {
    use asp_edge::{Caller, MACHINE_ISSUER};
    use asp_proto::snapshot::Primitive;
    use asp_snapshot::policy::{Policy, Ruling};

    use super::*;

    fn binding(target_type: &str, target: &str, primitive: &str, allowed: bool) -> BindingRecord {
        BindingRecord {
            org: "acme".into(),
            target_type: target_type.into(),
            target: target.into(),
            primitive: primitive.into(),
            protocol: "*".into(),
            allowed,
            ..BindingRecord::default()
        }
    }

    fn limit(primitive: &str, refill: &str) -> LimitRecord {
        LimitRecord {
            server: "*".into(),
            primitive: primitive.into(),
            user: "bob".into(),
            wcit: "*".into(),
            issuer: "*".into(),
            machine: "*".into(),
            capacity: 1,
            refill: refill.into(),
            observe: false,
            ..LimitRecord::default()
        }
    }

    fn allows(compiled: &OrgPolicy, id: &str) -> bool {
        let caller = Caller {
            org: "acme".into(),
            user: "alice".into(),
            groups: Vec::new(),
            scopes: Vec::new(),
            client: String::new(),
            wcit: "t".into(),
            digest: [0; 32],
            issuer: String::new(),
            issued_at: 0,
            expires_at: u64::MAX,
        };
        let primitive = Primitive { id: id.into(), ..Primitive::default() };
        let policy = Policy::new(compiled.bindings.clone(), compiled.observed.clone()).unwrap();
        let ruling = policy.rule(&caller, &primitive, Protocol::Mcp);
        matches!(ruling, Ruling::Allowed(_))
    }

    #[test]
    fn an_unreadable_denial_or_limit_denies_what_it_was_about_and_no_more() {
        let allow = binding("user", "alice", "cc.search", true);
        let wide = binding("user", "*", "cc*", true);
        for (unreadable, limits) in [
            (binding("role", "ops", "cc.*", false), vec![]),
            (binding("user", "alice", "x", true), vec![limit("cc.*", "1/fortnight")]),
        ] {
            let limits: Vec<&LimitRecord> = limits.iter().collect();
            let records =
                Records { bindings: vec![&allow, &wide, &unreadable], limits, ..Records::default() };
            let (compiled, texts) = OrgPolicy::compile("acme", &records);
            assert_eq!(texts.len(), 1, "{texts:?}");
            assert!(!allows(&compiled, "cc.search"), "{compiled:?}");
            assert!(allows(&compiled, "cc2.search") && allows(&compiled, "other"), "{compiled:?}");
        }
    }

    #[test]
    fn an_unreadable_allow_is_left_out_and_a_stored_denial_changes_nothing_else() {
        let allow = binding("user", "alice", "cc.search", true);
        let denial = binding("user", "*", "*", false);
        let unreadable = binding("role", "ops", "*", true);
        let records = Records { bindings: vec![&allow, &denial, &unreadable], ..Records::default() };
        let (compiled, texts) = OrgPolicy::compile("acme", &records);
        assert_eq!(texts.len(), 1);
        assert!(allows(&compiled, "cc.search") && !allows(&compiled, "other"));
    }

    #[test]
    fn an_unreadable_condition_denies_unless_it_is_only_observed() {
        for approval in [false, true] {
            let rule = BindingRecord {
                allowed: approval,
                approval,
                when: r#"[{"pointer":"/a","newer":1}]"#.into(),
                ..binding("user", "*", "cc.*", true)
            };
            let seen = BindingRecord { observed: true, ..rule.clone() };
            let records = Records { bindings: vec![&rule, &seen], ..Records::default() };
            let (compiled, texts) = OrgPolicy::compile("acme", &records);
            assert_eq!((texts.len(), compiled.observed.len()), (2, 0));
            assert!(!allows(&compiled, "cc.search") && allows(&compiled, "other"));
            let records = Records { bindings: vec![&seen], ..Records::default() };
            assert!(allows(&OrgPolicy::compile("acme", &records).0, "cc.search"));
        }
    }

    #[test]
    fn an_observed_binding_and_one_with_conditions_are_no_allow_and_no_denial_of_lists() {
        let when = r#"[{"pointer":"/a","equals":1}]"#;
        let rule = BindingRecord { when: when.into(), ..binding("user", "*", "cc.*", false) };
        let seen = BindingRecord { observed: true, ..binding("user", "*", "other", false) };
        let records = Records { bindings: vec![&rule, &seen], ..Records::default() };
        let (compiled, texts) = OrgPolicy::compile("acme", &records);
        assert_eq!(texts, Vec::<String>::new());
        assert_eq!((compiled.bindings.len(), compiled.observed.len()), (1, 1));
        assert!(allows(&compiled, "cc.search") && allows(&compiled, "other"));
    }

    #[test]
    fn an_unreadable_exposure_hides_its_server_only_if_it_hid_it() {
        let exposure = |server: &str, protocol: &str, enabled| ExposureRecord {
            org: "acme".into(),
            server: server.into(),
            protocol: protocol.into(),
            enabled,
        };
        let stored = [
            exposure("demo", "mcp", true),
            exposure("demo", "quic", false),
            exposure("other", "mcp", true),
            exposure("other", "quic", true),
        ];
        let records = Records { exposure: stored.iter().collect(), ..Records::default() };
        let (compiled, texts) = OrgPolicy::compile("acme", &records);
        assert_eq!(texts.len(), 2);
        let said: Vec<(&str, i32, bool)> =
            compiled.exposure.iter().map(|e| (e.server.as_str(), e.protocol, e.enabled)).collect();
        assert_eq!(said, [("other", Protocol::Mcp as i32, true), ("demo", 0, false)]);
    }

    #[test]
    fn a_denied_org_may_call_nothing() {
        let denied = OrgPolicy::denied("acme");
        assert!(!allows(&denied, "cc.search") && !allows(&denied, ""));
        let for_machines = |binding: &Binding| binding.issuer == MACHINE_ISSUER && !binding.allowed;
        assert!(denied.bindings.iter().any(for_machines), "a machine is no user");
    }
}
