//! Builds the snapshot of everything stored, whatever is stored.
//!
//! Keeps true: what cannot be built keeps its last published form, else is denied, and is named as a standing
//! fault; the rest is published, and revocations in every case. Of orgs that do not fit together the largest
//! are the ones that are not renewed.

use std::collections::BTreeMap;

use anyhow::Context as _;
use asp_proto::snapshot::{EdgeSnapshot, GatewaySnapshot, MachineCertificate, MachineKey};
use asp_registry::{CompiledServer, Inputs};
use asp_snapshot::Snapshot;
use asp_store::control::ControlState;
use prost::Message as _;

use super::Compiler;
use super::budget::{self, EDGE, EXPOSURE, FRAMING, GATEWAY, POLICY, SLACK};
use super::fault::{Fault, LAST_FORM, NO_TOKENS, ORG_DENIED, Part};
use super::orgs::{self, OrgPolicy, Size};
use crate::clock;
use crate::issuers::trust::NotInForce;
use crate::policy::{self, Revoked};

const ORG_WAY_OUT: &str = "delete or replace the org's entries (an admin of the org or of the platform)";

/// A snapshot, and what of the state it does not say as it is stored.
#[derive(Debug, Default)]
pub struct Built {
    pub snapshot: GatewaySnapshot,
    pub faults: Vec<Fault>,
}

/// Builds the snapshot of `state`; `last` is the one that is published.
pub fn build(
    state: &ControlState,
    compiler: &Compiler,
    last: Option<&GatewaySnapshot>,
) -> anyhow::Result<Built> {
    // First: servers are evaluated beside the issuers.
    let out_of_force = compiler.trust().take(state, compiler.trust().clock().now_ms());
    let settled = compiler.settle(&state.servers);
    let revoked = policy::revoked(&state.revocations, &compiler.trusted(), clock::now_ms());
    let builder = Builder { state, compiler, last, servers: settled.servers, revoked };
    let mut built = builder.attempt(&BTreeMap::new());
    if edge(&built.snapshot).is_err() {
        // What every write was evaluated by refuses it all the same: find whose part it is.
        built = builder.attempt(&builder.refused());
        edge(&built.snapshot).context("the edges would refuse the snapshot")?;
    }
    built.faults.splice(0..0, settled.faults);
    built.faults.extend(out_of_force.into_iter().map(not_in_force));
    Ok(built)
}

struct Builder<'a> {
    state: &'a ControlState,
    compiler: &'a Compiler,
    last: Option<&'a GatewaySnapshot>,
    servers: Vec<CompiledServer>,
    revoked: Revoked,
}

/// What is left for the orgs' policies.
struct Room {
    exposure: usize,
    policy: usize,
}

impl Room {
    fn take(&mut self, size: Size) -> bool {
        let fits = size.exposure <= self.exposure && size.policy() <= self.policy;
        if fits {
            self.exposure -= size.exposure;
            self.policy -= size.policy();
        }
        fits
    }
}

impl Builder<'_> {
    /// Builds it with other forms for the orgs in `refused`, which says what is wrong with each.
    fn attempt(&self, refused: &BTreeMap<&str, String>) -> Built {
        let mut faults: Vec<Fault> = self.revoked.unknown.iter().map(|id| unknown_revocation(id)).collect();
        let policy = self.policy(refused, &mut faults);
        let machine_keys = self.machine_keys(&mut faults);
        let machine_certificates = self.machine_certificates(&mut faults);
        let snapshot = asp_registry::assemble(Inputs {
            revision: self.state.revision,
            servers: self.servers.clone(),
            exposure: policy.exposure,
            bindings: policy.bindings,
            observed_bindings: policy.observed,
            machine_keys,
            machine_certificates,
            limits: policy.limits,
            revoked: self.revoked.tokens.clone(),
            revoked_before: self.revoked.before.clone(),
            ..self.compiler.config.inputs()
        });
        let bytes = snapshot.edge.as_ref().map_or(0, EdgeSnapshot::encoded_len);
        if bytes > EDGE {
            faults.push(Fault {
                part: Part::Edge,
                name: String::new(),
                fault: format!("the edge snapshot has {bytes} bytes, it should have at most {EDGE}"),
                in_force: "it is published: every Envoy worker copies it, and requests wait meanwhile",
                way_out: "let revocations expire or replace them by fewer ones (`user`, `org`)",
            });
        }
        Built { snapshot, faults }
    }

    /// The keys that have not ended. A key is never kept in a last form: what was deleted opens nothing.
    fn machine_keys(&self, faults: &mut Vec<Fault>) -> Vec<MachineKey> {
        let now = clock::now_ms();
        let mut keys = Vec::new();
        for record in self.state.machine_keys.iter().filter(|record| record.expires_at > now) {
            match policy::machine_key(record) {
                Ok(key) => keys.push(key),
                Err(error) => faults.push(Fault {
                    part: Part::Org,
                    name: record.org.clone(),
                    fault: error.to_string(),
                    in_force: "the key opens nothing",
                    way_out: "delete the key, and make another one",
                }),
            }
        }
        keys
    }

    /// The certificates whose registration has not ended; likewise.
    fn machine_certificates(&self, faults: &mut Vec<Fault>) -> Vec<MachineCertificate> {
        let now = clock::now_ms();
        let mut certificates = Vec::new();
        for record in self.state.machine_certificates.iter().filter(|record| record.expires_at > now) {
            match policy::machine_certificate(record) {
                Ok(certificate) => certificates.push(certificate),
                Err(error) => faults.push(Fault {
                    part: Part::Org,
                    name: record.org.clone(),
                    fault: error.to_string(),
                    in_force: "the certificate opens nothing",
                    way_out: "delete the certificate, and register it anew",
                }),
            }
        }
        certificates
    }

    /// The policies of all orgs that fit, the small ones first.
    fn policy(&self, refused: &BTreeMap<&str, String>, faults: &mut Vec<Fault>) -> OrgPolicy {
        let mut forms = Vec::new();
        let mut room = self.room();
        for (org, records) in orgs::of_state(self.state) {
            let (form, unreadable) = OrgPolicy::compile(org, &records);
            if !unreadable.is_empty() {
                faults.push(unreadable_records(org, &unreadable));
            }
            // Whatever comes, there is room to deny it.
            room.policy = room.policy.saturating_sub(OrgPolicy::denied(org).size().policy());
            forms.push((form.size(), org, form));
        }
        forms.sort_by_key(|(size, org, _)| (size.exposure + size.policy(), *org));
        let mut all = OrgPolicy::default();
        for (size, org, form) in forms {
            let fault = match refused.get(org) {
                Some(fault) => fault.clone(),
                None if room.take(size) => {
                    all.add(form);
                    continue;
                }
                None => format!(
                    "its policy takes {} bytes of exposure exceptions and {} of bindings and rate limits; all orgs \
                     together have {} and {}",
                    size.exposure,
                    size.policy(),
                    EXPOSURE.whole,
                    POLICY.whole
                ),
            };
            let (form, in_force) = self.instead(org, &mut room);
            all.add(form);
            faults.push(Fault {
                part: Part::Org,
                name: org.to_owned(),
                fault,
                in_force,
                way_out: ORG_WAY_OUT,
            });
        }
        all
    }

    /// What orgs have together, unless servers and revocations leave less.
    fn room(&self) -> Room {
        let servers: usize = self.servers.iter().map(super::servers::server_bytes).sum();
        let revoked = revoked_bytes(&self.revoked);
        let fixed = servers + revoked + (EDGE - budget::REVOCATIONS.whole) + budget::MACHINE_KEYS + SLACK;
        Room { exposure: EXPOSURE.whole, policy: POLICY.whole.min(GATEWAY.saturating_sub(fixed)) }
    }

    /// The org's last published form where it still fits, else a denial.
    fn instead(&self, org: &str, room: &mut Room) -> (OrgPolicy, &'static str) {
        let last = self.last.map(|last| OrgPolicy::published(last, org)).unwrap_or_default();
        if !last.is_empty() && self.compiler.evaluate(&last).is_ok() && room.take(last.size()) {
            return (last, LAST_FORM);
        }
        (OrgPolicy::denied(org), ORG_DENIED)
    }

    /// The orgs whose policy alone is refused, and why.
    fn refused(&self) -> BTreeMap<&str, String> {
        let refused = orgs::of_state(self.state).into_iter().filter_map(|(org, records)| {
            let (form, _) = OrgPolicy::compile(org, &records);
            Some((org, self.compiler.evaluate(&form).err()?))
        });
        refused.collect()
    }
}

/// What revocations take of a snapshot, encoded.
pub fn revoked_bytes(revoked: &Revoked) -> usize {
    let before = revoked.before.iter().map(|before| before.encoded_len() + FRAMING);
    revoked.tokens.len() * size_of::<[u8; 16]>() + before.sum::<usize>()
}

/// Whether the edges take the snapshot.
fn edge(snapshot: &GatewaySnapshot) -> Result<(), asp_edge::SnapshotError> {
    asp_edge::Snapshot::from_message(snapshot.edge.clone().unwrap_or_default()).map(drop)
}

impl Compiler {
    /// Whether edges and gateways take a snapshot with this policy; else what is wrong with it.
    pub fn evaluate(&self, policy: &OrgPolicy) -> Result<(), String> {
        let OrgPolicy { exposure, bindings, observed: observed_bindings, limits } = policy.clone();
        let alone =
            Inputs { revision: 1, exposure, bindings, observed_bindings, limits, ..self.config.inputs() };
        Snapshot::build(asp_registry::assemble(alone)).map(drop)
    }
}

fn not_in_force(issuer: NotInForce) -> Fault {
    Fault {
        part: Part::Issuer,
        name: format!("{}/{}", issuer.side.as_str(), issuer.name),
        fault: issuer.fault,
        in_force: NO_TOKENS,
        way_out: "correct or delete the issuer (`PUT` or `DELETE /api/issuers/{side}/{name}`), or make it answer",
    }
}

fn unknown_revocation(id: &str) -> Fault {
    Fault {
        part: Part::Revocation,
        name: id.to_owned(),
        fault: "its type is not known to this version".to_owned(),
        in_force: "every token of its org issued up to its moment is revoked",
        way_out: "run the version that wrote it, or delete it and revoke anew",
    }
}

fn unreadable_records(org: &str, unreadable: &[String]) -> Fault {
    let shown: Vec<&str> = unreadable.iter().take(5).map(String::as_str).collect();
    Fault {
        part: Part::Org,
        name: org.to_owned(),
        fault: format!("{} entries mean nothing to this version: {}", unreadable.len(), shown.join("; ")),
        in_force: "what they deny or limit is denied, what they allow is left out",
        way_out: ORG_WAY_OUT,
    }
}

#[cfg(test)]
mod tests {
    use asp_store::control::{BindingRecord, ExposureRecord};

    use super::super::tests::{config, server};
    use super::*;

    fn denial(org: &str, target: &str) -> BindingRecord {
        BindingRecord {
            org: org.into(),
            target_type: "user".into(),
            target: target.into(),
            primitive: "ping".into(),
            protocol: "*".into(),
            allowed: false,
            ..BindingRecord::default()
        }
    }

    /// 1.2 MB of exposure exceptions.
    fn too_much(org: &str) -> impl Iterator<Item = ExposureRecord> + '_ {
        (0..3_000).map(move |number| ExposureRecord {
            org: org.into(),
            server: format!("{number:0>400}"),
            protocol: "mcp".into(),
            enabled: true,
        })
    }

    fn bindings(built: &Built, org: &str) -> Vec<(String, bool)> {
        let of_org = built.snapshot.bindings.iter().filter(|binding| binding.org == org);
        of_org.map(|binding| (binding.target.clone(), binding.allowed)).collect()
    }

    #[test]
    fn an_org_that_no_longer_fits_keeps_its_last_form_and_a_new_one_is_denied() {
        let compiler = Compiler::new(config(true));
        let mut state = ControlState {
            revision: 1,
            servers: vec![server("{schemes: [jwt], issuers: [dev]}")],
            bindings: vec![denial("grown", "alice"), denial("other", "carol")],
            ..ControlState::default()
        };
        let first = build(&state, &compiler, None).unwrap();
        assert_eq!(first.faults, []);
        state.revision = 2;
        state.exposure = too_much("grown").chain(too_much("new")).collect();
        state.bindings.push(denial("other", "dave"));
        let second = build(&state, &compiler, Some(&first.snapshot)).unwrap();
        let mut named: Vec<(&str, &str)> =
            second.faults.iter().map(|fault| (fault.name.as_str(), fault.in_force)).collect();
        named.sort_unstable();
        assert_eq!(named, [("grown", LAST_FORM), ("new", ORG_DENIED)]);
        assert_eq!(bindings(&second, "grown"), [("alice".to_owned(), false)], "its denial is still there");
        assert_eq!(bindings(&second, "new"), [("*".to_owned(), false)]);
        assert_eq!(bindings(&second, "other").len(), 2, "the rest is renewed");
        assert!(edge(&second.snapshot).is_ok());
    }

    #[test]
    fn a_server_that_no_longer_compiles_keeps_its_last_form() {
        let compiler = Compiler::new(config(true));
        let good = server("{schemes: [jwt], issuers: [dev]}");
        let state = ControlState { revision: 1, servers: vec![good.clone()], ..ControlState::default() };
        let first = build(&state, &compiler, None).unwrap();
        let mut bad = good;
        bad.revision = 2;
        bad.files[1].text = "id: ping\n".into();
        let state = ControlState { revision: 2, servers: vec![bad], ..ControlState::default() };
        let second = build(&state, &compiler, Some(&first.snapshot)).unwrap();
        assert_eq!(second.snapshot.servers, first.snapshot.servers);
        assert_eq!((second.faults.len(), second.faults[0].in_force), (1, LAST_FORM));
        let anew = build(&state, &Compiler::new(config(true)), None).unwrap();
        assert_eq!((anew.snapshot.servers.len(), anew.faults[0].part), (0, Part::Server));
    }

    #[test]
    fn of_two_stored_servers_that_conflict_the_older_one_is_published() {
        let compiler = Compiler::new(config(true));
        let older = server("{schemes: [jwt], issuers: [dev]}");
        let mut newer = older.clone();
        (newer.name, newer.revision) = ("another".into(), 2);
        for file in &mut newer.files {
            file.path = file.path.replace("demo/", "another/");
            file.text = file.text.replace("demo", "another").replace("Pings.", "Pongs.");
        }
        let state = ControlState { revision: 2, servers: vec![newer, older], ..ControlState::default() };
        let built = build(&state, &compiler, None).unwrap();
        let names: Vec<&str> = built.snapshot.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["demo"]);
        assert_eq!((built.faults.len(), built.faults[0].name.as_str()), (1, "another"));
        assert!(Snapshot::build(built.snapshot).is_ok());
    }
}
