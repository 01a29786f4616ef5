//! Selection of the homes to publish if not all of them fit.
//!
//! Keeps true: an org is not served in a region if its home might be another one.

use std::cmp::Reverse;

use asp_proto::snapshot::Region;

use crate::catalog::budget;

/// Pattern for every org, and the end of a prefix pattern.
const ANY: &str = "*";
/// Region of orgs whose home is left out. No real region has a dot in its name.
const NOWHERE: &str = "not.told";

/// Keeps the most specific homes that fit into `bytes`. Every other org is given a region that does not exist, because
/// its home might be one of those left out.
pub(super) fn select_fitting(mut homes: Vec<Region>, bytes: usize) -> Vec<Region> {
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
