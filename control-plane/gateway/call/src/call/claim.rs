//! The ledger key that a call has claimed.

use asp_store::ledger::RequestHash;

/// A claimed key, as the record of a call stores it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LedgerClaim {
    pub key: [u8; 32],
    pub hash: RequestHash,
    pub mutating: bool,
}
