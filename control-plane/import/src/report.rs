//! Report of an import: its lines for people and, with `--json`, one JSON object on standard output.
//!
//! Keeps true: what a person reads is in the object too; with `--json` nothing else is on standard output.

use std::collections::BTreeMap;
use std::path::Path;

use asp_command::failure::Failure;
use asp_command::print;
use asp_registry::Change;
use serde_json::{Map, Value, json};

/// Separator of an item and the reason in a line about a part that a spec cannot express.
const IS_LEFT_OUT: &str = " is left out: ";

/// List of the report. Each line for people opens with the words of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FindingList {
    LeftOut,
    Dropped,
    Renamed,
    Changed,
    Raised,
    Warnings,
    Errors,
    NeedsApproval,
    OperatorEntries,
    Notes,
}

/// Lists in the order of the object: the member, and the first words of its lines if lines are assigned by them.
const LISTS: [(FindingList, &str, Option<&str>); 10] = [
    (FindingList::LeftOut, "leftOut", Some("left out: ")),
    (FindingList::Dropped, "dropped", Some("dropped: ")),
    (FindingList::Renamed, "renamed", Some("renamed: ")),
    (FindingList::Changed, "changed", None),
    (FindingList::Raised, "raised", Some("raised: ")),
    (FindingList::Warnings, "warnings", Some("warning: ")),
    (FindingList::Errors, "errors", Some("error: ")),
    (FindingList::NeedsApproval, "needsApproval", None),
    (FindingList::OperatorEntries, "operatorEntries", None),
    (FindingList::Notes, "notes", Some("note: ")),
];

/// Findings by list.
type Findings = BTreeMap<FindingList, Vec<Value>>;

/// Part of the report about one server.
struct ServerSection {
    name: String,
    /// Name in a client's file.
    former: Option<String>,
    summary: Option<String>,
    directory: Option<String>,
    ids: Vec<String>,
    error: Option<String>,
    findings: Findings,
}

/// Lines of an import, printed as they are added, and the object for programs.
#[derive(Default)]
pub(super) struct ImportReport {
    is_json: bool,
    servers: Vec<ServerSection>,
    /// Whether lines belong to the last server.
    is_in_server: bool,
    findings: Findings,
    next: Vec<String>,
    error: Option<String>,
}

impl ImportReport {
    pub(super) fn new(is_json: bool) -> ImportReport {
        ImportReport { is_json, ..ImportReport::default() }
    }

    /// Begins the part about a server; `former` is its name in a client's file.
    pub(super) fn begin_server(&mut self, name: &str, former: Option<&str>) {
        self.is_in_server = true;
        self.servers.push(ServerSection {
            name: name.to_owned(),
            former: former.map(str::to_owned),
            summary: None,
            directory: None,
            ids: Vec::new(),
            error: None,
            findings: Findings::new(),
        });
    }

    /// Ends the part about a server; `error` is the reason if it is not imported.
    pub(super) fn end_server(&mut self, error: Option<&str>) {
        if let (Some(server), Some(error)) = (self.current(), error) {
            server.error.get_or_insert_with(|| error.to_owned());
        }
        self.is_in_server = false;
    }

    /// Prints a line for people alone.
    pub(super) fn remark(&self, text: &str) {
        match self.is_json {
            true => print::note(text),
            false => print::line(text),
        }
    }

    /// Prints a line and adds it to the list that its first words name, else to the notes.
    pub(super) fn line(&mut self, text: &str) {
        self.remark(text);
        let (list, finding) = read(text);
        self.add(list, finding);
    }

    /// Prints a line about several items that share a reason, and adds each to the list that `kind` names.
    pub(super) fn grouped(&mut self, line: &str, kind: &str, (reason, items): (&str, &[String])) {
        self.remark(line);
        for item in items {
            let (list, finding) = match kind {
                "left out" => (FindingList::LeftOut, json!({"item": item, "reason": reason})),
                _ => (FindingList::Notes, format!("{item}: {reason}").into()),
            };
            self.add(list, finding);
        }
    }

    /// Prints and adds a difference from the previous import.
    pub(super) fn change(&mut self, change: &Change) {
        let breaking = if change.breaking { " (breaks callers)" } else { "" };
        let what = if change.primitive.is_empty() { "server" } else { &change.primitive };
        self.remark(&format!("changed: {what}{}: {}{breaking}", change.path, change.message));
        let finding = json!({
            "primitive": change.primitive,
            "path": change.path,
            "message": change.message,
            "breaksCallers": change.breaking,
        });
        self.add(FindingList::Changed, finding);
    }

    /// Prints a line about the primitives whose calls need an approval, and adds their ids.
    pub(super) fn needs_approval(&mut self, line: &str, ids: &[String]) {
        self.remark(line);
        for id in ids {
            self.add(FindingList::NeedsApproval, id.as_str().into());
        }
    }

    /// Prints and adds an entry that the operator has to add.
    pub(super) fn operator_entry(&mut self, line: &str) {
        self.remark(line);
        self.add(FindingList::OperatorEntries, line.into());
    }

    /// Prints why nothing was written.
    pub(super) fn refuse(&mut self, reason: &str) {
        print::error(reason);
        match self.current() {
            Some(server) => server.error = Some(reason.to_owned()),
            None => self.error = Some(reason.to_owned()),
        }
    }

    /// Adds the files that were written for a server, and prints `summary`, which counts them for people.
    pub(super) fn add_files(&mut self, directory: &Path, ids: Vec<String>, summary: &str) {
        self.remark(&format!("{summary} in {}", directory.display()));
        if let Some(server) = self.current() {
            server.directory = Some(directory.display().to_string());
            server.summary = Some(summary.to_owned());
            server.ids = ids;
        }
    }

    /// Prints and adds the command that comes next.
    pub(super) fn next_step(&mut self, command: &str) {
        print::next_step(command);
        self.next.push(command.to_owned());
    }

    /// Prints the object if programs read it; `failure` is the failure of the import.
    pub(super) fn finish(&mut self, failure: Option<&Failure>) {
        self.end_server(failure.and_then(reason).as_deref());
        if self.error.is_none() && self.servers.is_empty() {
            self.error = failure.and_then(reason);
        }
        if self.is_json {
            print::json(&self.object());
        }
    }

    fn object(&self) -> Value {
        let servers: Vec<Value> = self.servers.iter().map(ServerSection::object).collect();
        let mut object = Map::new();
        object.insert("written".to_owned(), self.servers.iter().any(ServerSection::is_written).into());
        object.insert("servers".to_owned(), servers.into());
        insert(&mut object, &self.findings);
        object.insert("next".to_owned(), self.next.clone().into());
        object.insert("error".to_owned(), self.error.clone().into());
        Value::Object(object)
    }

    fn add(&mut self, list: FindingList, finding: Value) {
        let findings = match self.current() {
            Some(server) => &mut server.findings,
            None => &mut self.findings,
        };
        findings.entry(list).or_default().push(finding);
    }

    fn current(&mut self) -> Option<&mut ServerSection> {
        if self.is_in_server { self.servers.last_mut() } else { None }
    }
}

impl ServerSection {
    fn is_written(&self) -> bool {
        self.directory.is_some()
    }

    fn object(&self) -> Value {
        let mut object = Map::new();
        object.insert("name".to_owned(), self.name.clone().into());
        object.insert("nameInFile".to_owned(), self.former.clone().into());
        object.insert("written".to_owned(), self.is_written().into());
        object.insert("directory".to_owned(), self.directory.clone().into());
        object.insert("summary".to_owned(), self.summary.clone().into());
        object.insert("ids".to_owned(), self.ids.clone().into());
        insert(&mut object, &self.findings);
        object.insert("error".to_owned(), self.error.clone().into());
        Value::Object(object)
    }
}

/// Returns a failure as text; `None` if the reason was printed already.
pub(super) fn reason(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Other(error) => Some(print::in_full(error)),
        Failure::Configuration(faults) => {
            Some(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        _ => None,
    }
}

/// Inserts every list, so that programs find each member.
fn insert(object: &mut Map<String, Value>, findings: &Findings) {
    for (list, member, _) in LISTS {
        object.insert(member.to_owned(), findings.get(&list).cloned().unwrap_or_default().into());
    }
}

/// Returns the list of a line, and what the list has of it.
fn read(text: &str) -> (FindingList, Value) {
    let known = LISTS.iter().find_map(|(list, _, words)| Some((*list, text.strip_prefix((*words)?)?)));
    match known {
        Some((FindingList::LeftOut, rest)) => (FindingList::LeftOut, item_and_reason(rest)),
        Some((FindingList::Dropped, rest)) => match rest.split_once(IS_LEFT_OUT) {
            Some((item, reason)) => (FindingList::LeftOut, json!({"item": item, "reason": reason})),
            None => (FindingList::Dropped, rest.into()),
        },
        Some((list, rest)) => (list, rest.into()),
        None => (FindingList::Notes, text.into()),
    }
}

/// Splits `ITEM: REASON`, where the name in an item may be in quotes.
fn item_and_reason(text: &str) -> Value {
    let quoted = text.find("\": ").map(|at| at + 1);
    let (item, reason) = match quoted.and_then(|at| text.split_at_checked(at)) {
        Some((item, rest)) => (item, rest.trim_start_matches(": ")),
        None => text.split_once(": ").unwrap_or((text, "")),
    };
    json!({"item": item, "reason": reason})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_in_the_list_that_its_first_words_name() {
        for (line, member, expected) in [
            (
                "left out: tool \"a: b\": no name",
                "leftOut",
                json!({"item": "tool \"a: b\"", "reason": "no name"}),
            ),
            (
                "left out: get /a: it has no end",
                "leftOut",
                json!({"item": "get /a", "reason": "it has no end"}),
            ),
            (
                "dropped: tool \"a\" is left out: a task",
                "leftOut",
                json!({"item": "tool \"a\"", "reason": "a task"}),
            ),
            ("dropped: size of \"a\": no place", "dropped", json!("size of \"a\": no place")),
            ("renamed: a is served as b", "renamed", json!("a is served as b")),
            ("raised: up.a to 2.0.0", "raised", json!("up.a to 2.0.0")),
            ("warning: w", "warnings", json!("w")),
            ("error: e", "errors", json!("e")),
            ("note: n", "notes", json!("n")),
            ("derived again: name of up/a.json", "notes", json!("derived again: name of up/a.json")),
        ] {
            let mut report = ImportReport::new(true);
            report.line(line);
            let object = report.object();
            assert_eq!(object[member], json!([expected]), "{line}: {object}");
        }
    }

    #[test]
    fn findings_belong_to_their_server_and_only_a_server_with_files_is_written() {
        let mut report = ImportReport::new(true);
        report.begin_server("a", Some("A"));
        report.line("note: of a");
        report.needs_approval("needs approval", &["a.x".to_owned(), "a.y".to_owned()]);
        report.add_files(Path::new("primitives/a"), vec!["a.x".to_owned()], "1 tools");
        report.end_server(None);
        report.begin_server("b", None);
        report.refuse("nothing was written: why");
        report.end_server(Some("for the reasons above"));
        report.line("left out: \"B\": why");
        report.operator_entry("add this");
        report.next_step("asp deploy primitives");
        report.finish(Some(&Failure::Refused));
        let object = report.object();
        let [a, b] = [&object["servers"][0], &object["servers"][1]];
        assert_eq!(
            (&a["written"], &a["nameInFile"], &a["ids"]),
            (&json!(true), &json!("A"), &json!(["a.x"]))
        );
        assert_eq!((&a["notes"], &a["needsApproval"]), (&json!(["of a"]), &json!(["a.x", "a.y"])));
        assert_eq!((&b["written"], &b["error"]), (&json!(false), &json!("nothing was written: why")));
        assert_eq!(object["leftOut"], json!([{"item": "\"B\"", "reason": "why"}]));
        assert_eq!((&object["written"], &object["operatorEntries"]), (&json!(true), &json!(["add this"])));
        assert_eq!((&object["next"], &object["error"]), (&json!(["asp deploy primitives"]), &Value::Null));
    }

    #[test]
    fn a_failure_is_the_error_of_its_server_or_of_the_import() {
        let failure = Failure::bad("--server", "names no server");
        let mut report = ImportReport::new(true);
        report.finish(Some(&failure));
        assert_eq!(report.object()["error"], "--server names no server");
        let mut report = ImportReport::new(true);
        report.begin_server("a", None);
        report.finish(Some(&failure));
        let object = report.object();
        assert_eq!(
            (&object["servers"][0]["error"], &object["written"]),
            (&json!("--server names no server"), &json!(false))
        );
    }
}
