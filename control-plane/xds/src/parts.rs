//! The parts of the gateway snapshot, each encoded once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_proto::snapshot::{RecentRevocations, SnapshotPart, snapshot_part};
use asp_snapshot::parts::RECENT;
use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest, Sha256};

/// An encoded `SnapshotPart` with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedPart {
    /// First bytes of the SHA-256 of its content.
    pub version: u64,
    pub bytes: Bytes,
}

impl EncodedPart {
    pub fn of(part: snapshot_part::Part) -> EncodedPart {
        let bytes = Bytes::from(SnapshotPart { part: Some(part), ..SnapshotPart::default() }.encode_to_vec());
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        EncodedPart { version: u64::from_be_bytes([a, b, c, d, e, f, g, h]), bytes }
    }

    /// Returns the version as written on the wire.
    pub fn version_text(&self) -> String {
        format!("{:016x}", self.version)
    }

    /// Decodes the content.
    pub fn read(&self) -> Option<snapshot_part::Part> {
        SnapshotPart::decode(self.bytes.as_ref()).ok()?.part
    }
}

/// All parts of one revision. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    by_name: BTreeMap<Arc<str>, EncodedPart>,
    /// Encoded bytes of all parts.
    bytes: usize,
}

impl Parts {
    pub fn get(&self, name: &str) -> Option<&EncodedPart> {
        self.by_name.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &EncodedPart)> {
        self.by_name.iter()
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the encoded bytes of all parts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a digest of the content of all parts.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for (name, part) in &self.by_name {
            hasher.update(name.as_bytes());
            hasher.update([0]);
            hasher.update(part.version.to_be_bytes());
        }
        hasher.finalize().into()
    }

    fn put(&mut self, name: &Arc<str>, part: Option<EncodedPart>) -> bool {
        let before = match part {
            Some(part) => {
                self.bytes += part.bytes.len();
                self.by_name.insert(Arc::clone(name), part.clone()).map(|before| (before == part, before))
            }
            None => match self.by_name.remove(name) {
                Some(before) => Some((false, before)),
                None => return false,
            },
        };
        let Some((is_same, before)) = before else { return true };
        self.bytes -= before.bytes.len();
        !is_same
    }
}

/// Parts of the next revision while it is built, with the names of those that differ.
#[derive(Debug, Default)]
pub struct PartsBuilder {
    pub parts: Parts,
    pub changed: BTreeSet<Arc<str>>,
}

impl PartsBuilder {
    /// Replaces a part; `None` removes it.
    pub fn put(&mut self, name: &str, part: Option<EncodedPart>) {
        let name = match self.parts.by_name.get_key_value(name) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(name),
        };
        if self.parts.put(&name, part) {
            self.changed.insert(name);
        }
    }

    /// Replaces the recent revocations.
    pub fn put_recent(&mut self, recent: &RecentRevocations) {
        self.put(RECENT, Some(EncodedPart::of(snapshot_part::Part::Recent(recent.clone()))));
    }
}
