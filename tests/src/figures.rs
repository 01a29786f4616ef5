//! Figures that a control plane exports at `/metrics`, which it answers without its store.

use std::net::SocketAddr;

use crate::http1;
use anyhow::{Context, Result};

/// The sum of a gauge over those of its series that have this label (`name="value"`), or over all where it is empty.
pub async fn gauge(admin: SocketAddr, name: &str, label: &str) -> Result<f64> {
    let text = http1::get(admin, "/metrics", &[]).await?.text();
    sum(&text, name, label).with_context(|| format!("{admin} exports no {name} with {label:?}"))
}

/// `None` where there is no such series, or one has no number.
fn sum(text: &str, name: &str, label: &str) -> Option<f64> {
    let mut found = None;
    for line in text.lines() {
        let Some((labels, value)) = line.strip_prefix(name).and_then(|rest| rest.rsplit_once(' ')) else {
            continue;
        };
        let is_named = labels.is_empty() || labels.starts_with('{');
        if is_named && labels.contains(label) {
            *found.get_or_insert(0.0) += value.parse::<f64>().ok()?;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_the_sum_of_its_series() {
        let text = "# HELP open Open subscriptions\nopen{kind=\"edge\"} 2\nopen{kind=\"gateway\"} 3\nopened 9\nage 7\n";
        assert_eq!(sum(text, "open", ""), Some(5.0));
        assert_eq!(sum(text, "open", "kind=\"gateway\""), Some(3.0));
        assert_eq!(sum(text, "age", ""), Some(7.0));
        assert_eq!(sum(text, "open", "kind=\"none\""), None);
    }
}
