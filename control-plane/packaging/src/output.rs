//! Output and crashes of a plugin's processes, extracted from a runtime's log for the plugin's author.
//!
//! Keeps true: a repeated line is shown once, because a plugin that cannot be loaded is started several times.

use serde_json::Value;

/// Maximum number of lines, from the end of the log, where the last failure is.
const MAX_LINES: usize = 40;
const WROTE: &str = "worker log";
const CRASHED: &str = "a worker crashed";
const EGRESS: &str = "egress";
const MISSING_SECRET: &str = "a primitive runs without a secret that it asks for";

/// Returns the lines for a person, oldest first; empty if no worker wrote anything or was lost.
pub fn lines(log: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for said in log.lines().filter_map(parse_line).flat_map(|said| said.lines) {
        if !found.contains(&said) {
            found.push(said);
        }
    }
    let first = found.len().saturating_sub(MAX_LINES);
    found.split_off(first)
}

/// Output of a worker, or how it was lost.
#[derive(Debug, PartialEq, Eq)]
pub struct WorkerOutput {
    pub plugin: String,
    pub lines: Vec<String>,
}

/// Formats a plugin's line for display among those of others.
pub fn prefix_line(plugin: &str, line: &str) -> String {
    format!("{plugin} | {line}")
}

/// Formats a line that a plugin logs during a call, likewise.
pub fn logged(plugin: &str, level: &str, line: &str) -> String {
    prefix_line(plugin, &format!("{level}: {line}"))
}

/// Parses a line of a runtime's log about a worker; `None` for the runtime's own lines.
pub fn parse_line(line: &str) -> Option<WorkerOutput> {
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
    let lines = match text("message") {
        WROTE => readable(text("line")),
        CRASHED => match text("remedy") {
            "" => vec![format!("(the process ended: {})", text("cause"))],
            remedy => vec![format!("(the process ended: {}; {remedy})", text("cause"))],
        },
        EGRESS => vec![blocked(text("outcome"), text("host"), line.get("port")?)?],
        MISSING_SECRET => vec![format!(
            "(secret {} is missing: {}; grant it to {} in the file that ASP_SECRETS names)",
            text("entry"),
            text("why"),
            text("primitive")
        )],
        _ => return None,
    };
    // `id@version`; an author has only one version at a time.
    let plugin = text("plugin").split('@').next().unwrap_or_default().to_owned();
    Some(WorkerOutput { plugin, lines })
}

/// Returns the line about a network access that was not allowed, with the setting that allows it.
fn blocked(outcome: &str, host: &str, port: &Value) -> Option<String> {
    Some(match outcome {
        "name_denied" | "server_name_denied" => {
            format!("(blocked: {host} is not in security.allowedDomains of its spec)")
        }
        "port_denied" => format!(
            "(blocked: port {port} of {host}; 80 and 443 are open, --allow-private opens the others in development)"
        ),
        "address_denied" => {
            format!("(blocked: {host} is at a private address; --allow-private opens these in development)")
        }
        "unreachable" => format!("({host} could not be reached at port {port})"),
        _ => return None,
    })
}

/// Node's shim writes its messages as JSON, with a stack trace in one line.
fn readable(line: &str) -> Vec<String> {
    let Ok(Value::Object(said)) = serde_json::from_str::<Value>(line) else { return vec![line.to_owned()] };
    match (said.get("shim").and_then(Value::as_str), said.get("error").and_then(Value::as_str)) {
        (Some(what), Some(error)) => format!("{what}: {error}").lines().map(str::to_owned).collect(),
        _ => vec![line.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_wrote_is_shown_once_and_the_runtimes_own_lines_are_not() {
        let wrote = |line: &str| serde_json::json!({"message": "worker log", "line": line}).to_string();
        let log = [
            serde_json::json!({"message": "ready"}).to_string(),
            wrote("import main.py: SyntaxError"),
            serde_json::json!({"message": "a worker crashed", "cause": "it could not load"}).to_string(),
            wrote("import main.py: SyntaxError"),
            wrote(r#"{"shim": "handler failed", "error": "Error: no city\n    at main.mjs:3"}"#),
            wrote(r#"{"level": "the plugin's own"}"#),
            "no JSON".to_owned(),
        ];
        let shown = [
            "import main.py: SyntaxError",
            "(the process ended: it could not load)",
            "handler failed: Error: no city",
            "    at main.mjs:3",
            r#"{"level": "the plugin's own"}"#,
        ];
        assert_eq!(lines(&log.join("\n")), shown);
    }

    #[test]
    fn a_line_of_a_worker_has_its_plugins_name() {
        let wrote =
            r#"{"message": "worker log", "plugin": "greet@1.0.0", "stream": "stdout", "line": "heard"}"#;
        assert_eq!(
            parse_line(wrote),
            Some(WorkerOutput { plugin: "greet".into(), lines: vec!["heard".into()] })
        );
        assert_eq!(parse_line(r#"{"message": "ready", "plugin": "greet@1.0.0"}"#), None);
        assert_eq!(parse_line("no JSON"), None);
        assert_eq!(prefix_line("greet", "heard"), "greet | heard");
    }

    #[test]
    fn a_blocked_access_and_a_limit_are_shown_with_their_settings() {
        let shown = |line: Value| parse_line(&line.to_string()).map(|output| output.lines.join("\n"));
        let egress = |outcome: &str| {
            let host = "db.example.org";
            shown(serde_json::json!({
                "message": "egress", "plugin": "greet@1.0.0", "host": host, "port": 5432, "outcome": outcome,
            }))
        };
        assert_eq!(
            egress("name_denied").unwrap(),
            "(blocked: db.example.org is not in security.allowedDomains of its spec)"
        );
        assert!(egress("port_denied").unwrap().contains("port 5432 of db.example.org"));
        assert!(egress("address_denied").unwrap().contains("--allow-private"));
        assert_eq!(egress("allowed"), None);
        let crashed = serde_json::json!({
            "message": "a worker crashed", "cause": "it was large", "remedy": "memory of its spec is 1Mi",
        });
        assert_eq!(shown(crashed).unwrap(), "(the process ended: it was large; memory of its spec is 1Mi)");
        let missing = serde_json::json!({
            "message": "a primitive runs without a secret that it asks for", "list": "ASP_SECRETS", "entry": "crm-key",
            "primitive": "demo/greet", "why": "the file has no secret of this name",
        });
        let expected = "(secret crm-key is missing: the file has no secret of this name; grant it to demo/greet in the file that \
            ASP_SECRETS names)";
        assert_eq!(shown(missing).unwrap(), expected);
    }

    #[test]
    fn of_many_lines_the_last_are_shown() {
        let log: Vec<String> = (0..100)
            .map(|n| serde_json::json!({"message": "worker log", "line": n.to_string()}).to_string())
            .collect();
        let shown = lines(&log.join("\n"));
        assert_eq!((shown.len(), shown.last().map(String::as_str)), (MAX_LINES, Some("99")));
    }
}
