//! Faults and changes as SARIF 2.1.0, the format in which code hosts show findings next to the lines of a change.

use std::collections::BTreeSet;
use std::path::Path;

use asp_registry::Fault;
use percent_encoding::{AsciiSet, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

use super::client::RESERVED;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warning,
    Note,
}

/// One finding.
#[derive(Clone, Debug)]
pub struct Finding {
    pub level: Level,
    /// Stable name of the rule.
    pub rule: String,
    pub message: String,
    /// Path relative to the root of the code host's checkout.
    pub file: String,
    /// One-based; 0 if unknown.
    pub line: u32,
}

impl Finding {
    /// Creates a finding for a fault in a file below `root`.
    pub fn of(level: Level, root: &Path, fault: &Fault) -> Finding {
        let hint = if fault.hint.is_empty() { String::new() } else { format!(" ({})", fault.hint) };
        Finding {
            level,
            rule: fault.code.as_str().to_owned(),
            message: format!("{}{hint}", fault.message),
            file: root.join(&fault.file).to_string_lossy().into_owned(),
            line: fault.line,
        }
    }
}

/// Returns the log of one run.
pub fn log(findings: &[Finding]) -> Value {
    let rules: BTreeSet<&str> = findings.iter().map(|finding| finding.rule.as_str()).collect();
    let rules: Vec<Value> = rules.into_iter().map(|id| json!({ "id": id })).collect();
    let results: Vec<Value> = findings.iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "asp", "version": env!("CARGO_PKG_VERSION"), "rules": rules,
            } },
            "results": results,
        }],
    })
}

fn result(finding: &Finding) -> Value {
    let mut place = json!({ "artifactLocation": { "uri": uri(&finding.file) } });
    // SARIF's lines are one-based too; a finding about a whole file has none.
    if let (1.., Some(place)) = (finding.line, place.as_object_mut()) {
        place.insert("region".into(), json!({ "startLine": finding.line }));
    }
    json!({
        "ruleId": finding.rule,
        "level": finding.level,
        "message": { "text": finding.message },
        "locations": [{ "physicalLocation": place }],
    })
}

/// Converts a path to a relative URI reference (RFC 3986 section 4.2), which SARIF requires.
fn uri(path: &str) -> String {
    const ESCAPED: &AsciiSet = &RESERVED.remove(b'/');
    utf8_percent_encode(path.trim_start_matches("./"), ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_stands_at_its_line_and_a_rule_once() {
        let finding = |line| Finding {
            level: Level::Error,
            rule: "bad_value".into(),
            message: "m".into(),
            file: "./primitives/de mo/echo.yaml".into(),
            line,
        };
        let log = log(&[finding(3), finding(0)]);
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"].as_array().unwrap().len(), 1);
        let place = |at: usize| run["results"][at]["locations"][0]["physicalLocation"].clone();
        assert_eq!(place(0)["region"]["startLine"], 3);
        assert_eq!(place(0)["artifactLocation"]["uri"], "primitives/de%20mo/echo.yaml");
        assert!(place(1).get("region").is_none());
        assert_eq!(log["version"], "2.1.0");
    }
}
