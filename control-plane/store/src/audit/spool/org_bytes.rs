//! How much of the file the events of each org take.
//!
//! Keeps true: an org is counted from what this process found in the file and put there; another process that shares the file
//! counts its own. Bounded by the orgs that have events in the file.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::audit::CallEvent;

/// Of the file's bound, the part that one org may take before nothing more begins in it.
const SHARES: u64 = 10;
/// Bytes that an event takes in the file besides its texts.
const ROW_BYTES: u64 = 32;

/// The bytes of each org.
pub(super) struct OrgBytes {
    /// Share of one org.
    share: u64,
    by_org: Mutex<HashMap<String, u64>>,
}

impl OrgBytes {
    /// `held`: what the file has by now: of each org the bytes of its events and their number.
    pub(super) fn of(max_bytes: u64, held: Vec<(String, u64, u64)>) -> OrgBytes {
        let counted = held.into_iter().map(|(org, bytes, events)| {
            let of_rows = events.saturating_mul(row_bytes(&org));
            (org, bytes.saturating_add(of_rows))
        });
        OrgBytes { share: max_bytes / SHARES, by_org: Mutex::new(counted.collect()) }
    }

    /// Whether the org has some of its share left.
    pub(super) fn has_room(&self, org: &str) -> bool {
        self.by_org.lock().get(org).is_none_or(|bytes| *bytes < self.share)
    }

    /// Counts events that the file took; returns the orgs whose share these used up.
    pub(super) fn add(&self, events: &[CallEvent]) -> Vec<String> {
        let mut by_org = self.by_org.lock();
        let mut used_up = Vec::new();
        for event in events {
            let bytes = by_org.entry(event.org.clone()).or_default();
            let had_room = *bytes < self.share;
            *bytes = bytes.saturating_add(size(event));
            if had_room && *bytes >= self.share {
                used_up.push(event.org.clone());
            }
        }
        used_up
    }

    /// Events have left the file.
    pub(super) fn remove(&self, events: &[CallEvent]) {
        let mut by_org = self.by_org.lock();
        for event in events {
            if let Some(bytes) = by_org.get_mut(&event.org) {
                *bytes = bytes.saturating_sub(size(event));
                if *bytes == 0 {
                    by_org.remove(&event.org);
                }
            }
        }
    }

    /// The file is empty.
    pub(super) fn clear(&self) {
        self.by_org.lock().clear();
    }
}

fn size(event: &CallEvent) -> u64 {
    event.event.len() as u64 + row_bytes(&event.org)
}

/// The name of the org is in the row and in the index.
fn row_bytes(org: &str) -> u64 {
    ROW_BYTES + 2 * org.len() as u64
}
