//! The edge snapshot, decoded and indexed once, then only read.
//!
//! [`Snapshot::decode`] does the whole semantic check, so that a bad snapshot is refused (NACK) and the
//! last good one stays (invariant I-5). No bytes at all is the boot snapshot: everything is denied.

use asp_proto::snapshot::EdgeSnapshot;

/// Why a snapshot was refused. The text is shown to the operator.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("snapshot is not a valid EdgeSnapshot message: {0}")]
    Decode(String),
    #[error("{path}: {fault}")]
    Invalid { path: String, fault: String },
}

/// An indexed, immutable edge snapshot.
pub struct Snapshot {
    message: EdgeSnapshot,
    boot: bool,
}

impl Snapshot {
    /// Denies everything: what an edge knows before its first push.
    pub fn boot() -> Snapshot {
        Snapshot { message: EdgeSnapshot::default(), boot: true }
    }

    /// Decodes and checks `bytes`; empty bytes are the boot snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
        if bytes.is_empty() {
            return Ok(Snapshot::boot());
        }
        let message = prost::Message::decode(bytes).map_err(|e| SnapshotError::Decode(e.to_string()))?;
        Snapshot::from_message(message)
    }

    /// Checks and indexes a decoded message (the gateway's copy comes inside its own snapshot).
    pub fn from_message(message: EdgeSnapshot) -> Result<Snapshot, SnapshotError> {
        Ok(Snapshot { message, boot: false })
    }

    /// Whether this is the deny-all boot snapshot.
    pub fn is_boot(&self) -> bool {
        self.boot
    }

    /// The snapshot's revision; 0 at boot.
    pub fn revision(&self) -> u64 {
        self.message.revision
    }
}
