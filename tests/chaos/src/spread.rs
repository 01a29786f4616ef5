//! Percentiles.

/// The value below or at which `share` of the values lie (nearest rank).
pub(crate) fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank within a list"
    )]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_fifty_is_their_99th_percentile() {
        let values: Vec<f64> = (1..=50).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), Some(50.0));
        assert_eq!(percentile(&values, 0.5), Some(25.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
