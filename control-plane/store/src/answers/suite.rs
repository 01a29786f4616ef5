//! Conformance suite of [`Answers`]. Uses short real times, because not every backend has a clock to pause.

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use bytes::Bytes;

use super::{Answers, StoredAnswer};
use crate::ledger::{Budget, LedgerKey};

const KEEP: Duration = Duration::from_secs(60);
const ORG: [u8; 16] = [1; 16];
const OTHER: [u8; 16] = [2; 16];
const THIRD: [u8; 16] = [3; 16];

fn key(n: u8) -> LedgerKey {
    LedgerKey([n; 32])
}

fn answered(answer: &'static [u8]) -> StoredAnswer {
    StoredAnswer { hash: [7; 32], answer: Bytes::from_static(answer) }
}

async fn keep(
    answers: &dyn Answers,
    (org, n): ([u8; 16], u8),
    answer: &'static [u8],
    time: Duration,
) -> bool {
    answers.keep(org, key(n), answered(answer), time).await.unwrap()
}

/// Runs the suite against an empty store.
pub async fn run(answers: &dyn Answers) {
    assert_eq!(answers.find(ORG, key(1)).await.unwrap(), None);
    for (n, answer) in [(1, &b"42"[..]), (2, b""), (3, b"\0\xff\r\n")] {
        assert!(keep(answers, (ORG, n), answer, KEEP).await);
        assert_eq!(answers.find(ORG, key(n)).await.unwrap(), Some(answered(answer)));
    }
    assert_eq!(answers.find(OTHER, key(1)).await.unwrap(), None, "of another org");
    assert!(!keep(answers, (ORG, 1), b"43", KEEP).await, "the first one stays");
    assert_eq!(answers.find(ORG, key(1)).await.unwrap(), Some(answered(b"42")));
    assert!(keep(answers, (OTHER, 1), b"43", KEEP).await);
    assert!(keep(answers, (ORG, 4), b"over", Duration::from_millis(1)).await);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(answers.find(ORG, key(4)).await.unwrap(), None, "its time is over");
    assert!(keep(answers, (ORG, 4), b"anew", KEEP).await);
    assert_eq!(answers.find(ORG, key(4)).await.unwrap(), Some(answered(b"anew")));
}

/// Budget that [`keeps_to_its_budget`] expects.
pub const SMALL: Budget = Budget { keys: 3, bytes: 10 };

/// Runs against an empty store with the budget [`SMALL`].
pub async fn keeps_to_its_budget(answers: &dyn Answers) {
    assert!(keep(answers, (ORG, 1), b"12345678", KEEP).await);
    assert!(!keep(answers, (ORG, 2), b"123", KEEP).await, "there are 2 bytes left");
    assert!(!keep(answers, (ORG, 1), b"1", KEEP).await, "it is there");
    for n in [3, 4] {
        assert!(keep(answers, (ORG, n), b"1", KEEP).await);
    }
    assert!(!keep(answers, (ORG, 5), b"", KEEP).await, "three answers are all");
    assert!(keep(answers, (OTHER, 1), b"1234567890", KEEP).await, "another org has its own");
    // Expired answers free keys and bytes.
    for n in [1, 2, 3] {
        assert!(keep(answers, (THIRD, n), b"123", Duration::from_millis(1)).await);
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(keep(answers, (THIRD, 1), b"1234567890", KEEP).await);
    assert!(!keep(answers, (THIRD, 6), b"1", KEEP).await);
    assert!(keep(answers, (THIRD, 6), b"", KEEP).await);
}
