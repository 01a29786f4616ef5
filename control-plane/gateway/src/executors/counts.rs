//! How many of each there are, without an entry for what there is none of.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// One of several is one less; the last takes the entry with it.
pub(super) fn less<K: Eq + Hash + Borrow<Q>, Q: Eq + Hash + ?Sized>(counts: &mut HashMap<K, usize>, of: &Q) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}
