//! When a plugin's workers crash so often that it is set aside.
//!
//! A pure state machine with a given clock. Keeps true: after `CRASHES` crashes within `WINDOW` no worker
//! starts for `REST`; the start after it is a trial, and one more crash within `WINDOW` sets it aside again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

const CRASHES: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
/// Long enough for a person to see it; a new version of the plugin is not affected.
const REST: Duration = Duration::from_secs(300);

/// The crashes of one plugin version.
#[derive(Debug, Default)]
pub struct Quarantine {
    /// At most `CRASHES`, oldest first.
    crashes: VecDeque<Instant>,
    until: Option<Instant>,
    /// After a rest, until a window has passed without a crash.
    trial: Option<Instant>,
}

impl Quarantine {
    /// Notes a crash. Returns whether the plugin was set aside by it.
    pub fn crashed(&mut self, now: Instant) -> bool {
        self.crashes.push_back(now);
        while self.crashes.len() > CRASHES {
            self.crashes.pop_front();
        }
        let flapping = self.crashes.len() == CRASHES
            && self.crashes.front().is_some_and(|first| now.duration_since(*first) <= WINDOW);
        let failed_trial = self.trial.is_some_and(|since| now.duration_since(since) <= WINDOW);
        if !flapping && !failed_trial {
            return false;
        }
        self.crashes.clear();
        self.until = Some(now + REST);
        self.trial = None;
        true
    }

    /// How long the plugin stays set aside; `None` when it may run.
    pub fn remaining(&mut self, now: Instant) -> Option<Duration> {
        let until = self.until?;
        if now < until {
            return Some(until - now);
        }
        self.until = None;
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
        let (mut quarantine, start) = (Quarantine::default(), Instant::now());
        for second in 0..4 {
            assert!(!quarantine.crashed(start + seconds(second)));
        }
        assert_eq!(quarantine.remaining(start + seconds(4)), None);
        assert!(quarantine.crashed(start + seconds(60)));
        assert_eq!(quarantine.remaining(start + seconds(61)), Some(REST - seconds(1)));
    }

    #[test]
    fn crashes_further_apart_do_not_count() {
        let (mut quarantine, start) = (Quarantine::default(), Instant::now());
        for crash in 0..100 {
            assert!(!quarantine.crashed(start + seconds(crash * 16)), "crash {crash}");
        }
    }

    #[test]
    fn the_trial_after_a_rest_ends_with_one_crash() {
        let (mut quarantine, start) = (Quarantine::default(), Instant::now());
        for second in 0..5 {
            quarantine.crashed(start + seconds(second));
        }
        let later = start + seconds(4) + REST;
        assert_eq!(quarantine.remaining(later), None);
        assert!(quarantine.crashed(later + seconds(1)));
        let again = later + seconds(1) + REST;
        assert_eq!(quarantine.remaining(again), None);
        assert!(!quarantine.crashed(again + seconds(61)), "it was healthy for a minute");
    }
}
