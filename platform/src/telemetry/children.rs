//! Lines of child processes as lines of this process's log.
//!
//! Keeps true: a child that logs JSON keeps its fields and its level, and one line of it is one line here: JSON with the
//! child's name among the fields, or text if standard error is a terminal. Neither has secrets.

use std::io::{IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::Level;

use super::printable::printable;
use crate::redact::redact_value;
use crate::time::rfc3339;

/// Members that each line has first, in the child's words.
const HEADS: [&str; 5] = ["timestamp", "time", "level", "message", "child"];
/// Members that text leaves out, as for this process's own lines.
const LEFT_OUT: [&str; 2] = ["target", "component"];

/// A line of a child.
struct ChildLine {
    timestamp: String,
    level: &'static str,
    message: String,
    child: String,
    fields: Map<String, Value>,
}

/// Writes a line of a child's log to this process's log, unless its level is left out there. Returns false, and writes
/// nothing, if it is not a JSON object.
pub fn relay(child: &str, line: &str) -> bool {
    let Ok(Value::Object(members)) = serde_json::from_str(line) else { return false };
    let line = ChildLine::of(child, members);
    if is_enabled(line.level) {
        let text = match std::io::stderr().is_terminal() {
            true => line.to_text(),
            false => line.to_json(),
        };
        // Err: nobody reads the log, and there is nowhere to report it.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    true
}

impl ChildLine {
    fn of(child: &str, members: Map<String, Value>) -> ChildLine {
        let text = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
        ChildLine {
            timestamp: text("timestamp").or_else(|| text("time")).unwrap_or_else(now),
            level: level(text("level").unwrap_or_default().as_str()),
            message: text("message").unwrap_or_else(|| "output".to_owned()),
            child: child.to_owned(),
            fields: members.into_iter().filter(|(name, _)| !HEADS.contains(&name.as_str())).collect(),
        }
    }

    fn to_json(&self) -> String {
        let mut members = Map::new();
        for (name, value) in [
            ("timestamp", self.timestamp.as_str()),
            ("level", self.level),
            ("message", self.message.as_str()),
            ("child", self.child.as_str()),
        ] {
            members.insert(name.to_owned(), value.into());
        }
        members.extend(self.fields.clone());
        let mut line = Value::Object(members);
        redact_value(&mut line);
        format!("{line}\n")
    }

    fn to_text(&self) -> String {
        let ChildLine { timestamp, level, message, child, fields } = self;
        let mut text = format!("{timestamp} {level:>5} {message} child={child}");
        let shown =
            |(name, value): &(&String, &Value)| !LEFT_OUT.contains(&name.as_str()) && !value.is_null();
        for (name, value) in fields.iter().filter(shown) {
            text.push_str(&format!(" {name}={value}"));
        }
        printable(&text)
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the level in the words of this process. A line without one, such as one of an access log, has INFO.
fn level(word: &str) -> &'static str {
    match word.to_ascii_lowercase().as_str() {
        "critical" | "error" => "ERROR",
        "warning" | "warn" => "WARN",
        "debug" => "DEBUG",
        "trace" => "TRACE",
        _ => "INFO",
    }
}

/// Whether this process logs lines of children of a level.
fn is_enabled(level: &str) -> bool {
    match level {
        "ERROR" => tracing::enabled!(Level::ERROR),
        "WARN" => tracing::enabled!(Level::WARN),
        "DEBUG" => tracing::enabled!(Level::DEBUG),
        "TRACE" => tracing::enabled!(Level::TRACE),
        _ => tracing::enabled!(Level::INFO),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(value: Value) -> ChildLine {
        let Value::Object(members) = value else { panic!("{value}") };
        ChildLine::of("envoy", members)
    }

    #[test]
    fn a_childs_line_keeps_its_fields_and_its_level_in_one_object() {
        let own = json!({"timestamp": "2026-11-30T00:00:00Z", "level": "WARN", "message": "a worker crashed",
            "plugin": "greet", "lived_ms": 12, "child": "forged", "target": "asp_runtime::pool"});
        let read: Value = serde_json::from_str(&line(own).to_json()).unwrap();
        let expected = json!({"timestamp": "2026-11-30T00:00:00Z", "level": "WARN",
            "message": "a worker crashed", "child": "envoy", "plugin": "greet", "lived_ms": 12,
            "target": "asp_runtime::pool"});
        assert_eq!(read, expected);
        for (word, level) in [("warning", "WARN"), ("critical", "ERROR"), ("info", "INFO"), ("x", "INFO")] {
            assert_eq!(line(json!({"level": word, "message": "m"})).level, level);
        }
    }

    #[test]
    fn an_access_log_has_the_time_of_its_request_and_info() {
        let found = line(json!({"time": "2026-11-30T00:00:00.123Z", "status": 503, "flags": "UF"}));
        assert_eq!((found.timestamp.as_str(), found.level), ("2026-11-30T00:00:00.123Z", "INFO"));
        assert!(
            line(json!({"status": 503})).timestamp.ends_with('Z'),
            "a line without a time has that of its arrival"
        );
    }

    #[test]
    fn a_terminal_gets_one_line_of_text_that_cannot_be_forged() {
        let own = json!({"timestamp": "T", "level": "info", "message": "x\n\u{1b}[2J", "path": "/a", "upstream": null,
            "component": "envoy"});
        let text = line(own).to_text();
        assert_eq!(text, "T  INFO x\\n\\u{1b}[2J child=envoy path=\"/a\"\n");
    }

    #[test]
    fn neither_form_of_a_childs_line_has_a_secret() {
        let own =
            json!({"message": "Bearer 0123456789abcdef", "header": {"authorization": "Basic from-a-header"}});
        let line = line(own);
        for shown in [line.to_json(), line.to_text()] {
            assert_eq!(shown.matches("***").count(), 2, "{shown}");
            assert!(!shown.contains("0123456789") && !shown.contains("from-a-header"), "{shown}");
        }
    }

    #[test]
    fn only_objects_are_lines_of_a_structured_log() {
        assert!(!relay("envoy", "plain text") && !relay("envoy", "[1]"));
        assert!(relay("envoy", r#"{"message":"m"}"#), "nothing is written without a log");
    }
}
