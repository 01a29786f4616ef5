//! Counts by key, without entries for zero.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Decrements a count; removes the entry when it reaches zero.
pub(super) fn less<K: Eq + Hash + Borrow<Q>, Q: Eq + Hash + ?Sized>(counts: &mut HashMap<K, usize>, of: &Q) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}
