//! Parts of snapshots as last published.

/// Maximum size of a stored form in bytes.
pub const MAX_FORM_BYTES: usize = 16 * 1024 * 1024;

/// A part of a snapshot as published by a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedForm {
    /// Name of the part, `server/<name>` or `org/<org>`.
    pub part: String,
    /// Revision of a server's record, or of the store at which the org's policy was read.
    pub revision: u64,
    /// Encoded by the control plane; at most [`MAX_FORM_BYTES`].
    pub form: Vec<u8>,
}
