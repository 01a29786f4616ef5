//! The snapshot in one message, for tests.

use std::collections::BTreeMap;

use asp_proto::snapshot::{EdgeSnapshot, GatewaySnapshot, snapshot_part::Part as Says};

use crate::parts::Parts;
use crate::published::Publication;

impl Publication {
    /// Returns everything in one message.
    pub fn whole(&self) -> GatewaySnapshot {
        let edge = EdgeSnapshot { revision: self.revision, ..(*self.edge.content).clone() };
        whole(self.revision, &edge, &self.gateway.parts)
    }
}

/// Joins everything into one message, with the orgs' exceptions as written and all revocations in one list.
pub fn whole(revision: u64, edge: &EdgeSnapshot, parts: &Parts) -> GatewaySnapshot {
    let mut edge = EdgeSnapshot { exposure: Vec::new(), revocations_apart: false, ..edge.clone() };
    let mut revoked: Vec<[u8; 16]> = edge.revoked.as_chunks::<16>().0.to_vec();
    let mut whole = GatewaySnapshot { revision, ..GatewaySnapshot::default() };
    let mut primitives = BTreeMap::new();
    for said in parts.iter().filter_map(|(_, part)| part.read()) {
        match said {
            Says::Base(base) => {
                whole.issuer_access = base.issuer_access;
                whole.upstreams = base.upstreams;
                whole.regions = base.regions;
            }
            Says::Server(part) => {
                whole.servers.extend(part.server);
                primitives
                    .extend(part.primitives.into_iter().map(|p| ((p.id.clone(), p.version.clone()), p)));
            }
            Says::Org(part) => {
                edge.exposure_exceptions.extend(part.exposure);
                whole.bindings.extend(part.bindings);
                whole.observed_bindings.extend(part.observed_bindings);
                whole.limits.extend(part.limits);
                whole.machine_keys.extend(part.machine_keys);
                whole.machine_certificates.extend(part.machine_certificates);
            }
            Says::Recent(recent) => {
                revoked.extend(recent.revoked.as_chunks::<16>().0);
                edge.revoked_before.extend(recent.revoked_before);
            }
            Says::Revoked(_) => {}
        }
    }
    edge.revoked = asp_registry::sorted_set(revoked);
    edge.revoked_before = asp_registry::latest(edge.revoked_before);
    whole.primitives = primitives.into_values().collect();
    GatewaySnapshot { edge: Some(edge), ..whole }
}
