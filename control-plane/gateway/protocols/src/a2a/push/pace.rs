//! When a notification that was not received is sent again, and when it is given up.

use std::time::Duration;

/// Pause after the first failure; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Number of attempts, and time since the state or the last replay, after which a notification is a dead letter.
const MAX_ATTEMPTS: u32 = 100;
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Pause of a notification that finds no place, at least; its age is divided by this for a longer one.
const LEAST_CROWDED: Duration = Duration::from_millis(500);
const CROWDED_SHARE: u32 = 4;

/// Returns the pause after a number of attempts. `jitter`: 0 to 1, by which it is shortened to at least a half, so that
/// receivers that failed together are not tried together. `asked`: what the receiver asked for.
pub(super) fn pause(attempts: u32, jitter: f64, asked: Option<Duration>) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    let pause = FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE);
    let pause = pause.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0);
    pause.max(asked.unwrap_or_default().min(LONGEST_PAUSE))
}

/// Returns the pause of a notification that finds no place. It grows with the age, because each pause is a write to the store:
/// thousands at a receiver that never answers would otherwise keep the store busy for a day. `jitter` as above.
pub(super) fn crowded(age: Duration, jitter: f64) -> Duration {
    let pause = (age / CROWDED_SHARE).clamp(LEAST_CROWDED, LONGEST_PAUSE);
    pause.mul_f64(1.0 + jitter.clamp(0.0, 1.0))
}

/// Whether a notification is given up after a failure.
pub(super) fn is_dead(attempts: u32, age: Duration) -> bool {
    attempts >= MAX_ATTEMPTS || is_old(age)
}

/// Whether a notification is given up even if it was not tried.
pub(super) fn is_old(age: Duration) -> bool {
    age >= MAX_AGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_to_a_bound_and_has_jitter() {
        let seconds = |attempts, jitter| pause(attempts, jitter, None).as_secs_f64();
        assert_eq!([1, 2, 3, 4].map(|attempts| seconds(attempts, 0.0)), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!([1, 2, 3].map(|attempts| seconds(attempts, 1.0)), [0.5, 1.0, 2.0]);
        assert_eq!(
            [10, 11, 33, u32::MAX].map(|attempts| seconds(attempts, 0.0)),
            [512.0, 900.0, 900.0, 900.0]
        );
        assert_eq!(seconds(0, 0.0), 1.0);
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_pause_within_the_bound() {
        let asked = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pause(1, 0.0, asked(60)), Duration::from_secs(60));
        assert_eq!(pause(5, 0.0, asked(1)), Duration::from_secs(16));
        assert_eq!(pause(1, 0.0, asked(1_000_000)), LONGEST_PAUSE);
    }

    #[test]
    fn a_notification_that_finds_no_place_is_looked_at_ever_less_often() {
        let mut age = Duration::ZERO;
        let mut looks = 0;
        while age < MAX_AGE {
            age += crowded(age, 0.0);
            looks += 1;
        }
        assert!(looks < 150, "{looks} times in a day");
        let second = Duration::from_secs(1);
        assert_eq!([0.0, 1.0].map(|jitter| crowded(second, jitter)), [second / 2, second]);
        assert_eq!(crowded(MAX_AGE, 0.0), LONGEST_PAUSE);
    }

    #[test]
    fn a_notification_is_given_up_after_so_many_attempts_or_a_day() {
        assert!(!is_dead(1, Duration::ZERO) && !is_dead(99, Duration::from_secs(3600)));
        assert!(is_dead(100, Duration::ZERO) && is_dead(1, MAX_AGE));
        assert!(is_old(MAX_AGE) && !is_old(MAX_AGE / 2));
    }
}
