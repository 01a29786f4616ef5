//! The error that rejects a snapshot.

/// Reason for rejecting a snapshot, with the place in it. The text is shown to the operator.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("not a valid message: {0}")]
    Decode(String),
    #[error("{path}: {fault}")]
    Invalid { path: String, fault: String },
}

impl SnapshotError {
    pub(crate) fn invalid(path: String, fault: &str) -> SnapshotError {
        SnapshotError::Invalid { path, fault: fault.to_owned() }
    }
}
