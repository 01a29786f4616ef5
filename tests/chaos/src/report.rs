//! The table and the raw figures of a whole run.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use asp_e2e::report;
use asp_e2e::spread::percentile;
use serde::Serialize;

use crate::sheet::{Bound, Sheet};

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// UTC, e.g. `20261121T235900Z`.
    time: String,
    repeats: usize,
    processors: usize,
    /// Load average of the last minute when the run began: above the processors, something else ran here.
    load_before: String,
    pub rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub name: String,
    pub repeats: Vec<Sheet>,
}

impl Row {
    pub(crate) fn new(name: String) -> Row {
        Row { name, repeats: Vec::new() }
    }

    fn missed(&self) -> bool {
        self.repeats.is_empty() || self.repeats.iter().any(Sheet::missed)
    }

    /// The row's lines of the table: one a figure.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        let verdict = if self.missed() { "**MISSED**" } else { "ok" };
        // Err: writing to a string cannot fail.
        let _ = writeln!(text, "| **{}** | | | | {verdict} |", self.name);
        for (name, bound, values) in self.figures() {
            let show =
                |share| percentile(&values, share).map_or(String::new(), |value| format!("{value:.1}"));
            let verdict = match bound {
                Bound::None => "",
                _ if values.iter().all(|value| bound.holds(*value)) => "ok",
                _ => "MISSED",
            };
            let median = show(0.5);
            let range = format!("{}..{}", show(0.0), show(1.0));
            let _ = writeln!(text, "| {name} | {} | {median} | {range} | {verdict} |", bound.text());
        }
        let mut faults: Vec<&String> = self.repeats.iter().flat_map(|sheet| &sheet.faults).collect();
        faults.sort();
        faults.dedup();
        for fault in faults {
            let fault = fault.replace('\n', " ").replace('|', "/");
            let _ = writeln!(text, "| {fault} | | | | MISSED |");
        }
        text
    }

    /// Each figure with its values over the repeats, in the order they were first taken.
    fn figures(&self) -> Vec<(&str, Bound, Vec<f64>)> {
        let mut found: Vec<(&str, Bound, Vec<f64>)> = Vec::new();
        for figure in self.repeats.iter().flat_map(|sheet| &sheet.figures) {
            match found.iter_mut().find(|(name, ..)| *name == figure.name) {
                Some((_, _, values)) => values.push(figure.value),
                None => found.push((&figure.name, figure.bound, vec![figure.value])),
            }
        }
        found
    }
}

impl Report {
    pub(crate) fn new(repeats: usize) -> Report {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Report {
            time: report::timestamp(),
            repeats,
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            load_before: load.split_whitespace().next().unwrap_or_default().to_owned(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn missed(&self) -> bool {
        self.rows.is_empty() || self.rows.iter().any(Row::missed)
    }

    /// Writes `<time>.json` and `<time>.md` into `directory` and prints the latter.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        report::write(directory, &self.time, self, &self.render())
    }

    fn render(&self) -> String {
        let Report { time, repeats, processors, load_before, .. } = self;
        let mut text = format!(
            "# Faults of the plugin runtime, {time}\n\n\
             {repeats} repeats, {processors} processors, load average before {load_before}. A bound holds for every \
             repeat.\n\n| figure | bound | median | range | |\n|---|---|---|---|---|\n"
        );
        self.rows.iter().for_each(|row| text.push_str(&row.render()));
        let missed: Vec<&str> =
            self.rows.iter().filter(|row| row.missed()).map(|row| row.name.as_str()).collect();
        match missed.is_empty() {
            true => text.push_str("\nEvery bound held.\n"),
            false => {
                // Err: writing to a string cannot fail.
                let _ = writeln!(text, "\nMISSED: {}", missed.join("; "));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_repeat_makes_the_row_a_miss_with_its_range() {
        let mut row = Row::new("F0".to_owned());
        for value in [1.0, 9.0] {
            let mut sheet = Sheet::default();
            sheet.at_most("took, ms", value, 5.0);
            row.repeats.push(sheet);
        }
        let text = row.render();
        assert!(row.missed() && text.contains("| took, ms | <= 5 | 1.0 | 1.0..9.0 | MISSED |"), "{text}");
    }

    #[test]
    fn a_row_without_repeats_and_a_report_without_rows_have_proved_nothing() {
        assert!(Row::new("F0".to_owned()).missed());
        assert!(Report::new(1).missed());
    }
}
