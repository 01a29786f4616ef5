//! The table shown after `ready`: each server with its URL, whether it is on, why not, and what would turn it on.
//!
//! Decides nothing itself: the gateway reports what runs, the stack reports what it could not start. Keeps true: one line for
//! each cause, plain text, and nothing written by a spec, a compiler or a runtime moves the terminal's cursor.

use std::collections::{BTreeMap, BTreeSet};

use asp_call::execution::Availability;
use asp_command::print;
use asp_gateway::gateway::standing::{PluginStatus, ServerStatus};

use super::plugins::MissingPlugin;

/// Maximum characters of a reason.
const MAX_WHY: usize = 160;

/// Facts about the machine that the stack knows in addition to the gateway's report.
#[derive(Clone, Debug, Default)]
pub struct DevMachine {
    pub public_url: String,
    /// Org whose token the stack has written to `env`.
    pub org: String,
    /// Directory of primitives.
    pub root: String,
    /// Reason for having no language runtime at all.
    pub without_runtime: Option<OffCause>,
    /// Reason why the started runtime does not answer.
    pub runtime_died: Option<String>,
    /// Unavailable languages, and what each lacks.
    pub absent: BTreeMap<String, String>,
    pub not_installed: Vec<MissingPlugin>,
    /// Features that the runtime reports as unavailable, e.g. `level3`.
    pub missing: BTreeMap<String, String>,
    /// Quarantined plugins by `<id>@<version>`, with the reason.
    pub resting: BTreeMap<String, String>,
    /// Hosts of services that this machine lacks, and how to provide them.
    pub absent_hosts: BTreeMap<String, OffCause>,
}

/// Reason why something is off, and the command that turns it on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffCause {
    pub why: String,
    pub remedy: String,
}

impl OffCause {
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> OffCause {
        OffCause { why: why.into(), remedy: remedy.into() }
    }
}

/// Renders the aligned table with its header: a line for each server, and one for each further cause.
pub fn render(servers: &[ServerStatus], machine: &DevMachine) -> String {
    let mut rows = vec![["SERVER", "URL", "STATE", "WHY", "TURN IT ON WITH"].map(str::to_owned)];
    for server in servers {
        let causes = causes(server, machine);
        let url = format!("{}/{}/mcp", machine.public_url, server.name);
        let mut first = [server.name.clone(), url, state(server, &causes).to_owned()];
        if causes.is_empty() {
            let [name, url, state] = first;
            rows.push([name, url, state, String::new(), String::new()]);
            continue;
        }
        for (cause, what) in causes {
            let [name, url, state] = std::mem::take(&mut first);
            let what: Vec<String> = what.into_iter().collect();
            let why = if what.is_empty() { cause.why } else { format!("{}: {}", what.join(", "), cause.why) };
            rows.push([name, url, state, cut(why), cause.remedy]);
        }
    }
    align(rows)
}

/// Whether every server is on.
pub fn is_all_on(servers: &[ServerStatus], machine: &DevMachine) -> bool {
    servers.iter().all(|server| causes(server, machine).is_empty())
}

/// Returns each cause with the plugins it affects; an empty set means the whole server.
fn causes(server: &ServerStatus, machine: &DevMachine) -> BTreeMap<OffCause, BTreeSet<String>> {
    let mut causes: BTreeMap<OffCause, BTreeSet<String>> = BTreeMap::new();
    if !server.is_exposed {
        let cause = OffCause::new(
            format!("not exposed to the org {}", machine.org),
            format!("asp policy {} --expose {}", machine.org, server.name),
        );
        causes.entry(cause).or_default();
    }
    for host in &server.upstreams {
        if let Some(cause) = machine.absent_hosts.get(host) {
            causes.entry(cause.clone()).or_default();
        }
    }
    for plugin in &server.plugins {
        if let Some(cause) = cause(plugin, machine) {
            causes.entry(cause).or_default().insert(plugin.id.clone());
        }
    }
    causes
}

fn state(server: &ServerStatus, causes: &BTreeMap<OffCause, BTreeSet<String>>) -> &'static str {
    let broken: BTreeSet<&String> = causes.values().flatten().collect();
    if causes.is_empty() {
        "on"
    } else if causes.values().any(BTreeSet::is_empty) || broken.len() >= server.listed {
        "off"
    } else {
        "partly"
    }
}

/// Returns why a plugin does not run, or `None` if it does.
fn cause(plugin: &PluginStatus, machine: &DevMachine) -> Option<OffCause> {
    let PluginStatus { id, version, language, availability } = plugin;
    let test = format!("asp plugin test {} --only {id}", machine.root);
    let resting = machine.resting.get(&format!("{id}@{version}"));
    match availability {
        Availability::Ready => resting.map(|why| OffCause::new(why, test)),
        Availability::Impossible(reason) => Some(cause_of_impossible(plugin, reason, machine)),
        Availability::Troubled(reason) => Some(OffCause::new(reason, test)),
        Availability::Unheard => Some(match &machine.runtime_died {
            Some(why) => OffCause::new(format!("the runtime does not start: {why}"), "make run"),
            None => OffCause::new(format!("the {language} runtime has not answered yet"), "asp status"),
        }),
    }
}

fn cause_of_impossible(plugin: &PluginStatus, reason: &str, machine: &DevMachine) -> OffCause {
    let PluginStatus { id, version, language, .. } = plugin;
    let failed = |one: &&MissingPlugin| one.id == *id && one.version == *version;
    if let Some(failed) = machine.not_installed.iter().find(failed) {
        return OffCause::new(&failed.why, &failed.remedy);
    }
    match (reason.split(':').next().unwrap_or_default(), machine.absent.get(language)) {
        ("language_absent", _) if machine.without_runtime.is_some() => {
            machine.without_runtime.clone().unwrap_or_default()
        }
        ("language_absent", Some(lacks)) => absent(language, lacks),
        ("isolation", _) => {
            let missing = machine.missing.values().next_back();
            let why = missing.map_or_else(|| reason.to_owned(), |why| format!("{reason} ({why})"));
            OffCause::new(why, "asp status")
        }
        ("not_installed", _) => OffCause::new(reason, "asp plugin install --from $ASP_ADMIN_URL"),
        _ => OffCause::new(reason, "asp status"),
    }
}

fn absent(language: &str, lacks: &str) -> OffCause {
    let (what, packages) = match language {
        "python" => ("Python 3.11 or later", "sudo apt-get install python3 python3-venv && "),
        "java" => ("a JDK 17 with Maven", "sudo apt-get install openjdk-17-jdk-headless maven && "),
        // Set-up installs its own Node.
        _ => (language, ""),
    };
    OffCause::new(format!("{what} is not here ({lacks})"), format!("{packages}make run"))
}

fn cut(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(MAX_WHY) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// Aligns the columns to their widest cells, separated by two spaces.
fn align(rows: Vec<[String; 5]>) -> String {
    let rows: Vec<[String; 5]> =
        rows.into_iter().map(|row| row.map(|cell| print::printable(&cell, &[]))).collect();
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..5).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<String>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(id: &str, language: &str, availability: Availability) -> PluginStatus {
        PluginStatus { id: id.into(), version: "1.0.0".into(), language: language.into(), availability }
    }

    fn server(name: &str, listed: usize, plugins: Vec<PluginStatus>) -> ServerStatus {
        ServerStatus { name: name.into(), is_exposed: true, listed, plugins, upstreams: BTreeSet::new() }
    }

    fn machine() -> DevMachine {
        DevMachine {
            public_url: "http://127.0.0.1:8080".into(),
            org: "acme".into(),
            root: "primitives".into(),
            ..DevMachine::default()
        }
    }

    fn impossible(reason: &str) -> Availability {
        Availability::Impossible(reason.into())
    }

    /// Returns the table's lines with runs of spaces collapsed.
    fn lines(servers: &[ServerStatus], machine: &DevMachine) -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<&str>>().join(" ");
        render(servers, machine).lines().skip(1).map(words).collect()
    }

    #[test]
    fn each_server_has_a_line_with_its_url_and_whether_it_is_on() {
        let servers = [
            server("demo", 3, vec![]),
            server(
                "half",
                2,
                vec![
                    plugin("a", "python", Availability::Ready),
                    plugin("b", "java", impossible("language_absent: x")),
                ],
            ),
            server("none", 1, vec![plugin("c", "java", impossible("language_absent: x"))]),
            ServerStatus { is_exposed: false, ..server("hidden", 1, vec![]) },
        ];
        let mut machine = machine();
        machine.absent.insert("java".into(), "ASP_PLUGIN_JAVA".into());
        let java = "a JDK 17 with Maven is not here (ASP_PLUGIN_JAVA) sudo apt-get install openjdk-17-jdk-headless maven && make run";
        assert_eq!(
            lines(&servers, &machine),
            [
                "demo http://127.0.0.1:8080/demo/mcp on".to_owned(),
                format!("half http://127.0.0.1:8080/half/mcp partly b: {java}"),
                format!("none http://127.0.0.1:8080/none/mcp off c: {java}"),
                "hidden http://127.0.0.1:8080/hidden/mcp off not exposed to the org acme asp policy acme --expose hidden".into(),
            ]
        );
        let text = render(&servers, &machine);
        let columns: BTreeSet<usize> = text.lines().filter_map(|line| line.find("http")).collect();
        assert_eq!(columns.len(), 1, "{text}");
    }

    #[test]
    fn plugins_with_the_same_cause_share_a_line_and_others_have_their_own() {
        let no_code = || impossible("not_installed: x@1.0.0");
        let servers = [server(
            "s",
            4,
            vec![
                plugin("b", "python", no_code()),
                plugin("a", "python", no_code()),
                plugin("c", "java", no_code()),
                plugin("d", "node", Availability::Ready),
            ],
        )];
        let mut machine = machine();
        machine.not_installed.push(MissingPlugin {
            id: "c".into(),
            version: "1.0.0".into(),
            language: "java".into(),
            why: "does not build: C.java:1".into(),
            remedy: "asp plugin test primitives --only c".into(),
        });
        machine.resting.insert("d@1.0.0".into(), "quarantined for 60 s".into());
        let lines = lines(&servers, &machine);
        assert_eq!(
            lines[0],
            "s http://127.0.0.1:8080/s/mcp off c: does not build: C.java:1 asp plugin test primitives --only c"
        );
        assert_eq!(lines[1], "a, b: not_installed: x@1.0.0 asp plugin install --from $ASP_ADMIN_URL");
        assert_eq!(lines[2], "d: quarantined for 60 s asp plugin test primitives --only d");
    }

    #[test]
    fn a_runtime_that_is_not_there_or_died_is_the_cause() {
        let absent = [server("s", 1, vec![plugin("a", "python", impossible("language_absent: none"))])];
        let mut machine = machine();
        machine.without_runtime = Some(OffCause::new("there is no asp-runtime", "cargo build"));
        assert!(lines(&absent, &machine)[0].ends_with("off a: there is no asp-runtime cargo build"));
        let silent = [server("s", 1, vec![plugin("a", "python", Availability::Unheard)])];
        assert!(lines(&silent, &machine)[0].contains("has not answered yet"));
        machine.runtime_died = Some("no level holds".into());
        assert!(lines(&silent, &machine)[0].contains("off a: the runtime does not start: no level holds"));
    }

    #[test]
    fn what_others_wrote_neither_moves_the_cursor_nor_fills_the_screen() {
        let reason = format!("isolation: \u{1b}[2J\r{}", "x".repeat(1000));
        let servers = [server("s", 1, vec![plugin("a", "python", impossible(&reason))])];
        let text = render(&servers, &machine());
        assert!(text.chars().all(|char| char == '\n' || !char.is_control()), "{text:?}");
        assert!(text.lines().all(|line| line.chars().count() < 300), "{text}");
    }
}
