//! The errors of the vault.

/// Reason why a record could not be sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// The key service does not answer, or refuses for now; a later attempt may succeed.
    #[error("key service {service} is unavailable: {cause}")]
    Unavailable { service: &'static str, cause: String },
    /// The key service refuses this process or this key until an operator changes something.
    #[error("key service {service} refused the request: {cause}")]
    Refused { service: &'static str, cause: String },
    /// No configured key service has the key of the record.
    #[error(
        "key {key_id} of the record is unknown to every configured key service; restore it, or add its service to ASP_VAULT_KMS_PREVIOUS"
    )]
    UnknownKey { key_id: String },
    /// The record was altered or truncated, or belongs to another tenant, table or row.
    #[error("sealed record does not open at this place: it was altered, or moved from another record")]
    NotOpened,
    /// The plaintext or the sealed record exceeds its bound.
    #[error("record has {length} bytes, more than the {limit} allowed")]
    TooLarge { length: usize, limit: usize },
    /// The cryptographic library failed.
    #[error("encryption failed")]
    Crypto,
    /// The local key file cannot be read, written or understood.
    #[error("vault key file: {0}")]
    KeyFile(String),
}

impl VaultError {
    /// Whether a later attempt may succeed without a change by an operator.
    pub fn is_temporary(&self) -> bool {
        matches!(self, VaultError::Unavailable { .. })
    }

    /// Label of metrics.
    pub fn label(&self) -> &'static str {
        match self {
            VaultError::Unavailable { .. } => "unavailable",
            VaultError::Refused { .. } => "refused",
            VaultError::UnknownKey { .. } => "unknown_key",
            VaultError::NotOpened => "not_opened",
            VaultError::TooLarge { .. } => "too_large",
            VaultError::Crypto => "crypto",
            VaultError::KeyFile(_) => "key_file",
        }
    }
}
