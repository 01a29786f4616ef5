//! Homes of orgs and routes of requests, if not all of them fit.
//!
//! Keeps true: an org is not served in a region if its home might be another one, and a routed primitive is not
//! served by another pool.

use std::cmp::Reverse;

use asp_proto::snapshot::Region;
use asp_registry::CompiledServer;

use super::Builder;
use super::faults::misplaced;
use crate::catalog::budget;
use crate::catalog::fault::{Fault, HOMES_CUT, LAST_FORM, ROUTES_CLOSED};
use crate::placement;

/// Pattern for every org, and the end of a prefix pattern.
const ANY: &str = "*";
/// Region of orgs whose home is left out. No real region has a dot in its name.
const NOWHERE: &str = "not.told";

impl Builder {
    /// If homes exceed their budget, keeps the last complete set; if there is none, publishes as many as fit.
    pub(super) fn fit_homes(&mut self, homes: &mut Vec<Region>) -> Option<Fault> {
        let bytes = budget::bytes(homes);
        if bytes <= budget::HOMES.bytes {
            self.has_all_homes = true;
            return None;
        }
        let in_force = match self.has_all_homes {
            true => {
                homes.clone_from(&self.base.regions);
                LAST_FORM
            }
            false => {
                *homes = select_fitting(std::mem::take(homes), budget::HOMES.bytes);
                HOMES_CUT
            }
        };
        Some(misplaced("homes", bytes, &budget::HOMES, in_force))
    }

    /// Updates the routes. If they exceed their budget, keeps the last complete set; if there is none, publishes only
    /// the routes that close.
    pub(super) fn take_routes(&mut self) -> Option<Fault> {
        let servers: Vec<&CompiledServer> = self.servers.iter().map(|server| &**server).collect();
        let stored = &self.held.placement.routes;
        let mut routes = placement::routes(&servers, stored);
        let bytes = asp_registry::routes_bytes(&routes);
        let mut fault = None;
        if bytes <= budget::ROUTES.bytes {
            self.has_all_routes = true;
        } else if self.has_all_routes {
            return Some(misplaced("routes", bytes, &budget::ROUTES, LAST_FORM));
        } else {
            routes = placement::closed_routes(&servers, stored, budget::ROUTES.bytes);
            fault = Some(misplaced("routes", bytes, &budget::ROUTES, ROUTES_CLOSED));
        }
        if routes != self.routes {
            self.routes = routes;
            self.edge_is_stale = true;
        }
        fault
    }
}

/// Keeps the most specific homes that fit into `bytes`. Every other org is given a region that does not exist, because
/// its home might be one of those left out.
fn select_fitting(mut homes: Vec<Region>, bytes: usize) -> Vec<Region> {
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
