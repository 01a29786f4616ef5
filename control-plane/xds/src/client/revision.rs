//! The application of one revision that the control plane sent.
//!
//! Keeps true: all messages of a revision are applied together, with the revocations of both control planes.

use std::sync::Arc;

use asp_proto::snapshot::SnapshotPart;
use asp_proto::xds::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use asp_snapshot::{PartChanges, PartFaults};
use prost::Message;

use super::Apply;
use super::revocations::RevocationLists;

/// Result of applying a revision: the parts put, by name and version; those removed; all parts that are not in force as
/// sent; and the lists of revocations.
pub(super) struct AppliedRevision {
    pub(super) put: Vec<(String, String)>,
    pub(super) removed: Vec<String>,
    pub(super) refused: Arc<PartFaults>,
    pub(super) revocations: RevocationLists,
}

/// Applies the messages of a revision; `Err` is why nothing was applied.
pub(super) fn take(
    messages: &[DeltaDiscoveryResponse],
    (revision, covers): (u64, u64),
    apply: &Apply,
    mut revocations: RevocationLists,
) -> Result<AppliedRevision, String> {
    let mut changes = PartChanges::new();
    let mut put = Vec::new();
    let mut removed = Vec::new();
    for resource in messages.iter().flat_map(|message| &message.resources) {
        let name = &resource.name;
        let value = resource.resource.as_ref().map(|any| any.value.as_slice()).unwrap_or_default();
        // A part that cannot be decoded becomes an empty one, which is rejected by itself.
        let part = SnapshotPart::decode(value).unwrap_or_default();
        changes.push((name.clone(), Some(part)));
        put.push((name.clone(), resource.version.clone()));
    }
    for name in messages.iter().flat_map(|message| &message.removed_resources) {
        changes.push((name.clone(), None));
        removed.push(name.clone());
    }
    revocations.add_to(revision, &mut changes);
    let refused = apply(revision, covers, changes)?;
    Ok(AppliedRevision { put, removed, refused, revocations })
}
