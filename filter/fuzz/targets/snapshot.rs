//! Any snapshot and any two lists of recent revocations: no panic, and the newer list is in force.
//!
//! Input: the snapshot and the first list, each after its length (two bytes, big endian), then the second list.
#![no_main]

use std::sync::Arc;

use asp_edge::{RecentList, Snapshot};
use asp_proto::snapshot::Protocol;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (snapshot, rest) = part(input);
    let (first, second) = part(rest);
    let lists = [first, second].map(|bytes| RecentList::decode(bytes).ok().map(Arc::new));
    let Ok(mut snapshot) = Snapshot::decode(snapshot) else { return };
    snapshot.exposed("s", "o", Protocol::Mcp);
    let mut highest = None;
    for list in lists.iter().flatten() {
        highest = highest.max(Some(list.revision()));
        snapshot = snapshot.with_recent(list);
        assert_eq!(snapshot.recent().map(|held| held.revision()), highest);
        // Applying it again changes nothing.
        let again = snapshot.with_recent(list);
        assert_eq!(again.accepts_tokens(), snapshot.accepts_tokens());
    }
});

fn part(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = input.split_first_chunk::<2>() else { return (input, &[]) };
    rest.split_at(usize::from(u16::from_be_bytes(*length)).min(rest.len()))
}
