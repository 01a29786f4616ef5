//! Pauses between attempts that continue until one succeeds.

use std::time::Duration;

pub use backon::ExponentialBackoff as Pauses;
use backon::{BackoffBuilder, ExponentialBuilder};

/// Returns pauses that double from the first to the longest, without an end.
pub fn doubling(first: Duration, longest: Duration) -> Pauses {
    ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest).without_max_times().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_never_end() {
        let pauses = doubling(Duration::from_millis(25), Duration::from_millis(250));
        let pauses: Vec<u128> = pauses.map(|pause| pause.as_millis()).take(1_000).collect();
        assert_eq!(pauses[..5], [25, 50, 100, 200, 250]);
        assert!(pauses.len() == 1_000 && pauses[5..].iter().all(|pause| *pause == 250));
    }
}
