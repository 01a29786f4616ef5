//! The report of a check: lines to paste, grouped by purpose, with marks above them, and notes.

use asp_command::print;
use serde::Serialize;
use serde_json::{Value, json};

/// Purpose of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Section {
    /// Names of settings.
    Names,
    Servers,
    ControlSettings,
    GatewaySettings,
    RuntimeSettings,
    Issuers,
    Offers,
}

impl Section {
    const ALL: [Section; 7] = [
        Section::Names,
        Section::Servers,
        Section::ControlSettings,
        Section::GatewaySettings,
        Section::RuntimeSettings,
        Section::Issuers,
        Section::Offers,
    ];

    const fn title(self) -> &'static str {
        match self {
            Section::Names => "names of settings: correct them, and run the check again",
            Section::Servers => "servers: apply them again to the control plane without these faults",
            Section::ControlSettings => {
                "settings of the control plane: put them in place of the present ones before this version starts"
            }
            Section::GatewaySettings => {
                "settings of the gateway: put them in place of the present ones before this version starts"
            }
            Section::RuntimeSettings => {
                "settings of the runtime: put them in place of the present ones before this version starts"
            }
            Section::Issuers => "issuers of the control plane: store or write them before callers need them",
            Section::Offers => {
                "offers: store them at the control plane as soon as this version runs (or `asp upgrade check --write`)"
            }
        }
    }
}

/// A line to paste; if it is a comment, something to act upon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReportLine {
    pub(super) line: String,
    /// Ways in which the line may grant more than was intended.
    pub(super) marks: Vec<String>,
}

impl ReportLine {
    pub(super) fn plain(line: impl Into<String>) -> ReportLine {
        ReportLine { line: line.into(), marks: Vec::new() }
    }
}

/// Everything that a check found.
#[derive(Debug, Default)]
pub(super) struct UpgradeReport {
    items: Vec<(Section, ReportLine)>,
    notes: Vec<String>,
}

impl UpgradeReport {
    pub(super) fn add(&mut self, section: Section, items: Vec<ReportLine>) {
        self.items.extend(items.into_iter().map(|item| (section, item)));
    }

    pub(super) fn note(&mut self, notes: Vec<String>) {
        self.notes.extend(notes);
    }

    /// Whether nothing is left to do; notes are only information.
    pub(super) fn is_done(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn print(&self) {
        self.lines().iter().for_each(|line| print::line(line));
    }

    /// Returns the report for programs.
    pub(super) fn to_json(&self) -> Value {
        let item = |(section, item): &(Section, ReportLine)| json!({ "section": section, "line": item.line, "marks": item.marks });
        let items: Vec<Value> = self.items.iter().map(item).collect();
        json!({ "items": items, "notes": self.notes })
    }

    /// Returns the lines; everything that is not to be pasted is a shell comment.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for section in Section::ALL {
            let of_section = || self.items.iter().filter(|(of, _)| *of == section).map(|(_, item)| item);
            if of_section().next().is_none() {
                continue;
            }
            lines.push(format!("# === {}", section.title()));
            for item in of_section() {
                lines.extend(item.marks.iter().map(|mark| comment("check: ", mark)));
                lines.push(item.line.clone());
            }
        }
        if !self.notes.is_empty() {
            lines.push("# === to review; nothing of it stops a call".to_owned());
            lines.extend(self.notes.iter().map(|note| comment("", note)));
        }
        let marked = self.items.iter().filter(|(_, item)| !item.marks.is_empty()).count();
        lines.push(match self.items.len() {
            0 => "# nothing is left to do".to_owned(),
            count => format!("# {count} to do, {marked} of them to check first"),
        });
        lines
    }
}

/// Formats text of one or more lines as a comment, so that no text of a spec starts a line.
pub(super) fn comment(kind: &str, text: &str) -> String {
    format!("# {kind}{}", text.replace('\r', " ").replace('\n', "\n#   "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_for_programs_has_each_line_with_its_purpose_and_marks() {
        let mut report = UpgradeReport::default();
        let marks = vec!["it is offered to all".to_owned()];
        report.add(Section::ControlSettings, vec![ReportLine { line: "ASP_X=1".to_owned(), marks }]);
        report.note(vec!["look at it".to_owned()]);
        let item =
            json!({ "section": "controlSettings", "line": "ASP_X=1", "marks": ["it is offered to all"] });
        assert_eq!(report.to_json(), json!({ "items": [item], "notes": ["look at it"] }));
    }
}
