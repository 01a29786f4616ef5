//! A snapshot from one message, for tests.

use asp_proto::snapshot::GatewaySnapshot;

use super::Snapshot;
use crate::parts;

impl Snapshot {
    /// Indexes `snapshot`. The error names what does not compile (the NACK reason).
    pub fn build(snapshot: GatewaySnapshot) -> Result<Snapshot, String> {
        let revision = snapshot.revision;
        let parts = parts::split(snapshot).into_iter().map(|(name, part)| (name, Some(part)));
        Snapshot::empty().changed(revision, parts.collect())
    }
}
