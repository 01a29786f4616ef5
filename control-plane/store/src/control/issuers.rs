//! Issuers that admins manage, and their keys as they were fetched.

/// Maximum number of issuers that admins manage.
pub const MAX_ISSUERS: usize = 100;

/// The users of an issuer's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Clients,
    Admins,
}

impl Side {
    pub const ALL: [Side; 2] = [Side::Clients, Side::Admins];

    pub const fn as_str(self) -> &'static str {
        match self {
            Side::Clients => "clients",
            Side::Admins => "admins",
        }
    }

    pub fn parse(text: &str) -> Option<Side> {
        Side::ALL.into_iter().find(|side| side.as_str() == text)
    }
}

/// An issuer as an admin wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerRecord {
    pub side: Side,
    pub name: String,
    /// JSON, whose form is the control plane's.
    pub document: String,
    /// Revision of its last change.
    pub revision: u64,
    /// Unix milliseconds.
    pub updated_at: u64,
}

/// Keys that were fetched from an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerKeysRecord {
    pub side: Side,
    pub name: String,
    /// The URL of `content`.
    pub source: String,
    /// JSON.
    pub content: String,
    /// Unix milliseconds of the last time that the issuer said so.
    pub fetched_at: u64,
}
