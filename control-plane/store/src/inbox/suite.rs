//! Conformance suite of [`Inbox`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use bytes::Bytes;

use super::{EntryName, Inbox, InboxError, InboxId, MAX_BYTES, MAX_ENTRIES, MAX_ENTRY, Put};

/// Long enough for every test.
const KEEP: Duration = Duration::from_secs(3600);
/// Expires soon.
const SHORT: Duration = Duration::from_millis(20);
/// Limit of an org in [`keeps_to_the_bytes_of_an_org`], in bytes.
pub const FEW: usize = 100;

fn id(org: u8, call: u8) -> InboxId {
    InboxId { org: [org; 16], call: [call; 16] }
}

fn name(number: u8) -> EntryName {
    [number; 16]
}

fn bytes(count: usize) -> Bytes {
    Bytes::from(vec![b'x'; count])
}

/// Runs the suite against an inbox without entries.
pub async fn run(inbox: &dyn Inbox) {
    keeps_an_entry_until_it_is_removed(inbox).await;
    keeps_the_first_of_a_name(inbox).await;
    refuses_more_than_a_call_may_have(inbox).await;
    refuses_what_is_too_large(inbox).await;
    keeps_any_bytes(inbox).await;
    forgets_when_the_time_is_over(inbox).await;
}

async fn put(inbox: &dyn Inbox, id: InboxId, number: u8, entry: Bytes) -> Put {
    inbox.put(id, name(number), entry, KEEP).await.unwrap()
}

async fn read(inbox: &dyn Inbox, id: InboxId) -> Vec<(EntryName, Bytes)> {
    let mut entries = inbox.read(id).await.unwrap();
    entries.sort();
    entries
}

async fn remove(inbox: &dyn Inbox, id: InboxId, numbers: &[u8]) {
    let names: Vec<EntryName> = numbers.iter().map(|number| name(*number)).collect();
    inbox.remove(id, &names).await.unwrap();
}

async fn keeps_an_entry_until_it_is_removed(inbox: &dyn Inbox) {
    let call = id(1, 1);
    assert!(read(inbox, call).await.is_empty());
    remove(inbox, call, &[1]).await;
    assert_eq!(put(inbox, call, 1, "a".into()).await, Put::Stored);
    assert_eq!(put(inbox, call, 2, "b".into()).await, Put::Stored);
    assert_eq!(put(inbox, id(1, 2), 1, "z".into()).await, Put::Stored);
    let both = [(name(1), Bytes::from("a")), (name(2), Bytes::from("b"))];
    for _ in 0..2 {
        assert_eq!(read(inbox, call).await, both, "reading takes nothing");
    }
    remove(inbox, call, &[1, 9]).await;
    assert_eq!(read(inbox, call).await, both[1..]);
    remove(inbox, call, &[]).await;
    remove(inbox, call, &[1, 2]).await;
    assert!(read(inbox, call).await.is_empty());
    assert_eq!(read(inbox, id(1, 2)).await.len(), 1, "calls are apart");
    assert_eq!(put(inbox, call, 1, "again".into()).await, Put::Stored);
    assert_eq!(read(inbox, call).await, [(name(1), Bytes::from("again"))]);
}

/// The first entry may have been applied, and its caller was told that it was stored.
async fn keeps_the_first_of_a_name(inbox: &dyn Inbox) {
    let call = id(2, 1);
    assert_eq!(put(inbox, call, 1, "first".into()).await, Put::Stored);
    for entry in ["first", "of another length", ""] {
        assert_eq!(put(inbox, call, 1, entry.into()).await, Put::Exists);
    }
    assert_eq!(read(inbox, call).await, [(name(1), Bytes::from("first"))]);
    assert_eq!(put(inbox, call, 2, Bytes::new()).await, Put::Stored);
    assert_eq!(put(inbox, call, 2, "x".into()).await, Put::Exists, "one without bytes is there, too");
}

async fn refuses_more_than_a_call_may_have(inbox: &dyn Inbox) {
    let call = id(3, 1);
    for number in 0..MAX_ENTRIES {
        assert_eq!(put(inbox, call, number as u8, "x".into()).await, Put::Stored);
    }
    let one_more = MAX_ENTRIES as u8;
    assert_eq!(put(inbox, call, one_more, "x".into()).await, Put::Full);
    assert_eq!(put(inbox, call, 0, "again".into()).await, Put::Exists);
    assert_eq!(read(inbox, call).await.len(), MAX_ENTRIES, "none had to go");
    remove(inbox, call, &[3]).await;
    assert_eq!(put(inbox, call, one_more, "x".into()).await, Put::Stored);
    let large = id(3, 2);
    let whole = MAX_BYTES / (1 << 20);
    for number in 0..whole {
        assert_eq!(put(inbox, large, number as u8, bytes(1 << 20)).await, Put::Stored);
    }
    assert_eq!(put(inbox, large, 100, "x".into()).await, Put::Full);
    remove(inbox, large, &[0]).await;
    assert_eq!(put(inbox, large, 0, bytes((1 << 20) - 1)).await, Put::Stored);
    assert_eq!(put(inbox, large, 100, "x".into()).await, Put::Stored, "one byte was free");
}

async fn refuses_what_is_too_large(inbox: &dyn Inbox) {
    let call = id(4, 1);
    assert_eq!(put(inbox, call, 1, bytes(MAX_ENTRY)).await, Put::Stored);
    let refused = inbox.put(call, name(2), bytes(MAX_ENTRY + 1), KEEP).await;
    assert!(matches!(refused, Err(InboxError::TooLarge)), "{refused:?}");
    assert_eq!(read(inbox, call).await.len(), 1);
}

async fn keeps_any_bytes(inbox: &dyn Inbox) {
    let call = id(5, 1);
    let any: Vec<Bytes> = vec![
        Bytes::from((0..=u8::MAX).collect::<Vec<_>>()),
        Bytes::new(),
        Bytes::from_static(b"\r\n$-1\r\n\0"),
        Bytes::from_static(b"17"),
    ];
    for (number, entry) in (0..).zip(&any) {
        assert_eq!(put(inbox, call, number, entry.clone()).await, Put::Stored);
    }
    let kept: Vec<Bytes> = read(inbox, call).await.into_iter().map(|(_, entry)| entry).collect();
    assert_eq!(kept, any);
}

async fn forgets_when_the_time_is_over(inbox: &dyn Inbox) {
    for (call, keep) in [(id(6, 1), SHORT), (id(6, 2), KEEP)] {
        assert_eq!(inbox.put(call, name(1), "a".into(), keep).await.unwrap(), Put::Stored);
        assert_eq!(inbox.put(call, name(2), "b".into(), SHORT).await.unwrap(), Put::Stored);
    }
    while !read(inbox, id(6, 1)).await.is_empty() {
        tokio::time::sleep(SHORT).await;
    }
    assert_eq!(read(inbox, id(6, 2)).await.len(), 2, "the longest time counts");
}

/// Invariant I-4, for inboxes with a limit of [`FEW`] bytes per org.
pub async fn keeps_to_the_bytes_of_an_org(inbox: &dyn Inbox) {
    assert_eq!(put(inbox, id(7, 1), 1, bytes(FEW - 10)).await, Put::Stored);
    assert_eq!(put(inbox, id(7, 2), 1, bytes(11)).await, Put::Full, "of all its calls");
    assert_eq!(put(inbox, id(7, 2), 1, bytes(10)).await, Put::Stored);
    assert_eq!(put(inbox, id(7, 1), 2, bytes(1)).await, Put::Full);
    assert_eq!(read(inbox, id(7, 1)).await, [(name(1), bytes(FEW - 10))], "what was there stays");
    assert_eq!(put(inbox, id(8, 1), 1, bytes(FEW)).await, Put::Stored, "another org");
    // Removed entries free capacity.
    remove(inbox, id(7, 1), &[1]).await;
    assert_eq!(put(inbox, id(7, 1), 1, bytes(1)).await, Put::Stored);
    assert_eq!(put(inbox, id(7, 3), 1, bytes(FEW - 11)).await, Put::Stored);
    assert_eq!(put(inbox, id(7, 4), 1, bytes(1)).await, Put::Full);
    remove(inbox, id(7, 3), &[1]).await;
    remove(inbox, id(7, 3), &[1]).await;
    assert_eq!(put(inbox, id(7, 4), 1, bytes(FEW - 11)).await, Put::Stored);
    assert_eq!(put(inbox, id(7, 5), 1, bytes(1)).await, Put::Full, "it was counted once");
    for call in [1, 2, 4] {
        remove(inbox, id(7, call), &[1]).await;
    }
    // So do expired ones.
    assert_eq!(inbox.put(id(7, 6), name(1), bytes(FEW), SHORT).await.unwrap(), Put::Stored);
    while put(inbox, id(7, 7), 1, bytes(FEW)).await == Put::Full {
        tokio::time::sleep(SHORT).await;
    }
}
