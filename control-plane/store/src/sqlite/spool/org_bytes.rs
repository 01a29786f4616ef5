//! Bytes of each org's events in the file.
//!
//! Keeps true: counts what this process found in the file and added to it; another process that shares the file keeps
//! its own count. Bounded by the orgs that have events in the file.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::audit::CallEvent;

/// Divisor of the file's limit: the part that one org may use of a half-full file before its calls are refused.
const SHARES: u64 = 10;
/// Bytes of an event in the file besides its texts.
const ROW_BYTES: u64 = 32;

/// Bytes of each org.
pub(super) struct OrgBytes {
    /// Limit of the file.
    max_bytes: u64,
    held: Mutex<ByteCounts>,
}

#[derive(Default)]
struct ByteCounts {
    by_org: HashMap<String, u64>,
    whole: u64,
}

impl OrgBytes {
    /// Creates the count from the file's content: the org, and the bytes and number of its events.
    pub(super) fn of(max_bytes: u64, held: Vec<(String, u64, u64)>) -> OrgBytes {
        let counted = held.into_iter().map(|(org, bytes, events)| {
            let of_rows = events.saturating_mul(row_bytes(&org));
            (org, bytes.saturating_add(of_rows))
        });
        let by_org: HashMap<String, u64> = counted.collect();
        let whole = by_org.values().sum();
        OrgBytes { max_bytes, held: Mutex::new(ByteCounts { by_org, whole }) }
    }

    /// Whether the org has used less than its part, or the file is less than half full.
    pub(super) fn has_room(&self, org: &str) -> bool {
        self.has_room_in(&self.held.lock(), org)
    }

    fn has_room_in(&self, held: &ByteCounts, org: &str) -> bool {
        let own = held.by_org.get(org).copied().unwrap_or_default();
        own < self.max_bytes / SHARES || held.whole < self.max_bytes / 2
    }

    /// Counts events added to the file; returns the orgs that have no capacity from now on.
    pub(super) fn add(&self, events: &[CallEvent]) -> Vec<String> {
        let mut held = self.held.lock();
        let mut used_up = Vec::new();
        for event in events {
            let had_room = self.has_room_in(&held, &event.org);
            let size = size(event);
            let bytes = held.by_org.entry(event.org.clone()).or_default();
            *bytes = bytes.saturating_add(size);
            held.whole = held.whole.saturating_add(size);
            if had_room && !self.has_room_in(&held, &event.org) {
                used_up.push(event.org.clone());
            }
        }
        used_up
    }

    /// Subtracts events that have left the file.
    pub(super) fn remove(&self, events: &[CallEvent]) {
        let mut held = self.held.lock();
        for event in events {
            let Some(bytes) = held.by_org.get_mut(&event.org) else { continue };
            let left = bytes.saturating_sub(size(event));
            let gone = std::mem::replace(bytes, left) - left;
            held.whole = held.whole.saturating_sub(gone);
            if left == 0 {
                held.by_org.remove(&event.org);
            }
        }
    }

    /// Resets the count of an empty file.
    pub(super) fn clear(&self) {
        *self.held.lock() = ByteCounts::default();
    }
}

fn size(event: &CallEvent) -> u64 {
    event.event.len() as u64 + row_bytes(&event.org)
}

/// Returns the bytes of a row; the org's name is in the row and in the index.
fn row_bytes(org: &str) -> u64 {
    ROW_BYTES + 2 * org.len() as u64
}
