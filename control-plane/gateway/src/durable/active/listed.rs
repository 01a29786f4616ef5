//! The calls of one principal at one server, as the store tells of them.
//!
//! Keeps true: nobody sees another one's; what a row holds of its call is opened by whoever lists it, and a row that
//! does not open, or that no client chose the id of, is passed over; a page is bounded work, whatever it shows.

use asp_edge::Caller;
use asp_store::records::{Listing, State};

use super::{ActiveFault, ActiveTable, in_time};
use crate::call::principal::principal;
use crate::durable::record::Record;

/// A call whose client chose its id.
pub struct Listed {
    pub record: Record,
    pub state: State,
    /// Unix milliseconds.
    pub created_ms: u64,
    /// When the state was stored, in Unix milliseconds.
    pub updated_ms: u64,
}

/// Where a page begins: after this call.
pub type Place = (i64, [u8; 16]);

/// Some calls, the latest first.
pub struct Page {
    pub calls: Vec<Listed>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Place>,
}

impl ActiveTable {
    /// Looks at `rows` of the caller's records at `server`.
    pub async fn listed(
        &self,
        caller: &Caller,
        server: &str,
        before: Option<Place>,
        rows: u32,
    ) -> Result<Page, ActiveFault> {
        let listing = Listing { principal: principal(caller), server, before, limit: rows };
        let found = in_time(self.store.list(&listing)).await?;
        let is_last = found.len() < usize::try_from(rows).unwrap_or(usize::MAX);
        let next = found.last().filter(|_| !is_last).map(|(call, row)| (row.created_ms, *call));
        let calls = found.into_iter().filter_map(|(call, row)| {
            let record = self.opened(&uuid::Uuid::from_bytes(call), &row)?;
            record.put()?;
            let milliseconds = |ms: i64| u64::try_from(ms).unwrap_or(0);
            Some(Listed {
                record,
                state: row.state,
                created_ms: milliseconds(row.created_ms),
                updated_ms: milliseconds(row.updated_ms),
            })
        });
        Ok(Page { calls: calls.collect(), next })
    }
}
