//! What one repeat of a row measured, and the bounds it is held to.
//!
//! Keeps true: a bound that was not measured is a miss, never a pass.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// For the reader; nothing is asserted.
    None,
}

/// One figure; its unit is part of its name.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub name: String,
    pub value: f64,
    pub bound: Bound,
}

/// The figures of one repeat, in the order they were taken.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sheet {
    pub figures: Vec<Figure>,
    /// What did not happen at all, or happened otherwise than it must.
    pub faults: Vec<String>,
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(limit) => value <= limit,
            Bound::AtLeast(limit) => value >= limit,
            Bound::None => true,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Bound::AtMost(limit) => format!("<= {limit}"),
            Bound::AtLeast(limit) => format!(">= {limit}"),
            Bound::None => String::new(),
        }
    }
}

impl Sheet {
    pub(crate) fn at_most(&mut self, name: &str, value: f64, limit: f64) {
        self.figures.push(Figure { name: name.to_owned(), value, bound: Bound::AtMost(limit) });
    }

    pub(crate) fn at_least(&mut self, name: &str, value: f64, limit: f64) {
        self.figures.push(Figure { name: name.to_owned(), value, bound: Bound::AtLeast(limit) });
    }

    pub(crate) fn note(&mut self, name: &str, value: f64) {
        self.figures.push(Figure { name: name.to_owned(), value, bound: Bound::None });
    }

    pub(crate) fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    /// Notes a fault unless `found` is `wanted`.
    pub(crate) fn expect(&mut self, what: &str, found: &str, wanted: &str) {
        if found != wanted {
            self.fault(format!("{what} is {found:?}, not {wanted:?}"));
        }
    }

    pub(crate) fn missed(&self) -> bool {
        !self.faults.is_empty() || self.figures.iter().any(|figure| !figure.bound.holds(figure.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_over_its_bound_or_a_fault_is_a_miss() {
        let mut sheet = Sheet::default();
        sheet.at_most("a", 5.0, 5.0);
        sheet.at_least("b", 90.0, 90.0);
        sheet.note("c", f64::MAX);
        assert!(!sheet.missed());
        sheet.at_most("a", 5.1, 5.0);
        assert!(sheet.missed());
        let mut sheet = Sheet::default();
        sheet.expect("the cause", "oom", "oom");
        assert!(!sheet.missed());
        sheet.expect("the cause", "signal", "oom");
        assert!(sheet.missed());
    }
}
