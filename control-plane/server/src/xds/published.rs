//! What is published: for edges two resources, for gateways parts, each encoded once for every subscriber.
//!
//! Keeps true: a version says a revision of the store and the content, and the same content keeps its version, so that
//! nobody is sent what did not change for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_edge::Changes;
use asp_proto::snapshot::{
    EdgeSnapshot, OrgPart, RecentRevocations, ServerPart, snapshot_part::Part as Says,
};
use asp_snapshot::parts;
use asp_snapshot::policy::Policy;

use crate::xds::parts::{Part, Parts};
use crate::xds::reach;

/// What a revision says, before it is encoded for those who are told.
pub struct Content {
    pub revision: u64,
    pub edge: Arc<EdgeSnapshot>,
    pub recent: Arc<RecentRevocations>,
    pub gateway: Parts,
    /// The names of the parts that differ from what was built before.
    pub changed: BTreeSet<Arc<str>>,
}

/// One resource of edges.
pub struct EdgeResource<T> {
    /// At which it changed last.
    pub revision: u64,
    /// `<revision>-<8 hex digits of a digest>`; of revocations that came ahead of the rest, `~` and what that is at follow.
    pub version: String,
    pub content: Arc<T>,
    /// The encoded `TypedExtensionConfig`.
    pub bytes: Vec<u8>,
}

/// The parts that gateways have.
pub struct GatewayParts {
    /// At which one of them changed last.
    pub revision: u64,
    /// The same form as [`EdgeResource::version`].
    pub version: String,
    pub parts: Parts,
    /// Counts changes.
    pub number: u64,
    /// The names of the parts that are not what they were at the number before.
    pub changed: BTreeSet<Arc<str>>,
}

/// What is published.
pub struct Published {
    /// Of the store.
    pub revision: u64,
    pub edge: Arc<EdgeResource<EdgeSnapshot>>,
    pub recent: Arc<EdgeResource<RecentRevocations>>,
    pub gateway: Arc<GatewayParts>,
    /// Unix milliseconds.
    pub published_at: u64,
}

/// What evaluates callers of one org at one server.
pub struct Evaluator {
    pub edge: asp_edge::Snapshot,
    pub policy: Policy,
}

impl Published {
    /// Returns the store's revision up to which gateways are sent all there is. Edges may wait for some of it.
    pub fn gateways_at(&self) -> u64 {
        let (_, covers) = reach(&self.gateway.version);
        self.revision.max(covers)
    }

    /// What gateways are told of a server.
    pub fn server(&self, name: &str) -> Option<ServerPart> {
        match self.gateway.parts.get(&parts::of_server(name))?.read()? {
            Says::Server(part) => Some(part),
            _ => None,
        }
    }

    /// What gateways are told of an org; nothing where it has said nothing.
    pub fn org(&self, org: &str) -> OrgPart {
        match self.gateway.parts.get(&parts::of_org(org)).and_then(Part::read) {
            Some(Says::Org(part)) => part,
            _ => OrgPart { org: org.to_owned(), ..OrgPart::default() },
        }
    }

    /// What evaluates callers of one org at one server; the error says what of it cannot be read.
    pub fn evaluator(&self, server: &ServerPart, org: &OrgPart) -> Result<Evaluator, String> {
        let base = match self.gateway.parts.get(parts::BASE).and_then(Part::read) {
            Some(Says::Base(base)) => base,
            _ => return Err("there is no base".into()),
        };
        let changes = Changes {
            revision: self.revision,
            base: Some(&base),
            servers: server.edge.iter().collect(),
            // A caller without an org has the servers' defaults.
            exposure: match org.org.as_str() {
                "" => Vec::new(),
                name => vec![(name, org.exposure.as_slice())],
            },
            ..Changes::default()
        };
        let edge = asp_edge::Snapshot::boot().changed(changes).map_err(|error| error.to_string())?;
        Ok(Evaluator { edge, policy: Policy::new(org.bindings.clone(), org.observed_bindings.clone())? })
    }

    #[cfg(test)]
    pub(crate) fn whole(&self) -> asp_proto::snapshot::GatewaySnapshot {
        let edge = EdgeSnapshot { revision: self.revision, ..(*self.edge.content).clone() };
        crate::xds::parts::whole(self.revision, &edge, &self.gateway.parts)
    }
}
