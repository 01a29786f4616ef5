//! Statistics of a few runs: the median, the range, percentiles.

use serde::Serialize;

/// The median and the range of one figure over the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// `None` without a value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let lower = if sorted.len().is_multiple_of(2) { *sorted.get(middle - 1)? } else { upper };
        Some(Spread { median: (lower + upper) / 2.0, min: *sorted.first()?, max: *sorted.last()? })
    }

    /// `median (min..max)` with that many decimals.
    pub fn text(&self, decimals: usize) -> String {
        format!("{:.decimals$} ({:.decimals$}..{:.decimals$})", self.median, self.min, self.max)
    }
}

/// A spread, or a dash.
pub fn cell(spread: Option<Spread>, decimals: usize) -> String {
    spread.map_or("-".to_string(), |spread| spread.text(decimals))
}

/// The value below or at which `share` of the values lie (nearest rank).
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_or_between_the_two() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn the_last_of_fifty_is_their_99th_percentile() {
        let values: Vec<f64> = (1..=50).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), Some(50.0));
        assert_eq!(percentile(&values, 0.5), Some(25.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
