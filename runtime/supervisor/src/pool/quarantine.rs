//! Quarantine of a plugin whose workers crash too often, for all tenants.
//!
//! A pure state machine with a given clock. Keeps true: a plugin is quarantined for `REST` after `CRASHES` crashes
//! within `WINDOW` that are its own, or that are certain to be of at least `TENANTS` tenants; never for those of fewer
//! tenants. The start after a quarantine is a trial: one more crash of the plugin's own within `WINDOW` quarantines it
//! again, whereas tenants have to crash it as often as before, so that none of them can keep it out of service.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::refusal::Refusal;

const CRASHES: usize = 5;
const TENANTS: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
/// Duration of a quarantine, long enough for an operator to see it; a new version of the plugin is not affected.
const REST: Duration = Duration::from_secs(300);
/// Duration of a quarantine after a failed start in development: a call makes one attempt, and soon another call may.
const FAILED_START_REST: Duration = Duration::from_secs(30);
/// Maximum number of remembered crashes; a tenant is quarantined long before it alone has caused so many in a window.
const REMEMBERED: usize = 64;

/// The crashes of one plugin version.
#[derive(Debug, Default)]
pub struct Quarantine {
    /// Crashes with their tenant, oldest first; `None`: no call was ever in that worker.
    crashes: VecDeque<(Instant, Option<String>)>,
    until: Option<Instant>,
    /// Whether the quarantine is due to a failed start.
    failed_start: bool,
    /// Start of the trial after a quarantine, which lasts for one window.
    trial: Option<Instant>,
}

impl Quarantine {
    /// Records a crash that is certain to be of `tenant`, or otherwise of the plugin itself. Returns whether it starts
    /// a quarantine.
    pub fn record_crash(&mut self, tenant: Option<&str>, now: Instant) -> bool {
        self.crashes.push_back((now, tenant.map(str::to_owned)));
        self.crashes.retain(|(at, _)| now.duration_since(*at) <= WINDOW);
        while self.crashes.len() > REMEMBERED {
            self.crashes.pop_front();
        }
        let failed_trial =
            tenant.is_none() && self.trial.is_some_and(|since| now.duration_since(since) <= WINDOW);
        if !self.is_flapping() && !failed_trial {
            return false;
        }
        self.crashes.clear();
        self.until = Some(now + REST);
        self.trial = None;
        true
    }

    /// Starts a quarantine after a failed start, so that it is not repeated. For development.
    pub fn record_failed_start(&mut self, now: Instant) {
        self.until = Some(now + FAILED_START_REST);
        self.failed_start = true;
    }

    /// Returns the reason for refusing calls; `None` when the plugin may run.
    pub fn refusal(&mut self, now: Instant) -> Option<Refusal> {
        let rest = self.remaining(now)?;
        Some(if self.failed_start { Refusal::FailedStart } else { Refusal::Quarantined { rest } })
    }

    fn is_flapping(&self) -> bool {
        let tenants: Vec<&str> = self.crashes.iter().filter_map(|(_, tenant)| tenant.as_deref()).collect();
        let own = self.crashes.len() - tenants.len();
        let distinct: BTreeSet<&str> = tenants.iter().copied().collect();
        own >= CRASHES || (tenants.len() >= CRASHES && distinct.len() >= TENANTS)
    }

    /// Returns the remaining quarantine; `None` when the plugin may run.
    pub fn remaining(&mut self, now: Instant) -> Option<Duration> {
        let until = self.until?;
        if now < until {
            return Some(until - now);
        }
        self.until = None;
        self.failed_start = false;
        self.trial = Some(now);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn five_crashes_in_a_minute_set_a_plugin_aside() {
        let mut quarantine = Quarantine::default();
        let start = Instant::now();
        for second in 0..4 {
            assert!(!quarantine.record_crash(None, start + seconds(second)));
        }
        assert_eq!(quarantine.remaining(start + seconds(4)), None);
        assert!(quarantine.record_crash(None, start + seconds(60)));
        assert_eq!(quarantine.remaining(start + seconds(61)), Some(REST - seconds(1)));
    }

    #[test]
    fn crashes_further_apart_do_not_count() {
        let mut quarantine = Quarantine::default();
        let start = Instant::now();
        for crash in 0..100 {
            assert!(!quarantine.record_crash(None, start + seconds(crash * 16)), "crash {crash}");
        }
    }

    #[test]
    fn the_crashes_of_two_tenants_never_set_it_aside_and_a_third_one_does() {
        let mut quarantine = Quarantine::default();
        let start = Instant::now();
        for crash in 0..200 {
            let tenant = ["a", "b"][crash % 2];
            assert!(!quarantine.record_crash(Some(tenant), start), "crash {crash}");
        }
        assert!(quarantine.record_crash(Some("c"), start));
    }

    #[test]
    fn the_trial_after_a_rest_ends_with_one_crash_of_its_own() {
        let mut quarantine = Quarantine::default();
        let start = Instant::now();
        for second in 0..5 {
            quarantine.record_crash(None, start + seconds(second));
        }
        let later = start + seconds(4) + REST;
        assert_eq!(quarantine.remaining(later), None);
        assert!(quarantine.record_crash(None, later + seconds(1)));
        let again = later + seconds(1) + REST;
        assert_eq!(quarantine.remaining(again), None);
        assert!(!quarantine.record_crash(None, again + seconds(61)), "it was healthy for a minute");
    }

    #[test]
    fn one_tenant_cannot_end_the_trial() {
        let mut quarantine = Quarantine::default();
        let start = Instant::now();
        for second in 0..5 {
            quarantine.record_crash(None, start + seconds(second));
        }
        let later = start + seconds(4) + REST;
        assert_eq!(quarantine.remaining(later), None);
        for crash in 0..20 {
            assert!(!quarantine.record_crash(Some("a"), later + seconds(1)), "crash {crash}");
        }
    }
}
