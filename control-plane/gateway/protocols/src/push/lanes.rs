//! The notifications that are on their way: how many at a time, to one host, for one org, and in all, and how many bytes.
//!
//! Keeps true: a host that did not answer quickly the last time gets one of an org at a time, so that slow hosts take few places,
//! and slow receivers of one org delay none of another at the same host; no org takes all places; what finds none is given back to
//! the outbox, and nothing waits here for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::quota::Counts;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Maximum number of notifications in all, of one org, and of one org to one host that answers quickly.
const WHOLE: usize = 1_024;
const PER_ORG: usize = 256;
const PER_HOST: usize = 16;
/// Maximum size of their results and bodies in bytes, in all and of one org; a body has a whole result, and is there until its
/// receiver has answered.
const WHOLE_BYTES: usize = 256 << 20;
const PER_ORG_BYTES: usize = 64 << 20;
/// Maximum number that wait for a place at such a host.
const WAITING_PER_HOST: usize = 64;
/// Maximum number of hosts that are known to answer quickly while nothing is sent to them, in all and of one org, which may have a
/// receiver at any number of names.
const KNOWN_HOSTS: usize = 4_096;
const KNOWN_PER_ORG: usize = 512;

/// Places of notifications.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<LaneTable>);

#[derive(Default)]
struct LaneTable {
    whole: usize,
    orgs: Counts<String>,
    bytes: usize,
    bytes_of_orgs: Counts<String>,
    /// Lanes by their name ([`lane_of`]), and their number by org.
    hosts: HashMap<String, Lane>,
    hosts_of_orgs: Counts<String>,
}

/// Notifications of one org to one host.
#[derive(Default)]
struct Lane {
    running: usize,
    waiting: usize,
    /// Whether the host answered quickly the last time.
    is_quick: bool,
    freed: Arc<Notify>,
}

impl Lane {
    fn most_running(&self) -> usize {
        if self.is_quick { PER_HOST } else { 1 }
    }

    fn has_place(&self) -> bool {
        let waiting = if self.is_quick { WAITING_PER_HOST } else { 0 };
        self.running + self.waiting < self.most_running() + waiting
    }
}

/// Place of one notification, given back on drop.
pub(crate) struct LanePlace {
    lanes: Arc<Lanes>,
    lane: String,
    org: String,
    is_running: bool,
    bytes: usize,
}

impl Lanes {
    /// Returns the number of free places in all.
    pub(crate) fn room(&self) -> usize {
        WHOLE.saturating_sub(self.0.lock().whole)
    }

    /// Takes a place for a notification of `org` to `host`; `None` if there is none.
    pub(crate) fn enter(self: &Arc<Lanes>, host: &str, org: &str) -> Option<LanePlace> {
        let mut table = self.0.lock();
        let lane = lane_of(host, org);
        let has_place = table.hosts.get(&lane).is_none_or(Lane::has_place);
        if !has_place || table.whole >= WHOLE || !table.orgs.add_within(PER_ORG, org.to_owned(), 1) {
            return None;
        }
        table.whole += 1;
        if !table.hosts.contains_key(&lane) {
            table.hosts_of_orgs.add(org.to_owned(), 1);
        }
        table.hosts.entry(lane.clone()).or_default().waiting += 1;
        Some(LanePlace { lanes: Arc::clone(self), lane, org: org.to_owned(), is_running: false, bytes: 0 })
    }
}

/// Returns the name of an org's lane to a host, which has no space.
fn lane_of(host: &str, org: &str) -> String {
    format!("{host} {org}")
}

impl LanePlace {
    /// Waits at most `longest` until the host may get the notification; returns whether it may.
    pub(crate) async fn start(&mut self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        loop {
            let freed = match self.try_start() {
                Ok(()) => return true,
                Err(freed) => freed,
            };
            if timeout_at(until, freed.notified()).await.is_err() {
                return false;
            }
        }
    }

    fn try_start(&mut self) -> Result<(), Arc<Notify>> {
        let mut table = self.lanes.0.lock();
        // Its lane stays while it has a place.
        let Some(lane) = table.hosts.get_mut(&self.lane) else { return Ok(()) };
        if lane.running >= lane.most_running() {
            return Err(lane.freed.clone());
        }
        lane.waiting -= 1;
        lane.running += 1;
        self.is_running = true;
        if lane.waiting > 0 && lane.running < lane.most_running() {
            // Several places may have become free at once.
            lane.freed.notify_one();
        }
        Ok(())
    }

    /// Takes more room for the result and the body of the notification; returns whether there is enough now.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        let mut table = self.lanes.0.lock();
        let fits = table.bytes.saturating_add(bytes) <= WHOLE_BYTES;
        if !fits || !table.bytes_of_orgs.add_within(PER_ORG_BYTES, self.org.clone(), bytes) {
            return false;
        }
        table.bytes += bytes;
        self.bytes += bytes;
        true
    }

    /// Records whether the host answered quickly.
    pub(crate) fn note(&self, is_quick: bool) {
        if let Some(lane) = self.lanes.0.lock().hosts.get_mut(&self.lane) {
            lane.is_quick = is_quick;
        }
    }
}

impl Drop for LanePlace {
    fn drop(&mut self) {
        let mut table = self.lanes.0.lock();
        table.whole -= 1;
        table.orgs.remove(&self.org, 1);
        table.bytes -= self.bytes;
        table.bytes_of_orgs.remove(&self.org, self.bytes);
        let is_crowded =
            table.hosts.len() > KNOWN_HOSTS || table.hosts_of_orgs.get(&self.org) > KNOWN_PER_ORG;
        let Some(lane) = table.hosts.get_mut(&self.lane) else { return };
        if self.is_running {
            lane.running -= 1;
        } else {
            lane.waiting -= 1;
        }
        if lane.running + lane.waiting == 0 && (is_crowded || !lane.is_quick) {
            table.hosts.remove(&self.lane);
            table.hosts_of_orgs.remove(&self.org, 1);
        } else {
            lane.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[tokio::test(start_paused = true)]
    async fn a_host_gets_more_at_a_time_once_it_has_answered_quickly() {
        let lanes = Arc::new(Lanes::default());
        let mut first = lanes.enter("a", "acme").unwrap();
        assert!(first.start(NOW).await);
        assert!(lanes.enter("a", "acme").is_none(), "one until it has answered");
        assert!(lanes.enter("b", "acme").is_some());
        first.note(true);
        drop(first);
        let mut places = Vec::new();
        for _ in 0..PER_HOST + WAITING_PER_HOST {
            places.push(lanes.enter("a", "acme").unwrap());
        }
        assert!(lanes.enter("a", "acme").is_none());
        for place in &mut places[..PER_HOST] {
            assert!(place.start(NOW).await);
        }
        let mut last = places.pop().unwrap();
        assert!(!last.start(Duration::from_secs(5)).await, "the host has enough");
        let slow = places.remove(0);
        slow.note(false);
        drop(slow);
        assert!(!last.start(Duration::from_secs(5)).await, "and is slow by now");
        places.clear();
        assert!(last.start(NOW).await);
        drop(last);
        assert_eq!((lanes.room(), lanes.0.lock().hosts.len()), (WHOLE, 0), "no slow host is remembered");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_notification_starts_when_another_one_ends() {
        let lanes = Arc::new(Lanes::default());
        lanes.enter("a", "acme").unwrap().note(true);
        let mut running = Vec::new();
        for _ in 0..PER_HOST {
            let mut place = lanes.enter("a", "acme").unwrap();
            assert!(place.start(NOW).await);
            running.push(place);
        }
        let mut waiting = [lanes.enter("a", "acme").unwrap(), lanes.enter("a", "acme").unwrap()];
        let [one, other] = &mut waiting;
        let freeing = async { running.truncate(PER_HOST - 2) };
        let long = Duration::from_secs(60);
        let (one, other, ()) = tokio::join!(one.start(long), other.start(long), freeing);
        assert!(one && other);
    }

    /// Invariant I-4.
    #[test]
    fn bodies_are_bounded_of_an_org_and_in_all() {
        let lanes = Arc::new(Lanes::default());
        let enter = |org: &str, n: usize| lanes.enter(&format!("{org}-{n}"), org).unwrap();
        let half = PER_ORG_BYTES / 2;
        let mut places = [enter("a", 0), enter("a", 1), enter("a", 2)];
        assert_eq!(places.each_mut().map(|place| place.hold(half)), [true, true, false]);
        let mut others: Vec<LanePlace> = ["b", "c", "d", "e"].map(|org| enter(org, 0)).into();
        let held: Vec<bool> = others.iter_mut().map(|place| place.hold(PER_ORG_BYTES)).collect();
        assert_eq!(held, [true, true, true, false]);
        let mut last = places.into_iter().next_back().unwrap();
        assert!(last.hold(half), "the others are gone");
        drop((last, others));
        let table = lanes.0.lock();
        assert_eq!((table.bytes, table.whole), (0, 0));
    }

    /// Many receivers of different callers are at one host, such as that of a product with webhooks.
    #[tokio::test(start_paused = true)]
    async fn a_host_that_is_slow_for_one_org_is_not_for_another() {
        let lanes = Arc::new(Lanes::default());
        lanes.enter("a", "globex").unwrap().note(true);
        let mut slow = lanes.enter("a", "acme").unwrap();
        assert!(slow.start(NOW).await && lanes.enter("a", "acme").is_none());
        slow.note(false);
        let mut places: Vec<LanePlace> = (0..PER_HOST).map_while(|_| lanes.enter("a", "globex")).collect();
        assert_eq!(places.len(), PER_HOST);
        for place in &mut places {
            assert!(place.start(NOW).await);
        }
    }

    /// Invariant I-4.
    #[test]
    fn the_hosts_of_one_org_displace_none_of_another() {
        let lanes = Arc::new(Lanes::default());
        let quick = |host: &str, org: &str| lanes.enter(host, org).unwrap().note(true);
        for n in 0..KNOWN_HOSTS + 9 {
            quick(&format!("{n}.example"), "acme");
        }
        quick("hooks.example", "globex");
        let table = lanes.0.lock();
        assert_eq!(table.hosts_of_orgs.get("acme"), KNOWN_PER_ORG);
        assert_eq!(table.hosts.len(), KNOWN_PER_ORG + 1);
        assert!(table.hosts[&lane_of("hooks.example", "globex")].is_quick);
    }

    /// Invariant I-4.
    #[test]
    fn no_org_takes_all_places() {
        let lanes = Arc::new(Lanes::default());
        let take = |org: &str| -> Vec<LanePlace> {
            (0..2 * WHOLE).map_while(|n| lanes.enter(&format!("{org}-{n}"), org)).collect()
        };
        let acme = take("acme");
        assert_eq!(acme.len(), PER_ORG);
        let others: Vec<Vec<LanePlace>> = ["b", "c", "d", "e"].into_iter().map(take).collect();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [PER_ORG, PER_ORG, PER_ORG, 0]);
        assert_eq!(lanes.room(), 0);
        drop(others);
        drop(acme);
        assert_eq!(lanes.room(), WHOLE);
    }
}
