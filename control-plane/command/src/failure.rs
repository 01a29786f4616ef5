//! Failures of commands: the reasons for an exit code other than 0.

/// Exit code for a wrong command line or setting (EX_USAGE in sysexits.h).
pub const EXIT_BAD_CONFIGURATION: u8 = 64;

/// A faulty setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {message}")]
pub struct SettingFault {
    pub name: String,
    pub message: String,
}

/// A reason for an exit code other than 0.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// All wrong flags and settings.
    #[error("bad configuration")]
    Configuration(Vec<SettingFault>),
    /// The command ran, its answer is no, and it has printed why.
    #[error("failed")]
    Refused,
    /// The compared specs break callers without a new major version; the places have been printed.
    #[error("breaks callers")]
    Breaking,
    /// The command stopped in order after a signal with this number.
    #[error("ended by signal {0}")]
    Signalled(u8),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// Returns the failure for one wrong flag or setting.
    pub fn bad(name: &str, message: impl Into<String>) -> Failure {
        Failure::Configuration(vec![SettingFault { name: name.to_owned(), message: message.into() }])
    }
}
