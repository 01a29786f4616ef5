//! The page of commands is made from their help.

use clap::{Command, CommandFactory};

use super::Cli;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
/// Set to write the page instead of comparing it.
const UPDATE: &str = "ASP_UPDATE_GOLDEN";
const BEGIN: &str = "<!-- asp: generated -->\n";
const END: &str = "<!-- asp: end -->";

/// Adds a row for each command that can be run without a command below it.
fn rows(command: &Command, name: &str, table: &mut String) {
    if !command.is_subcommand_required_set() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty() && !about.contains('|'), "{name}: {about}");
        table.push_str(&format!("| `{name}` | {about} |\n"));
    }
    for below in command.get_subcommands() {
        rows(below, &format!("{name} {}", below.get_name()), table);
    }
}

#[test]
fn the_page_of_commands_is_the_generated_one() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let mut table = String::from("| command | what it does |\n|---|---|\n");
    rows(&Cli::command(), "asp", &mut table);
    let generated = format!("{before}{BEGIN}\n{table}\n{END}{after}");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(PAGE, &generated).unwrap();
    }
    assert!(
        std::fs::read_to_string(PAGE).unwrap() == generated,
        "docs/commands.md has drifted from the commands' help; regenerate it with\n\
         {UPDATE}=1 cargo test -p asp --lib the_page_of_commands_is_the_generated_one"
    );
}

/// Commands without `--json`: a log, a protocol, a script, and an import, whose result is files and whose report has an option.
const WITHOUT_JSON: [&str; 3] = ["asp serve", "asp mcp", "asp completions"];

/// Adds each command that can be run and does not have `--json`.
fn without_json(command: &Command, name: &str, found: &mut Vec<String>) {
    let has_json = command.get_arguments().any(|argument| argument.get_long() == Some("json"));
    if !command.is_subcommand_required_set() && !has_json {
        found.push(name.to_owned());
    }
    for below in command.get_subcommands() {
        without_json(below, &format!("{name} {}", below.get_name()), found);
    }
}

#[test]
fn every_command_with_a_result_prints_it_as_json_too() {
    let mut found = Vec::new();
    without_json(&Cli::command(), "asp", &mut found);
    assert_eq!(found, WITHOUT_JSON);
}

#[test]
fn a_mistyped_command_or_option_is_answered_with_the_one_that_was_meant() {
    for (line, meant) in [
        (["asp", "polcy", "acme", "--json"], "'policy'"),
        (["asp", "history", "--limt", "9"], "'--limit'"),
        (["asp", "history", "--kind", "bindng"], "'binding'"),
    ] {
        let fault = super::help::command().try_get_matches_from(line).unwrap_err().to_string();
        assert!(fault.contains("tip: ") && fault.contains(meant), "{line:?}: {fault}");
    }
}

#[test]
fn a_call_to_cancel_is_named_by_its_id_alone() {
    let refused = |line: &[&str]| super::help::command().try_get_matches_from(line).is_err();
    assert!(!refused(&["asp", "calls", "--cancel", "c-1", "--org", "acme"]));
    for filter in ["--user", "--server", "--primitive"] {
        assert!(refused(&["asp", "calls", "--cancel", "c-1", filter, "x"]), "{filter}");
        assert!(refused(&["asp", "usage", "--unused", "30d", filter, "x"]), "{filter}");
    }
}
