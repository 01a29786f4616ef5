//! The published state: two resources for edges and parts for gateways, each encoded once for all subscribers, and
//! their versions: the revision of the store that a version names, and the revision that it covers.
//!
//! Keeps true: a version names a revision of the store and the content, and the same content keeps its version, so that
//! nothing is sent to subscribers for which nothing changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_edge::Changes;
use asp_proto::snapshot::{
    EdgeSnapshot, OrgPart, RecentRevocations, ServerPart, snapshot_part::Part as Says,
};
use asp_snapshot::parts;
use asp_snapshot::policy::Policy;
use tokio::sync::watch;

use crate::contract::Kind;
use crate::endpoints::EndpointSet;
use crate::parts::{EncodedPart, Parts};

/// Content of a revision before it is encoded for subscribers.
pub struct Content {
    pub revision: u64,
    pub edge: Arc<EdgeSnapshot>,
    /// Recent revocations, also in `gateway`. If their revision is later than the content's, the versions name both.
    pub recent: Arc<RecentRevocations>,
    pub gateway: Parts,
    /// Names of the parts that differ from the previous build.
    pub changed: BTreeSet<Arc<str>>,
}

/// A resource for edges.
pub struct EdgeResource<T> {
    /// Revision of its last change.
    pub revision: u64,
    /// `<revision>-<8 hex digits of a digest>`; for revocations published ahead of other changes, `~` and the revision
    /// of those follow.
    pub version: String,
    pub content: Arc<T>,
    /// The encoded `TypedExtensionConfig`.
    pub bytes: Vec<u8>,
}

/// The parts for gateways.
pub struct GatewayParts {
    /// Revision of the last change of any part.
    pub revision: u64,
    /// The same form as [`EdgeResource::version`].
    pub version: String,
    pub parts: Parts,
    /// Number of changes so far.
    pub number: u64,
    /// Names of the parts that differ from the previous number.
    pub changed: BTreeSet<Arc<str>>,
}

/// The published state for all subscribers.
pub struct Publication {
    /// Revision of the store.
    pub revision: u64,
    pub edge: Arc<EdgeResource<EdgeSnapshot>>,
    pub recent: Arc<EdgeResource<RecentRevocations>>,
    pub gateway: Arc<GatewayParts>,
    /// Time of publication, in Unix milliseconds.
    pub published_at: u64,
}

/// Evaluator of callers of one org at one server.
pub struct Evaluator {
    pub edge: asp_edge::Snapshot,
    pub policy: Policy,
}

impl Publication {
    /// Returns the store revision up to which gateways are sent everything. Edges may wait for some of it.
    pub fn gateways_at(&self) -> u64 {
        let (_, covers) = reach(&self.gateway.version);
        self.revision.max(covers)
    }

    /// Returns a server's part for gateways.
    pub fn server(&self, name: &str) -> Option<ServerPart> {
        match self.gateway.parts.get(&parts::of_server(name))?.read()? {
            Says::Server(part) => Some(part),
            _ => None,
        }
    }

    /// Returns an org's part for gateways; an empty one if there is none.
    pub fn org(&self, org: &str) -> OrgPart {
        match self.gateway.parts.get(&parts::of_org(org)).and_then(EncodedPart::read) {
            Some(Says::Org(part)) => part,
            _ => OrgPart { org: org.to_owned(), ..OrgPart::default() },
        }
    }

    /// Returns the evaluator of callers of one org at one server; the error says what cannot be read.
    pub fn evaluator(&self, server: &ServerPart, org: &OrgPart) -> Result<Evaluator, String> {
        let base = match self.gateway.parts.get(parts::BASE).and_then(EncodedPart::read) {
            Some(Says::Base(base)) => base,
            _ => return Err("the base part is missing".into()),
        };
        let changes = Changes {
            revision: self.revision,
            base: Some(&base),
            servers: server.edge.iter().collect(),
            // A caller without an org gets the servers' defaults.
            exposure: match org.org.as_str() {
                "" => Vec::new(),
                name => vec![(name, org.exposure.as_slice())],
            },
            ..Changes::default()
        };
        let edge = asp_edge::Snapshot::boot().changed(changes).map_err(|error| error.to_string())?;
        Ok(Evaluator { edge, policy: Policy::new(org.bindings.clone(), org.observed_bindings.clone())? })
    }
}

/// State that is pushed to subscribers; always replaced as a whole.
#[derive(Clone, Default)]
pub struct XdsState {
    pub snapshot: Option<Arc<Publication>>,
    /// Revision of the store up to which everything is published.
    pub covers: u64,
    pub endpoints: Arc<EndpointSet>,
}

impl XdsState {
    /// Returns the store revision up to which everything is in force at a subscriber of `kind` that acknowledged
    /// `acked` at `version`. Later changes may not have concerned it.
    pub fn covered(&self, kind: &str, acked: u64, version: &str) -> u64 {
        let Some(published) = &self.snapshot else { return acked };
        let edge = &published.edge.version;
        let recent = &published.recent.version;
        let is_newest = match kind {
            kind if kind == Kind::Edge.as_str() => version == edge || version == format!("{edge}+{recent}"),
            kind if kind == Kind::Revocations.as_str() => version == recent,
            kind if kind == Kind::Gateway.as_str() => version == published.gateway.version,
            _ => false,
        };
        if is_newest { published.revision } else { acked.min(covered_by_version(version)) }
    }
}

/// Receiver of new [`XdsState`]s.
pub type XdsStateReceiver = watch::Receiver<XdsState>;

/// Separator in the version of revocations that were published ahead of other changes; the revision up to which
/// everything is published follows it.
pub(crate) const OVERTAKEN: char = '~';

/// Returns the revision at the start of a snapshot's version; 0 if there is none.
pub(crate) fn revision_in(version: &str) -> u64 {
    version.split_once('-').and_then(|(revision, _)| revision.parse().ok()).unwrap_or(0)
}

/// Returns the revision up to which everything is in force with a version, as far as the version limits it.
fn covered_by_version(version: &str) -> u64 {
    version.rsplit_once(OVERTAKEN).and_then(|(_, covers)| covers.parse().ok()).unwrap_or(u64::MAX)
}

/// Returns the revision of a version, and the revision up to which everything is in force with it. The second is lower
/// if only revocations have the first.
pub(crate) fn reach(version: &str) -> (u64, u64) {
    let revision = revision_in(version);
    (revision, revision.min(covered_by_version(version)))
}
