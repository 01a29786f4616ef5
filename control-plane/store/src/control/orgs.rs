//! Orgs that something is stored for.

/// An org, and the number of its records of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrgRecord {
    pub org: String,
    /// Offers of servers, without those in the servers' own files.
    pub offers: u64,
    /// Exceptions from servers' default exposure.
    pub exposure: u64,
    pub bindings: u64,
    pub limits: u64,
    /// Keys and certificates of machines.
    pub machines: u64,
    /// Live revocations.
    pub revocations: u64,
}
