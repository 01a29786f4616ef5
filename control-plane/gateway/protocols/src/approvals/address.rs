//! The sealed address of a page: a request and the time until which its page is served.

use asp_call::clock::unix_ms;
use asp_call::seal::{Purpose, Sealer};
use asp_pipeline::pipeline::approvals::ApprovalId;
use serde::{Deserialize, Serialize};

const CONTEXT: &[u8] = b"address";
/// Time after the end of a request for which its page shows what became of it, in milliseconds.
const AFTERWARDS_MS: i64 = 3_600_000;

#[derive(Serialize, Deserialize)]
struct Address {
    #[serde(rename = "i")]
    id: ApprovalId,
    /// Unix milliseconds.
    #[serde(rename = "e")]
    expires: i64,
}

/// Seals the address of a request that ends at `expires_ms`.
pub(super) fn seal(sealer: &Sealer, id: ApprovalId, expires_ms: i64) -> Option<String> {
    let plain =
        serde_json::to_vec(&Address { id, expires: expires_ms.saturating_add(AFTERWARDS_MS) }).ok()?;
    sealer.seal(Purpose::Approval, CONTEXT, &plain).ok()
}

/// Returns the request of an address that has not expired.
pub(super) fn open(sealer: &Sealer, sealed: &str) -> Option<ApprovalId> {
    let plain = sealer.open(Purpose::Approval, CONTEXT, sealed)?;
    let address: Address = serde_json::from_slice(&plain).ok()?;
    let now = i64::try_from(unix_ms()).ok()?;
    (address.expires > now).then_some(address.id)
}
