//! Conformance suite of [`Outbox`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use bytes::Bytes;

use super::{
    AppendOutcome, Batch, LogId, MAX_BYTES, MAX_ENTRIES, MAX_ENTRY, MAX_NUMBER, MAX_PINNED, Outbox,
    OutboxError, StoredEvents,
};
use crate::records::{CallId, OwnerId};

/// Long enough for every test.
const KEEP: Duration = Duration::from_secs(3600);
/// Expires soon.
const SHORT: Duration = Duration::from_millis(20);
/// A hang guard, not an expectation.
const LONG: Duration = Duration::from_secs(30);
/// Log of most calls here.
const LOG: LogId = 7;

fn owner(number: u8) -> OwnerId {
    OwnerId([number; 16])
}

fn entries(texts: &[&str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect()
}

fn kept(first: u64, texts: &[&str]) -> Option<StoredEvents> {
    Some(StoredEvents { log: LOG, first, entries: entries(texts), pinned: Vec::new() })
}

/// Runs the suite against an empty outbox.
pub async fn run(outbox: &dyn Outbox) {
    keeps_what_is_appended(outbox).await;
    tells_what_comes_from_a_number_on(outbox).await;
    passes_over_what_is_there(outbox).await;
    refuses_what_does_not_follow(outbox).await;
    begins_anew(outbox).await;
    begins_with_nothing(outbox).await;
    only_the_present_owner_adds(outbox).await;
    remembers_the_owner_of_an_unknown_call(outbox).await;
    nothing_is_added_behind_who_takes(outbox).await;
    keeps_so_many_entries(outbox).await;
    keeps_so_many_bytes(outbox).await;
    keeps_what_is_open(outbox).await;
    refuses_what_is_too_large(outbox).await;
    counts_exactly(outbox).await;
    keeps_any_bytes(outbox).await;
    forgets_when_the_time_is_over(outbox).await;
    goes_on_with_what_is_taken_for_longer(outbox).await;
}

/// Appends as the first owner.
async fn append(outbox: &dyn Outbox, call: CallId, first: u64, texts: &[&str]) -> AppendOutcome {
    append_as(outbox, call, owner(1), (first, texts)).await
}

async fn append_as(
    outbox: &dyn Outbox,
    call: CallId,
    owner: OwnerId,
    (first, texts): (u64, &[&str]),
) -> AppendOutcome {
    let batch = Batch { log: LOG, first, entries: &entries(texts), reset: false, open: &[], pinned: &[] };
    outbox.append(call, owner, batch, KEEP).await.unwrap()
}

/// Stores a batch as the first owner.
async fn stores(outbox: &dyn Outbox, call: CallId, batch: Batch<'_>) {
    assert_eq!(outbox.append(call, owner(1), batch, KEEP).await.unwrap(), AppendOutcome::Stored);
}

/// Starts a log as the first owner.
async fn begin(outbox: &dyn Outbox, call: CallId, first: u64, texts: &[&str]) {
    let batch = Batch { log: LOG, first, entries: &entries(texts), reset: true, open: &[], pinned: &[] };
    stores(outbox, call, batch).await;
}

async fn read(outbox: &dyn Outbox, call: CallId, from: u64) -> Option<StoredEvents> {
    outbox.read(call, from).await.unwrap()
}

async fn keeps_what_is_appended(outbox: &dyn Outbox) {
    assert_eq!(read(outbox, [1; 16], 0).await, None);
    assert_eq!(append(outbox, [1; 16], 0, &["a"]).await, AppendOutcome::Missing, "nothing is known of it");
    assert_eq!(read(outbox, [1; 16], 0).await, None, "nor is then");
    begin(outbox, [1; 16], 0, &["a", "b"]).await;
    begin(outbox, [2; 16], 5, &["z"]).await;
    assert_eq!(append(outbox, [1; 16], 2, &["c"]).await, AppendOutcome::Stored);
    assert_eq!(append(outbox, [1; 16], 3, &[]).await, AppendOutcome::Stored);
    assert_eq!(append(outbox, [1; 16], 3, &["d"]).await, AppendOutcome::Stored);
    assert_eq!(read(outbox, [1; 16], 0).await, kept(0, &["a", "b", "c", "d"]));
    assert_eq!(read(outbox, [2; 16], 0).await, kept(5, &["z"]), "calls are apart");
}

async fn tells_what_comes_from_a_number_on(outbox: &dyn Outbox) {
    begin(outbox, [3; 16], 10, &["a", "b", "c"]).await;
    assert_eq!(read(outbox, [3; 16], 0).await, kept(10, &["a", "b", "c"]), "what is older is gone");
    assert_eq!(read(outbox, [3; 16], 10).await, kept(10, &["a", "b", "c"]));
    assert_eq!(read(outbox, [3; 16], 11).await, kept(11, &["b", "c"]));
    assert_eq!(read(outbox, [3; 16], 12).await, kept(12, &["c"]));
    assert_eq!(read(outbox, [3; 16], 12).await.unwrap().next(), 13);
    for beyond in [13, 14, MAX_NUMBER, u64::MAX] {
        let told = read(outbox, [3; 16], beyond).await;
        assert_eq!(told, kept(13, &[]), "from {beyond}");
        assert_eq!(told.unwrap().next(), 13);
    }
}

async fn passes_over_what_is_there(outbox: &dyn Outbox) {
    begin(outbox, [4; 16], 10, &["a", "b"]).await;
    assert_eq!(append(outbox, [4; 16], 10, &["other", "other"]).await, AppendOutcome::Stored, "all of it is");
    assert_eq!(append(outbox, [4; 16], 11, &["other", "c"]).await, AppendOutcome::Stored);
    assert_eq!(
        append(outbox, [4; 16], 8, &["old", "old", "other", "other", "other", "d"]).await,
        AppendOutcome::Stored
    );
    assert_eq!(append(outbox, [4; 16], 2, &["old"]).await, AppendOutcome::Stored, "it was there once");
    assert_eq!(read(outbox, [4; 16], 0).await, kept(10, &["a", "b", "c", "d"]));
}

async fn refuses_what_does_not_follow(outbox: &dyn Outbox) {
    begin(outbox, [5; 16], 0, &["a"]).await;
    assert_eq!(append(outbox, [5; 16], 2, &["c"]).await, AppendOutcome::Missing);
    assert_eq!(append(outbox, [5; 16], 2, &[]).await, AppendOutcome::Missing);
    for log in [LOG - 1, LOG + 1, LogId::MAX] {
        let batch = Batch { log, first: 1, entries: &entries(&["b"]), reset: false, open: &[], pinned: &[] };
        let appended = outbox.append([5; 16], owner(1), batch, KEEP).await.unwrap();
        assert_eq!(appended, AppendOutcome::Missing, "of log {log}");
    }
    assert_eq!(read(outbox, [5; 16], 0).await, kept(0, &["a"]));
}

async fn begins_anew(outbox: &dyn Outbox) {
    begin(outbox, [6; 16], 0, &["a", "b"]).await;
    // The owner has the entries from 4 on, and learns that earlier ones are missing.
    assert_eq!(append(outbox, [6; 16], 5, &["f"]).await, AppendOutcome::Missing);
    begin(outbox, [6; 16], 4, &["e", "f"]).await;
    assert_eq!(append(outbox, [6; 16], 6, &["g"]).await, AppendOutcome::Stored);
    assert_eq!(read(outbox, [6; 16], 0).await, kept(4, &["e", "f", "g"]));
    let batch =
        Batch { log: LogId::MAX, first: 1, entries: &entries(&["A"]), reset: true, open: &[], pinned: &[] };
    assert_eq!(outbox.append([6; 16], owner(1), batch, KEEP).await.unwrap(), AppendOutcome::Stored);
    assert_eq!(append(outbox, [6; 16], 2, &["h"]).await, AppendOutcome::Missing, "that log is gone");
    let reset = StoredEvents { log: LogId::MAX, first: 1, entries: entries(&["A"]), pinned: Vec::new() };
    assert_eq!(read(outbox, [6; 16], 0).await, Some(reset));
}

async fn begins_with_nothing(outbox: &dyn Outbox) {
    begin(outbox, [7; 16], 3, &[]).await;
    assert_eq!(read(outbox, [7; 16], 0).await, kept(3, &[]));
    assert_eq!(outbox.take([7; 16], owner(1), KEEP).await.unwrap(), kept(3, &[]));
    assert_eq!(append(outbox, [7; 16], 4, &["e"]).await, AppendOutcome::Missing);
    assert_eq!(append(outbox, [7; 16], 3, &["d"]).await, AppendOutcome::Stored);
    assert_eq!(read(outbox, [7; 16], 0).await, kept(3, &["d"]));
    begin(outbox, [7; 16], 9, &[]).await;
    assert_eq!(read(outbox, [7; 16], 0).await, kept(9, &[]));
}

async fn only_the_present_owner_adds(outbox: &dyn Outbox) {
    begin(outbox, [8; 16], 0, &["a", "b"]).await;
    assert_eq!(append_as(outbox, [8; 16], owner(2), (2, &["x"])).await, AppendOutcome::NotOwner);
    assert_eq!(outbox.take([8; 16], owner(2), KEEP).await.unwrap(), kept(0, &["a", "b"]));
    assert_eq!(append(outbox, [8; 16], 2, &["x"]).await, AppendOutcome::NotOwner);
    assert_eq!(append(outbox, [8; 16], 0, &["a", "b"]).await, AppendOutcome::NotOwner, "a retry, too");
    let reset = Batch { log: LOG, first: 0, entries: &entries(&["x"]), reset: true, open: &[], pinned: &[] };
    assert_eq!(outbox.append([8; 16], owner(1), reset, KEEP).await.unwrap(), AppendOutcome::NotOwner);
    assert_eq!(append_as(outbox, [8; 16], owner(2), (2, &["c"])).await, AppendOutcome::Stored);
    assert_eq!(outbox.take([8; 16], owner(2), KEEP).await.unwrap(), kept(0, &["a", "b", "c"]), "once more");
    assert_eq!(outbox.take([8; 16], owner(3), KEEP).await.unwrap(), kept(0, &["a", "b", "c"]));
    assert_eq!(append_as(outbox, [8; 16], owner(2), (3, &["x"])).await, AppendOutcome::NotOwner);
    // Its earlier ownership does not count.
    assert_eq!(outbox.take([8; 16], owner(1), KEEP).await.unwrap(), kept(0, &["a", "b", "c"]));
    assert_eq!(append(outbox, [8; 16], 3, &["d"]).await, AppendOutcome::Stored);
    assert_eq!(read(outbox, [8; 16], 0).await, kept(0, &["a", "b", "c", "d"]));
}

async fn remembers_the_owner_of_an_unknown_call(outbox: &dyn Outbox) {
    assert_eq!(outbox.take([9; 16], owner(2), KEEP).await.unwrap(), None);
    assert_eq!(read(outbox, [9; 16], 0).await, None, "no log was begun");
    let reset = Batch { log: LOG, first: 0, entries: &entries(&["a"]), reset: true, open: &[], pinned: &[] };
    assert_eq!(outbox.append([9; 16], owner(1), reset, KEEP).await.unwrap(), AppendOutcome::NotOwner);
    assert_eq!(append(outbox, [9; 16], 0, &["a"]).await, AppendOutcome::NotOwner);
    assert_eq!(append_as(outbox, [9; 16], owner(2), (0, &["a"])).await, AppendOutcome::Missing);
    assert_eq!(outbox.take([9; 16], owner(2), KEEP).await.unwrap(), None, "still none");
    assert_eq!(outbox.append([9; 16], owner(2), reset, KEEP).await.unwrap(), AppendOutcome::Stored);
    assert_eq!(read(outbox, [9; 16], 0).await, kept(0, &["a"]));
}

async fn nothing_is_added_behind_who_takes(outbox: &dyn Outbox) {
    begin(outbox, [10; 16], 0, &["begun"]).await;
    let adds = async {
        let mut next = 1;
        while append(outbox, [10; 16], next, &["more"]).await == AppendOutcome::Stored {
            next += 1;
            // An outbox that never waits would let no other task run.
            tokio::task::yield_now().await;
        }
        next
    };
    let takes = async {
        while read(outbox, [10; 16], 0).await.unwrap().next() < 5 {
            tokio::task::yield_now().await;
        }
        outbox.take([10; 16], owner(2), KEEP).await.unwrap().unwrap()
    };
    let both = async { futures::join!(adds, takes) };
    let (next, taken) = tokio::time::timeout(LONG, both).await.unwrap();
    assert_eq!(taken.next(), next, "all that was stored, and nothing since");
    assert_eq!(read(outbox, [10; 16], 0).await, Some(taken));
}

async fn keeps_so_many_entries(outbox: &dyn Outbox) {
    let all: Vec<String> = (0..MAX_ENTRIES + 12).map(|number| number.to_string()).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    begin(outbox, [11; 16], 0, &all[..MAX_ENTRIES]).await;
    assert_eq!(read(outbox, [11; 16], 0).await, kept(0, &all[..MAX_ENTRIES]));
    assert_eq!(append(outbox, [11; 16], 256, &all[256..257]).await, AppendOutcome::Stored);
    assert_eq!(read(outbox, [11; 16], 0).await, kept(1, &all[1..257]));
    assert_eq!(append(outbox, [11; 16], 255, &all[255..]).await, AppendOutcome::Stored);
    assert_eq!(read(outbox, [11; 16], 0).await, kept(12, &all[12..]));
    begin(outbox, [11; 16], 0, &all).await;
    assert_eq!(
        outbox.take([11; 16], owner(1), KEEP).await.unwrap(),
        kept(12, &all[12..]),
        "of one batch, too"
    );
}

/// The limit of bytes, filled with the largest entries.
async fn keeps_so_many_bytes(outbox: &dyn Outbox) {
    let fills = MAX_BYTES / MAX_ENTRY;
    let large: Vec<Bytes> = (0..=fills as u8).map(|byte| Bytes::from(vec![byte; MAX_ENTRY])).collect();
    let batch =
        |first: u64, entries, reset| Batch { log: LOG, first, entries, reset, open: &[], pinned: &[] };
    let told = |first: u64, entries: &[Bytes]| {
        Some(StoredEvents { log: LOG, first, entries: entries.to_vec(), pinned: Vec::new() })
    };
    let full = batch(0, &large[..fills], true);
    assert_eq!(outbox.append([12; 16], owner(1), full, KEEP).await.unwrap(), AppendOutcome::Stored);
    assert_eq!(read(outbox, [12; 16], 0).await, told(0, &large[..fills]), "it is full, and no more");
    let small = entries(&["1", "more"]);
    for number in 0..2 {
        let more = batch((fills + number) as u64, &small[number..=number], false);
        assert_eq!(outbox.append([12; 16], owner(1), more, KEEP).await.unwrap(), AppendOutcome::Stored);
        let left = [&large[1..fills], &small[..=number]].concat();
        assert_eq!(read(outbox, [12; 16], 0).await, told(1, &left), "one byte too many is too many");
    }
    let left = [&large[1..fills], &small].concat();
    // The evicted entry has freed bytes for the next one.
    let fits = [Bytes::from(vec![b'x'; MAX_ENTRY - "1more".len()])];
    let more = batch(fills as u64 + 2, &fits, false);
    assert_eq!(outbox.append([12; 16], owner(1), more, KEEP).await.unwrap(), AppendOutcome::Stored);
    assert_eq!(read(outbox, [12; 16], 0).await, told(1, &[&left[..], &fits].concat()));
    let newest = batch(0, &large, true);
    assert_eq!(outbox.append([12; 16], owner(1), newest, KEEP).await.unwrap(), AppendOutcome::Stored);
    assert_eq!(read(outbox, [12; 16], 0).await, told(1, &large[1..]), "of one batch, too");
}

/// An open entry stays after its eviction until it is closed.
async fn keeps_what_is_open(outbox: &dyn Outbox) {
    let call = [22; 16];
    let all: Vec<Bytes> = (0..MAX_ENTRIES + 12).map(|number| Bytes::from(number.to_string())).collect();
    let pinned = async |from| read(outbox, call, from).await.unwrap().pinned;
    let begun =
        Batch { log: LOG, first: 0, entries: &all[..MAX_ENTRIES], reset: true, open: &[1, 3], pinned: &[] };
    stores(outbox, call, begun).await;
    assert!(pinned(0).await.is_empty(), "they are among the others");
    let more = Batch { first: 256, entries: &all[256..], reset: false, ..begun };
    stores(outbox, call, more).await;
    assert_eq!(read(outbox, call, 0).await.unwrap().first, 12);
    assert_eq!(pinned(0).await, [(1, all[1].clone()), (3, all[3].clone())]);
    assert_eq!(pinned(11).await.len(), 2, "from what is gone");
    assert!(pinned(12).await.is_empty(), "who has seen all before knows them");
    let none = Batch { first: 268, entries: &[], open: &[3], ..more };
    stores(outbox, call, none).await;
    assert_eq!(pinned(0).await, [(3, all[3].clone())]);
    let given = [(2, Bytes::from_static(b"given")), (3, Bytes::from_static(b"closed"))];
    let reset = Batch { first: 300, reset: true, entries: &all[..1], open: &[2], pinned: &given, ..begun };
    stores(outbox, call, reset).await;
    assert_eq!(pinned(0).await, [given[0].clone()], "and nothing from before");
    let many: Vec<(u64, Bytes)> = (0..=MAX_PINNED as u64).map(|number| (number, all[0].clone())).collect();
    let numbers: Vec<u64> = many.iter().map(|(number, _)| *number).collect();
    stores(outbox, call, Batch { open: &numbers, pinned: &many, ..reset }).await;
    assert_eq!(pinned(0).await.len(), MAX_PINNED);
    let large: Vec<(u64, Bytes)> = (0..=(MAX_BYTES / MAX_ENTRY) as u64)
        .map(|number| (number, Bytes::from(vec![b'x'; MAX_ENTRY])))
        .collect();
    stores(outbox, call, Batch { open: &numbers, pinned: &large, ..reset }).await;
    assert_eq!(pinned(0).await.len(), MAX_BYTES / MAX_ENTRY);
    assert!(outbox.take(call, owner(1), KEEP).await.unwrap().unwrap().pinned.is_empty());
    let too_large = [(1, Bytes::from(vec![b'x'; MAX_ENTRY + 1]))];
    let refused = outbox.append(call, owner(1), Batch { pinned: &too_large, ..reset }, KEEP).await;
    assert!(matches!(refused, Err(OutboxError::TooLarge)), "{refused:?}");
}

async fn refuses_what_is_too_large(outbox: &dyn Outbox) {
    begin(outbox, [13; 16], 0, &["a"]).await;
    let both = [Bytes::from_static(b"b"), Bytes::from(vec![b'x'; MAX_ENTRY + 1])];
    for reset in [false, true] {
        let batch = Batch { log: LOG, first: 1, entries: &both, reset, open: &[], pinned: &[] };
        let refused = outbox.append([13; 16], owner(1), batch, KEEP).await;
        assert!(matches!(refused, Err(OutboxError::TooLarge)), "{refused:?}");
    }
    assert_eq!(read(outbox, [13; 16], 0).await, kept(0, &["a"]), "all of it is");
}

/// Counts up to the largest number, and fails beyond it.
async fn counts_exactly(outbox: &dyn Outbox) {
    begin(outbox, [14; 16], MAX_NUMBER - 3, &["a"]).await;
    assert_eq!(append(outbox, [14; 16], MAX_NUMBER - 1, &["c"]).await, AppendOutcome::Missing);
    assert_eq!(append(outbox, [14; 16], MAX_NUMBER - 2, &["b", "c"]).await, AppendOutcome::Stored);
    assert_eq!(read(outbox, [14; 16], MAX_NUMBER - 2).await, kept(MAX_NUMBER - 2, &["b", "c"]));
    assert_eq!(read(outbox, [14; 16], MAX_NUMBER).await, kept(MAX_NUMBER, &[]));
    for first in [MAX_NUMBER, u64::MAX] {
        let batch =
            Batch { log: LOG, first, entries: &entries(&["d"]), reset: false, open: &[], pinned: &[] };
        let refused = outbox.append([14; 16], owner(1), batch, KEEP).await;
        assert!(matches!(refused, Err(OutboxError::Unavailable(_))), "{refused:?}");
    }
    assert_eq!(read(outbox, [14; 16], 0).await, kept(MAX_NUMBER - 3, &["a", "b", "c"]));
}

async fn keeps_any_bytes(outbox: &dyn Outbox) {
    let any = [
        Bytes::from((0..=u8::MAX).collect::<Vec<_>>()),
        Bytes::new(),
        Bytes::from_static(b"\r\n$-1\r\n\0"),
        Bytes::from_static(&[0xff, 0xfe, 0x80]),
        Bytes::from_static(b"17"),
    ];
    let batch = Batch { log: LOG, first: 0, entries: &any, reset: true, open: &[], pinned: &[] };
    assert_eq!(outbox.append([15; 16], owner(1), batch, KEEP).await.unwrap(), AppendOutcome::Stored);
    let told = Some(StoredEvents { log: LOG, first: 0, entries: any.to_vec(), pinned: Vec::new() });
    assert_eq!(read(outbox, [15; 16], 0).await, told);
    assert_eq!(outbox.take([15; 16], owner(2), KEEP).await.unwrap(), told);
}

async fn forgets_when_the_time_is_over(outbox: &dyn Outbox) {
    let a = entries(&["a"]);
    let reset = Batch { log: LOG, first: 0, entries: &a, reset: true, open: &[], pinned: &[] };
    let more = Batch { log: LOG, first: 1, entries: &entries(&["b"]), reset: false, open: &[], pinned: &[] };
    for (batch, keep) in [(reset, KEEP), (reset, SHORT), (more, SHORT)] {
        assert_eq!(outbox.append([16; 16], owner(1), batch, keep).await.unwrap(), AppendOutcome::Stored);
    }
    begin(outbox, [17; 16], 0, &[]).await;
    let later = Batch { log: LOG, first: 0, entries: &a, reset: false, open: &[], pinned: &[] };
    assert_eq!(outbox.append([17; 16], owner(1), later, SHORT).await.unwrap(), AppendOutcome::Stored);
    outbox.take([17; 16], owner(1), SHORT).await.unwrap();
    outbox.append([18; 16], owner(1), reset, SHORT).await.unwrap();
    outbox.take([19; 16], owner(1), SHORT).await.unwrap();
    let forgotten = async {
        while read(outbox, [18; 16], 0).await.is_some() {
            tokio::time::sleep(SHORT / 4).await;
        }
        // Only the owner is known of this call.
        while outbox.append([19; 16], owner(2), reset, KEEP).await.unwrap() == AppendOutcome::NotOwner {
            tokio::time::sleep(SHORT / 4).await;
        }
    };
    tokio::time::timeout(LONG, forgotten).await.unwrap();
    assert_eq!(append(outbox, [18; 16], 1, &["b"]).await, AppendOutcome::Missing);
    assert_eq!(read(outbox, [19; 16], 0).await, kept(0, &["a"]));
    assert_eq!(read(outbox, [16; 16], 0).await, kept(0, &["a", "b"]), "the longest time counts");
    assert_eq!(read(outbox, [17; 16], 0).await, kept(0, &["a"]), "of what came later, too");
}

async fn goes_on_with_what_is_taken_for_longer(outbox: &dyn Outbox) {
    let a = entries(&["a"]);
    let reset = Batch { log: LOG, first: 0, entries: &a, reset: true, open: &[], pinned: &[] };
    let taken = async {
        // On a busy machine it may expire before it is taken.
        loop {
            outbox.append([20; 16], owner(1), reset, SHORT).await.unwrap();
            if outbox.take([20; 16], owner(1), KEEP).await.unwrap().is_some() {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, taken).await.unwrap();
    outbox.append([21; 16], owner(1), reset, SHORT).await.unwrap();
    let over = async {
        while read(outbox, [21; 16], 0).await.is_some() {
            tokio::time::sleep(SHORT / 4).await;
        }
    };
    tokio::time::timeout(LONG, over).await.unwrap();
    assert_eq!(read(outbox, [20; 16], 0).await, kept(0, &["a"]));
}
