//! Lists the calls of one principal at one server from the store.
//!
//! Keeps true: a principal sees only its own calls; a record is opened only for its caller's list; rows that do not
//! open, or whose id no client chose, are skipped; the work for a page is bounded.

use asp_edge::Caller;
use asp_store::records::Listing;

use super::{ActiveFault, ActiveTable, in_time};
use crate::call::principal::principal;
use crate::call::remote::{CallCursor, CallPage, ListedCall};

impl ActiveTable {
    /// Reads at most `rows` of the caller's records at `server`.
    pub async fn listed(
        &self,
        caller: &Caller,
        server: &str,
        before: Option<CallCursor>,
        rows: u32,
    ) -> Result<CallPage, ActiveFault> {
        let listing = Listing { principal: principal(caller), server, before, limit: rows };
        let found = in_time(self.store.list(&listing)).await?;
        let is_last = found.len() < usize::try_from(rows).unwrap_or(usize::MAX);
        let next = found.last().filter(|_| !is_last).map(|(call, row)| (row.created_ms, *call));
        let calls = found.into_iter().filter_map(|(call, row)| {
            let put = self.opened(&uuid::Uuid::from_bytes(call), &row)?.put()?;
            let milliseconds = |ms: i64| u64::try_from(ms).unwrap_or(0);
            Some(ListedCall {
                put,
                state: row.state,
                created_ms: milliseconds(row.created_ms),
                updated_ms: milliseconds(row.updated_ms),
            })
        });
        Ok(CallPage { calls: calls.collect(), next })
    }
}
