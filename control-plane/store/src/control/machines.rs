//! Keys and certificates of machines, and the bound of their groups and scopes.

use std::collections::BTreeSet;

/// Maximum number of keys and certificates of machines in total; each takes up to 1 KiB of a snapshot.
pub const MAX_MACHINE_KEYS: usize = 3_000;
/// Part of [`MAX_MACHINE_KEYS`] reserved for orgs with fewer than [`FEW_MACHINE_KEYS`], so that a few orgs cannot use
/// up all of them.
pub const RESERVED_MACHINE_KEYS: usize = 1_000;
/// Number of keys and certificates up to which an org may use the reserve.
pub const FEW_MACHINE_KEYS: usize = 20;
/// Maximum number of keys of one org.
pub const MAX_MACHINE_KEYS_PER_ORG: usize = 100;
/// Maximum number of certificates of one org.
pub const MAX_MACHINE_CERTIFICATES_PER_ORG: usize = 100;
/// Maximum bytes of all texts of a record, which callers of [`super::sql::ControlStore::add_machine_key`] and
/// [`super::sql::ControlStore::put_machine_certificate`] check.
pub const MAX_MACHINE_KEY_BYTES: usize = 800;

/// A key with which a machine of an org authenticates, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineKeyRecord {
    pub id: String,
    pub org: String,
    /// Name of the machine in policy, limits and audit, where it stands for a user.
    pub machine: String,
    /// SHA-256 of the whole key, lower-case hex.
    pub hash: String,
    pub groups: Vec<String>,
    pub scopes: Vec<String>,
    /// Unix milliseconds.
    pub created_at: u64,
    /// Unix milliseconds.
    pub expires_at: u64,
}

/// Groups and scopes that machines of an org may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineBound {
    pub groups: BTreeSet<String>,
    pub scopes: BTreeSet<String>,
}

impl MachineBound {
    /// Returns the first group or scope outside the bound, with the word for its kind.
    pub fn beyond<'a>(&self, groups: &'a [String], scopes: &'a [String]) -> Option<(&'static str, &'a str)> {
        let group = groups.iter().find(|group| !self.groups.contains(*group));
        let scope = || scopes.iter().find(|scope| !self.scopes.contains(*scope));
        let group = group.map(|group| ("group", group.as_str()));
        group.or_else(|| scope().map(|scope| ("scope", scope.as_str())))
    }
}

/// Name under which a machine's certificate is registered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateName {
    /// One certificate: SHA-256 of its DER, lower-case hex.
    Fingerprint(String),
    /// Every certificate with this URI among its subject alternative names.
    Uri(String),
}

/// A certificate with which a machine of an org authenticates. A name belongs to one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCertificateRecord {
    pub id: String,
    pub org: String,
    /// Name of the machine in policy, limits and audit.
    pub machine: String,
    pub name: CertificateName,
    /// Whether the registrant proved possession of the certificate's key; for a URI, whether the platform confirmed its
    /// owner.
    pub proved: bool,
    pub groups: Vec<String>,
    pub scopes: Vec<String>,
    /// Unix milliseconds.
    pub created_at: u64,
    /// Unix milliseconds.
    pub expires_at: u64,
}
