//! `asp apply` and `asp diff`: a directory of primitives compared with a control plane.

use std::path::Path;

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::catalog::{self, Bundle};
use asp_platform::shell;
use asp_registry::CompiledServer;
use asp_store::control::SourceFile;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::answer::{is, list, number, text};
use super::client::{AdminClient, api_path, block_on, describe_change};
use super::known::suggest;
use super::sarif::{self, Finding, Level};
use super::{next_call, specs};
use crate::args::{ApplyArgs, DiffArgs};

/// Sends every server of the directory; the API skips unchanged servers, and rejects changes that break callers without a new
/// major version unless `--force` is given.
pub fn run(args: &ApplyArgs) -> Result<(), Failure> {
    let bundles = read(&args.directory, args.server.as_deref())?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        let mut results = Vec::with_capacity(bundles.len());
        let mut breaks_callers = false;
        for bundle in &bundles {
            let name = &bundle.server.server.name;
            let result = if args.dry_run {
                let difference = compare(&api, bundle).await?;
                breaks_callers |= !args.force && difference.breaks_callers();
                difference_json(name, &difference)
            } else {
                send(&api, bundle, args.force).await?
            };
            if !args.json {
                print::line(&describe_result(name, &result));
            }
            results.push(result);
        }
        if args.json {
            print::json(&results);
        } else if !breaks_callers {
            print_next_steps(args, &bundles);
        }
        if breaks_callers { Err(Failure::Breaking) } else { Ok(()) }
    })
}

/// Prints what comes after a plan, or after servers were applied: their code is not installed by that.
fn print_next_steps(args: &ApplyArgs, bundles: &[Bundle]) {
    let directory = shell::path(&args.directory);
    if args.dry_run {
        let only = args.server.as_deref().map(|server| shell::option("server", server));
        return print::next_step(&format!("asp apply {directory}{}", only.unwrap_or_default()));
    }
    let servers: Vec<CompiledServer> = bundles.iter().map(|bundle| bundle.server.clone()).collect();
    for unit in asp_packaging::units(&servers, None) {
        print::note(&format!(
            "{}@{} needs its code on a runtime: `asp deploy {directory}` does that, or `asp plugin install` where the \
             runtime is",
            unit.id, unit.version
        ));
    }
    if let Some(command) = servers.iter().find_map(next_call::command) {
        print::next_step(&command);
    }
}

/// Stores a server; fails if that breaks callers without a new major version and is not forced.
pub(super) async fn send(api: &AdminClient, bundle: &Bundle, force: bool) -> Result<Value, Failure> {
    let name = &bundle.server.server.name;
    let query = if force { "?force=true" } else { "" };
    let path = format!("{}{query}", api_path(&["api", "registry", "servers", name]));
    let answer = api.put(&path, &json!({ "files": bundle.files })).await?;
    if text(&answer.body, "code") == "breaking_change" {
        print::error(&format!("{name}: {}", answer.refusal()));
        return Err(Failure::Breaking);
    }
    answer.accepted()
}

/// Prints which servers are new, changed or unchanged, and which servers of the registry are not in the directory. Fails if a
/// change breaks callers without a new major version.
pub fn diff(args: &DiffArgs) -> Result<(), Failure> {
    let bundles = read(&args.directory, args.server.as_deref())?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        let mut results: Vec<Value> = Vec::new();
        let mut findings = Vec::new();
        let mut breaks_callers = false;
        for bundle in &bundles {
            let difference = compare(&api, bundle).await?;
            breaks_callers |= difference.breaks_callers();
            findings.extend(difference.changes.iter().map(|change| finding(&args.directory, bundle, change)));
            results.push(difference_json(&bundle.server.server.name, &difference));
        }
        let stored = api.get("/api/registry/servers").await?.accepted()?;
        let is_whole = args.server.is_none();
        for record in stored.as_array().into_iter().flatten().filter(|_| is_whole) {
            let name = text(record, "server");
            if !bundles.iter().any(|bundle| bundle.server.server.name == name) {
                results.push(json!({ "server": name, "state": "only in the registry" }));
            }
        }
        if args.sarif {
            print::json(&sarif::log(&findings));
        } else if args.json {
            print::json(&results);
        } else {
            for result in &results {
                print::line(&describe_result(text(result, "server"), result));
            }
        }
        if breaks_callers { Err(Failure::Breaking) } else { Ok(()) }
    })
}

/// Returns a finding for a change, at the file that declares its primitive or at `server.yaml`.
fn finding(root: &Path, bundle: &Bundle, change: &asp_registry::Change) -> Finding {
    let declares =
        |file: &&SourceFile| file.text.lines().any(|line| line.trim() == format!("id: {}", change.primitive));
    let server = format!("{}/server.yaml", bundle.server.server.name);
    let file = bundle.files.iter().find(declares).map_or(server.as_str(), |file| file.path.as_str());
    let (level, rule) = match change.breaks_callers() {
        true => (Level::Error, "breaking_change"),
        false => (Level::Note, "change"),
    };
    let at = if change.path.is_empty() { String::new() } else { format!("{}: ", change.path) };
    let message = format!("{at}{}", change.message);
    Finding {
        level,
        rule: rule.into(),
        message,
        file: root.join(file).to_string_lossy().into_owned(),
        line: 0,
    }
}

/// Line of a plan or a result that switches A2A on for a server that a version without A2A applied.
const A2A_SWITCHED_ON: &str = "A2A is switched on, for orgs that have the server over a2a (every org by `defaultExposure: allow`): \
     bindings for every protocol count there, bindings for mcp alone do not; see `asp upgrade check` before you apply it";

/// Describes a result: what happened, then its changes and warnings, one a line.
pub(super) fn describe_result(name: &str, result: &Value) -> String {
    let revision = number(result, "revision");
    let state = result.get("state").and_then(Value::as_str);
    let mut lines = match (state, is(result, "changed")) {
        (Some(state), _) => format!("{name}: {state}"),
        (None, true) => format!("{name}: applied at revision {revision}"),
        (None, false) => format!("{name}: unchanged since revision {revision}"),
    };
    if is(result, "a2aSwitchedOn") {
        lines.push_str(&format!("\n  {A2A_SWITCHED_ON}"));
    }
    list(result, "changes").for_each(|change| lines.push_str(&format!("\n  {}", describe_change(change))));
    list(result, "warnings")
        .for_each(|warning| lines.push_str(&format!("\n  warning: {}", describe_warning(warning))));
    lines
}

fn describe_warning(warning: &Value) -> String {
    let text = |key: &str| text(warning, key);
    let line = number(warning, "line");
    format!("{}:{line}: {}: {}; {}", text("file"), text("code"), text("message"), text("hint"))
}

/// Difference between a server in the directory and in the registry.
pub(super) struct Difference {
    pub(super) state: &'static str,
    /// The stored server, if there is one and this version compiles it.
    pub(super) before: Option<CompiledServer>,
    changes: Vec<asp_registry::Change>,
    /// Whether the server lists a2a, and A2A is off until it is applied.
    a2a_switched_on: bool,
}

impl Difference {
    /// Returns a difference without changes of contracts.
    pub(super) fn of(state: &'static str, before: Option<CompiledServer>) -> Difference {
        Difference { state, before, changes: Vec::new(), a2a_switched_on: false }
    }

    pub(super) fn breaks_callers(&self) -> bool {
        self.changes.iter().any(asp_registry::Change::breaks_callers)
    }
}

pub(super) async fn compare(api: &AdminClient, bundle: &Bundle) -> Result<Difference, Failure> {
    let name = &bundle.server.server.name;
    let answer = api.get(&api_path(&["api", "registry", "servers", name])).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(Difference::of("new", None));
    }
    let stored = answer.accepted()?;
    // A control plane that does not report it does not serve A2A.
    let is_off = stored.get("a2aConfirmed").and_then(Value::as_bool) == Some(false);
    let a2a_switched_on = is_off && bundle.server.lists_a2a();
    if stored.get("contentHash").and_then(Value::as_str) == Some(bundle.server.content_hash.as_str()) {
        let state = if a2a_switched_on { "changed" } else { "unchanged" };
        return Ok(Difference { a2a_switched_on, ..Difference::of(state, Some(bundle.server.clone())) });
    }
    let files = stored.get("files").cloned().unwrap_or_default();
    let files: Vec<SourceFile> = serde_json::from_value(files).context("read the stored files")?;
    // Files that this version no longer compiles cannot be compared.
    let before = catalog::compile(name, &files).ok();
    let changes = before.as_ref().map(|before| asp_registry::compare(before, &bundle.server));
    Ok(Difference { state: "changed", before, changes: changes.unwrap_or_default(), a2a_switched_on })
}

pub(super) fn difference_json(name: &str, difference: &Difference) -> Value {
    let Difference { state, changes, a2a_switched_on, .. } = difference;
    json!({ "server": name, "state": state, "changes": changes, "a2aSwitchedOn": a2a_switched_on })
}

/// Reads the servers of a directory, or the one named `only`. All are checked, because they share primitives.
fn read(directory: &Path, only: Option<&str>) -> Result<Vec<Bundle>, Failure> {
    let (sources, found) = specs::checked(directory)?;
    let bundles = catalog::bundles(&sources, found);
    let Some(only) = only else { return Ok(bundles) };
    let names: Vec<String> = bundles.iter().map(|bundle| bundle.server.server.name.clone()).collect();
    let chosen = bundles.into_iter().find(|bundle| bundle.server.server.name == only);
    let unknown = || format!("{only} is not a server of {}{}", directory.display(), suggest(only, &names));
    Ok(vec![chosen.ok_or_else(|| Failure::bad("--server", unknown()))?])
}

#[cfg(test)]
mod tests {
    use asp_packaging::scaffold::{self, NewPrimitive, ScaffoldLanguage, ScaffoldType};

    use super::*;

    #[test]
    fn one_server_of_a_directory_is_chosen_by_its_name() {
        let root = tempfile::tempdir().unwrap();
        for id in ["greet", "bye"] {
            let language = Some(ScaffoldLanguage::Python);
            let wanted = NewPrimitive { id, server: None, kind: ScaffoldType::Tool, language };
            scaffold::new(root.path(), &wanted).unwrap();
        }
        let names = |only: Option<&str>| -> Vec<String> {
            let bundles = read(root.path(), only).unwrap();
            let mut names: Vec<String> =
                bundles.into_iter().map(|bundle| bundle.server.server.name).collect();
            names.sort();
            names
        };
        assert_eq!(names(None), ["bye", "greet"]);
        assert_eq!(names(Some("greet")), ["greet"]);
        let Err(Failure::Configuration(faults)) = read(root.path(), Some("gret")) else {
            panic!("it is unknown")
        };
        assert!(faults[0].message.ends_with(": did you mean greet?"), "{}", faults[0].message);
    }

    #[test]
    fn what_was_applied_is_told_with_each_warning_and_its_place() {
        let warning = |line: u32| {
            json!({ "file": "tool.yaml", "line": line, "code": "no_summary", "message": "nobody finds it",
                "hint": "add one" })
        };
        let result =
            json!({ "changed": true, "revision": 7, "changes": [], "warnings": [warning(3), warning(9)] });
        assert_eq!(
            describe_result("demo", &result),
            "demo: applied at revision 7\n  \
             warning: tool.yaml:3: no_summary: nobody finds it; add one\n  \
             warning: tool.yaml:9: no_summary: nobody finds it; add one"
        );
    }

    #[test]
    fn a_plan_and_a_result_name_the_server_for_which_they_switch_a2a_on() {
        let difference = Difference { a2a_switched_on: true, ..Difference::of("changed", None) };
        let planned = describe_result("crm", &difference_json("crm", &difference));
        assert_eq!(planned, format!("crm: changed\n  {A2A_SWITCHED_ON}"));
        let result = json!({ "changed": true, "revision": 7, "a2aSwitchedOn": true });
        assert_eq!(
            describe_result("crm", &result),
            format!("crm: applied at revision 7\n  {A2A_SWITCHED_ON}")
        );
        let other = Difference { a2a_switched_on: false, ..difference };
        assert_eq!(describe_result("crm", &difference_json("crm", &other)), "crm: changed");
    }
}
