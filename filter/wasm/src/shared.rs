//! The recent revocations in Envoy's shared data, for VMs that restart.
//!
//! Envoy configures a VM that crashed, or whose module was replaced, only through a root that requests pass. The root
//! of the revocations is disabled in the filter chain, so a restarted VM would have no list until the next push.
//! Therefore each VM stores an applied list in the shared data, which outlives the VMs, and a VM without a list starts
//! with the stored one. Keeps the highest revision.

use std::sync::Arc;

use asp_edge::RecentList;

/// Maximum number of attempts. A list is stored if no other VM stored one since it was read. Only the workers of this
/// Envoy compete, and the winner's list is the same or a newer one.
const TRIES: u32 = 64;

/// Value that all VMs of this Envoy share.
pub trait SharedValue {
    /// Returns the value and the token of its current state.
    fn get(&self) -> (Option<Vec<u8>>, Option<u32>);
    /// Stores `value`; returns false, without effect, if the state is no longer `state`.
    fn set(&self, value: &[u8], state: Option<u32>) -> bool;
}

/// Stores an encoded list, unless a newer one is stored.
pub fn keep(shared: &impl SharedValue, bytes: &[u8], revision: u64) {
    for _ in 0..TRIES {
        let (held, state) = shared.get();
        let stays = |held: &Vec<u8>| {
            held == bytes || RecentList::decode(held).is_ok_and(|held| held.revision() > revision)
        };
        if held.as_ref().is_some_and(stays) || shared.set(bytes, state) {
            return;
        }
    }
}

/// Returns the stored list; one that this module cannot read counts as none, and tokens wait for the next push.
pub fn load(shared: &impl SharedValue) -> Option<Arc<RecentList>> {
    let (held, _) = shared.get();
    RecentList::decode(&held?).ok().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asp_proto::snapshot::RecentRevocations;
    use prost::Message;
    use std::cell::{Cell, RefCell};

    /// Shared data in which another VM writes `others` just before each write.
    #[derive(Default)]
    struct Memory {
        value: RefCell<Option<Vec<u8>>>,
        state: Cell<u32>,
        others: RefCell<Vec<Vec<u8>>>,
    }

    impl SharedValue for Memory {
        fn get(&self) -> (Option<Vec<u8>>, Option<u32>) {
            (self.value.borrow().clone(), Some(self.state.get()))
        }
        fn set(&self, value: &[u8], state: Option<u32>) -> bool {
            if let Some(other) = self.others.borrow_mut().pop() {
                *self.value.borrow_mut() = Some(other);
                self.state.set(self.state.get() + 1);
            }
            let fits = state == Some(self.state.get());
            if fits {
                *self.value.borrow_mut() = Some(value.to_vec());
                self.state.set(self.state.get() + 1);
            }
            fits
        }
    }

    fn list(revision: u64) -> Vec<u8> {
        RecentRevocations { revision, until: 1, ..RecentRevocations::default() }.encode_to_vec()
    }

    fn revision(memory: &Memory) -> Option<u64> {
        load(memory).map(|recent| recent.revision())
    }

    #[test]
    fn the_highest_revision_stays() {
        let memory = Memory::default();
        assert_eq!(revision(&memory), None);
        for (put, stays) in [(5, 5), (4, 5), (6, 6), (6, 6)] {
            keep(&memory, &list(put), put);
            assert_eq!(revision(&memory), Some(stays), "{put}");
        }
    }

    #[test]
    fn a_list_that_another_puts_in_meanwhile_is_lost_only_to_a_newer_one() {
        for (other, stays) in [(4, 5), (6, 6)] {
            let memory = Memory { others: RefCell::new(vec![list(other)]), ..Memory::default() };
            keep(&memory, &list(5), 5);
            assert_eq!(revision(&memory), Some(stays), "{other}");
        }
        let memory = Memory { others: RefCell::new(vec![list(1); 1000]), ..Memory::default() };
        keep(&memory, &list(5), 5);
        assert_eq!(revision(&memory), Some(1));
    }

    #[test]
    fn what_cannot_be_read_is_no_list_and_is_replaced() {
        let memory = Memory { value: RefCell::new(Some(b"\xff".to_vec())), ..Memory::default() };
        assert_eq!(revision(&memory), None);
        keep(&memory, &list(1), 1);
        assert_eq!(revision(&memory), Some(1));
    }
}
