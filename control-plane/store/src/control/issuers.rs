//! Issuers that admins manage, and the keys fetched from them.

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

/// An issuer as written by an admin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerRecord {
    pub side: Side,
    pub name: String,
    /// JSON in the control plane's format.
    pub document: String,
    /// Revision of its last change.
    pub revision: u64,
    /// Unix milliseconds.
    pub updated_at: u64,
}

/// Keys fetched from an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerKeysRecord {
    pub side: Side,
    pub name: String,
    /// URL of `content`.
    pub source: String,
    /// JSON.
    pub content: String,
    /// Time at which the issuer last returned this content, in Unix milliseconds.
    pub fetched_at: u64,
}
