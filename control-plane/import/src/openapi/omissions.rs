//! Parts of a document that are left out: whole operations, and members of those that become tools.
//!
//! Keeps true: every part is in the report; the printed output groups operations with the same reason in one line.

use super::values::one_line;
use crate::report::ImportReport;

/// Maximum number of operations named in a printed line; further ones are counted.
const NAMED: usize = 3;

/// Parts that were left out, in the document's order.
#[derive(Default)]
pub(super) struct Omissions {
    /// Reasons, each with the operations as `method /path`.
    operations: Vec<(String, Vec<String>)>,
    /// Members, each with the names of the tools.
    parts: Vec<(String, Vec<String>)>,
}

impl Omissions {
    /// Adds an operation that does not become a tool.
    pub(super) fn operation(&mut self, place: &str, why: &str) {
        add(&mut self.operations, why, place);
    }

    /// Adds a part of a tool that has no meaning here.
    pub(super) fn part(&mut self, tool: &str, what: &str) {
        add(&mut self.parts, what, tool);
    }

    /// Returns the number of operations that do not become tools.
    pub(super) fn operations(&self) -> usize {
        self.operations.iter().map(|(_, places)| places.len()).sum()
    }

    /// Returns everything, one a line.
    pub(super) fn lines(&self) -> String {
        let operations = self
            .operations
            .iter()
            .flat_map(|(why, places)| places.iter().map(move |place| format!("left out: {place}: {why}\n")));
        let parts = self
            .parts
            .iter()
            .flat_map(|(what, tools)| tools.iter().map(move |tool| format!("note: {tool}: {what}\n")));
        operations.chain(parts).collect()
    }

    pub(super) fn print(&self, report: &mut ImportReport) {
        for (kind, entries) in [("left out", &self.operations), ("note", &self.parts)] {
            for (text, names) in entries {
                report.grouped(&line(kind, text, names), kind, (text.as_str(), names.as_slice()));
            }
        }
        if self.operations.iter().chain(&self.parts).any(|(_, names)| names.len() > NAMED) {
            report.remark("`--report FILE` writes each of these with every operation");
        }
    }
}

fn line(kind: &str, text: &str, names: &[String]) -> String {
    let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{kind}: {named}{more}: {text}")
}

/// Adds a name, as one line: a document's ids and paths may hold anything, such as a line that looks like one of this command.
fn add(entries: &mut Vec<(String, Vec<String>)>, text: &str, name: &str) {
    let name = one_line(name);
    match entries.iter_mut().find(|(known, _)| known == text) {
        Some((_, names)) => names.push(name),
        None => entries.push((text.to_owned(), vec![name])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_of_many_operations_is_one_line_and_all_of_it_is_in_the_report() {
        let mut report = Omissions::default();
        for n in 1..=5 {
            report.part(&format!("t{n}"), "its servers are left out");
        }
        report.operation("get /a", "it has no end");
        assert_eq!(
            line("note", &report.parts[0].0, &report.parts[0].1),
            "note: t1, t2, t3 and 2 more: its servers are left out"
        );
        assert_eq!((report.operations(), report.lines().lines().count()), (1, 6));
        assert!(report.lines().contains("note: t5: its servers are left out\n"));
        assert!(report.lines().starts_with("left out: get /a: it has no end\n"));
    }

    #[test]
    fn a_name_of_several_lines_forges_no_line_of_the_output() {
        let mut report = Omissions::default();
        report.part("a\nnext: asp deploy \u{202e}elsewhere", "it is large");
        assert_eq!(report.lines(), "note: a next: asp deploy elsewhere: it is large\n");
    }
}
