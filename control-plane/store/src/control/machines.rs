//! Keys and certificates of machines, and the bound of their groups and scopes.

use std::collections::BTreeSet;

/// Maximum number of machines' keys and certificates, of all orgs together: each takes up to 1 KiB of a snapshot.
pub const MAX_MACHINE_KEYS: usize = 3_000;
/// The last of these, for orgs that have fewer than [`FEW_MACHINE_KEYS`]: a few orgs do not take those of all.
pub const RESERVED_MACHINE_KEYS: usize = 1_000;
/// Keys and certificates of an org that has few.
pub const FEW_MACHINE_KEYS: usize = 20;
/// Maximum number of keys of one org.
pub const MAX_MACHINE_KEYS_PER_ORG: usize = 100;
/// Maximum number of certificates of one org.
pub const MAX_MACHINE_CERTIFICATES_PER_ORG: usize = 100;
/// Maximum bytes of all texts of a record, which callers of [`super::ControlStore::add_machine_key`] and
/// [`super::ControlStore::put_machine_certificate`] check.
pub const MAX_MACHINE_KEY_BYTES: usize = 800;

/// A key with which a machine of an org calls. Its secret is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineKeyRecord {
    pub id: String,
    pub org: String,
    /// The name by which policy, limits and audit know the machine: a user's.
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

/// Groups and scopes that machines of an org may have, at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineBound {
    pub groups: BTreeSet<String>,
    pub scopes: BTreeSet<String>,
}

impl MachineBound {
    /// The first group or scope that is beyond the bound, with the word for what it is.
    pub fn beyond<'a>(&self, groups: &'a [String], scopes: &'a [String]) -> Option<(&'static str, &'a str)> {
        let group = groups.iter().find(|group| !self.groups.contains(*group));
        let scope = || scopes.iter().find(|scope| !self.scopes.contains(*scope));
        let group = group.map(|group| ("group", group.as_str()));
        group.or_else(|| scope().map(|scope| ("scope", scope.as_str())))
    }
}

/// The name by which a machine's certificate is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertificateName {
    /// One certificate: SHA-256 of its DER, lower-case hex.
    Fingerprint(String),
    /// Every certificate with this URI among its subject alternative names.
    Uri(String),
}

/// A certificate with which a machine of an org calls. One name is one machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCertificateRecord {
    pub id: String,
    pub org: String,
    /// The name by which policy, limits and audit know the machine.
    pub machine: String,
    pub name: CertificateName,
    /// True if the one who registered it holds the certificate's key; of a URI the platform has said whose it is.
    pub proved: bool,
    pub groups: Vec<String>,
    pub scopes: Vec<String>,
    /// Unix milliseconds.
    pub created_at: u64,
    /// Unix milliseconds.
    pub expires_at: u64,
}
