//! How long a plugin's next worker waits after one has crashed.
//!
//! A pure state machine: it is told the time and the chance. Keeps true: delays double from `FIRST` to `CAP`
//! and start over once a worker has been healthy for `HEALTHY`.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
const CAP: Duration = Duration::from_secs(30);
/// A worker that lived this long was not part of a crash loop.
const HEALTHY: Duration = Duration::from_secs(60);
/// Plus or minus this share, so that plugins that died together do not return together.
const JITTER: f64 = 0.2;

/// The delay that the next crash costs.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    pub fn new() -> Backoff {
        Backoff { next: FIRST }
    }

    /// Notes that a worker crashed after it had `lived`, and returns how long the next start waits.
    /// `chance` is a random number in 0..1.
    pub fn crashed(&mut self, lived: Duration, chance: f64) -> Duration {
        if lived >= HEALTHY {
            self.next = FIRST;
        }
        let delay = self.next;
        self.next = (delay * 2).min(CAP);
        delay.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance.clamp(0.0, 1.0))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: f64 = 0.5;

    #[test]
    fn delays_double_to_the_cap_and_start_over_after_a_healthy_minute() {
        let mut backoff = Backoff::new();
        let short = Duration::from_secs(1);
        let delays: Vec<u128> = (0..10).map(|_| backoff.crashed(short, MIDDLE).as_millis()).collect();
        assert_eq!(delays, [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        assert_eq!(backoff.crashed(HEALTHY, MIDDLE).as_millis(), 250);
        assert_eq!(backoff.crashed(short, MIDDLE).as_millis(), 500);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        for (chance, expected) in [(0.0, 200), (1.0, 300), (7.0, 300), (-1.0, 200)] {
            assert_eq!(Backoff::new().crashed(Duration::ZERO, chance).as_millis(), expected);
        }
    }
}
