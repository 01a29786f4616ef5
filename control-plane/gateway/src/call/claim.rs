//! The key in the ledger that a call holds.

use asp_store::ledger::RequestHash;

/// A claimed key as a call's record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LedgerClaim {
    pub key: [u8; 32],
    pub hash: RequestHash,
    pub mutating: bool,
}
