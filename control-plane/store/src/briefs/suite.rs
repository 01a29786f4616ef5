//! Conformance suite of [`BriefRecords`]. Uses short real times, because not every backend has a clock to pause.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use bytes::Bytes;

use super::{BriefList, BriefQuotas, BriefRecord, BriefRecords};
use crate::ledger::Budget;

const KEEP: Duration = Duration::from_secs(60);
const ORG: [u8; 16] = [1; 16];
const OTHER: [u8; 16] = [2; 16];

fn list(org: [u8; 16], n: u8) -> BriefList {
    BriefList { org, list: [n; 16] }
}

fn record(n: u8, ended_ms: i64, sealed: &'static [u8]) -> BriefRecord {
    BriefRecord { call: [n; 16], ended_ms, sealed: Bytes::from_static(sealed) }
}

/// The calls of a list, by one page of two after the other.
async fn listed(records: &dyn BriefRecords, list: BriefList) -> Vec<u8> {
    let mut calls = Vec::new();
    let mut before = None;
    loop {
        let page = records.list(list, before, 2).await.unwrap();
        calls.extend(page.iter().map(|record| record.call[0]));
        match page.last() {
            Some(last) if page.len() == 2 => before = Some((last.ended_ms, last.call)),
            _ => return calls,
        }
    }
}

/// Runs the suite against an empty store.
pub async fn run(records: &dyn BriefRecords) {
    let own = list(ORG, 1);
    assert_eq!(records.find(ORG, [1; 16]).await.unwrap(), None);
    assert_eq!(records.list(own, None, 9).await.unwrap(), []);
    let now = 1_700_000_000_000;
    let kept = [record(1, now, b"\0\xff\r\n"), record(3, now + 5, b"c"), record(2, now, b"b")];
    for record in &kept {
        assert!(records.put(own, record.clone(), KEEP, false).await.unwrap());
        assert_eq!(records.find(ORG, record.call).await.unwrap(), Some(record.sealed.clone()));
    }
    assert!(records.put(own, record(4, now + 9, b""), KEEP, false).await.unwrap());
    assert_eq!(records.find(ORG, [4; 16]).await.unwrap(), Some(Bytes::new()), "the database has it");
    assert!(!records.put(own, record(4, now, b"d"), KEEP, false).await.unwrap(), "the first one stays");
    assert!(!records.put(own, record(1, now, b"x"), KEEP, false).await.unwrap());
    assert!(records.put(own, record(7, now + 7, b"y"), KEEP, false).await.unwrap());
    assert!(records.put(own, record(7, now + 7, b""), KEEP, true).await.unwrap());
    assert_eq!(records.find(ORG, [7; 16]).await.unwrap(), Some(Bytes::new()), "it was replaced");
    assert_eq!(records.find(OTHER, [1; 16]).await.unwrap(), None, "of another org");
    let all = records.list(own, None, 9).await.unwrap();
    assert_eq!(all, [kept[1].clone(), kept[2].clone(), kept[0].clone()]);
    assert_eq!(listed(records, own).await, [3, 2, 1], "page by page");
    assert!(records.put(list(ORG, 2), record(5, now, b"e"), KEEP, false).await.unwrap());
    assert!(records.put(list(OTHER, 1), record(1, now, b"f"), KEEP, false).await.unwrap());
    assert_eq!(listed(records, own).await, [3, 2, 1]);
    assert_eq!(listed(records, list(ORG, 2)).await, [5]);
    assert_eq!(listed(records, list(OTHER, 1)).await, [1]);
    assert!(records.put(own, record(6, now + 10, b"g"), Duration::from_millis(1), false).await.unwrap());
    // Longer than its time, whose end no store announces.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(records.find(ORG, [6; 16]).await.unwrap(), None, "its time is over");
    assert_eq!(listed(records, own).await, [3, 2, 1]);
    assert!(records.put(own, record(6, now + 11, b"h"), KEEP, false).await.unwrap());
    assert_eq!(listed(records, own).await, [6, 3, 2, 1]);
}

/// Quotas that [`keeps_to_its_quotas`] expects.
pub const SMALL: BriefQuotas = BriefQuotas { listed: 2, of_org: Budget { keys: 4, bytes: 10 } };

/// Runs against an empty store with the quotas [`SMALL`] (I-4).
pub async fn keeps_to_its_quotas(records: &dyn BriefRecords) {
    let put = async |list: BriefList, n: u8, sealed: &'static [u8]| {
        assert!(records.put(list, record(n, i64::from(n), sealed), KEEP, false).await.unwrap());
    };
    for n in 1..=3 {
        put(list(ORG, 1), n, b"1").await;
    }
    assert_eq!(listed(records, list(ORG, 1)).await, [3, 2]);
    assert_eq!(records.find(ORG, [1; 16]).await.unwrap(), None, "the first of the list is gone");
    put(list(OTHER, 1), 1, b"1234567890").await;
    put(list(ORG, 2), 4, b"").await;
    put(list(ORG, 2), 5, b"1").await;
    put(list(ORG, 3), 6, b"1").await;
    assert_eq!(listed(records, list(ORG, 1)).await, [3], "four of the org, the first goes");
    put(list(ORG, 3), 7, b"12345678").await;
    assert_eq!(listed(records, list(ORG, 1)).await, [0; 0]);
    assert_eq!(listed(records, list(ORG, 2)).await, [5], "10 bytes of the org");
    assert_eq!(listed(records, list(ORG, 3)).await, [7, 6]);
    assert_eq!(listed(records, list(OTHER, 1)).await, [1]);
}
