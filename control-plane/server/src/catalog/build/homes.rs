//! Which homes are told where there is no room for all.
//!
//! Keeps true: nobody is served here whose home might be elsewhere.

use std::cmp::Reverse;

use asp_proto::snapshot::Region;

use crate::catalog::budget;

/// Every org, and the end of a pattern.
const ANY: &str = "*";
/// The region of orgs whose home is not told: none has a dot in its name.
const NOWHERE: &str = "not.told";

/// Of homes that take more than `bytes` the most specific ones; of every other org it is said that it is at home nowhere,
/// because it might be so by one that is left out.
pub(super) fn that_fit(mut homes: Vec<Region>, bytes: usize) -> Vec<Region> {
    let nowhere = Region { org: ANY.into(), region: NOWHERE.into(), ..Region::default() };
    let mut left = bytes.saturating_sub(budget::bytes(std::slice::from_ref(&nowhere)));
    homes.retain(|home| home.org != ANY);
    homes.sort_by_cached_key(|home| {
        let prefix = home.org.strip_suffix(ANY).map(str::len);
        (prefix.is_some(), Reverse(prefix), home.org.clone())
    });
    let fitting = homes.iter().take_while(|home| {
        let room = left.checked_sub(budget::bytes(std::slice::from_ref(*home)));
        left = room.unwrap_or_default();
        room.is_some()
    });
    let fitting = fitting.count();
    homes.truncate(fitting);
    homes.push(nowhere);
    homes
}
