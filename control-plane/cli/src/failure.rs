//! Why a command ends with another exit code than 0.

use crate::settings::source::Fault;

/// sysexits.h EX_USAGE: a wrong command line or setting.
pub const EXIT_BAD_CONFIGURATION: u8 = 64;

/// Why a command ends with an exit code other than 0.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Wrong flags or settings: every one of them.
    #[error("bad configuration")]
    Configuration(Vec<Fault>),
    /// The command ran and the answer is no; it has said why.
    #[error("failed")]
    Refused,
    /// What was compared breaks callers without a new major version; it has said where.
    #[error("breaks callers")]
    Breaking,
    /// A signal of this number ended it, in order.
    #[error("ended by signal {0}")]
    Signalled(u8),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// One wrong flag or setting.
    pub fn bad(name: &str, message: impl Into<String>) -> Failure {
        Failure::Configuration(vec![Fault { name: name.to_owned(), message: message.into() }])
    }
}
