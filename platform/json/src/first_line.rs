//! The first line of a text that may contain JSON.

use std::borrow::Cow;

use crate::Json;

/// Maximum length of the JSON that is put on one line, in bytes.
const MAX_JSON: usize = 64 << 10;

/// Returns the first significant line of a text, with all of the JSON that begins in it: errors are often JSON on
/// several lines, of which the first one is only a bracket.
pub fn first_line(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    // An XML declaration is not significant.
    let document = text.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>"));
    let text = document.map_or(text, |(_, document)| document.trim_start());
    let line = text.lines().next().unwrap_or_default().trim_end();
    let json = line.find(['{', '[']).and_then(|at| text.split_at_checked(at));
    match json.filter(|(_, json)| line.len() < text.len() && json.len() <= MAX_JSON) {
        Some((before, json)) => match Json::parse(json.as_bytes()) {
            Ok(json) => format!("{before}{}", json.compact()).into(),
            Err(_) => line.into(),
        },
        None => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::first_line;

    #[test]
    fn the_first_line_has_all_of_the_json_that_begins_in_it() {
        for (text, line) in [
            ("", ""),
            ("\n  \n first\nat /srv/app.py:3", "first"),
            ("{\r\n  \"error\" : {\r\n \"a\": \"b  c\"\r\n }\r\n}\r\n", r#"{"error":{"a":"b  c"}}"#),
            (
                "MCP error -32602: Invalid arguments: [\n  {\n    \"path\": [\"n\"]\n  }\n]",
                r#"MCP error -32602: Invalid arguments: [{"path":["n"]}]"#,
            ),
            ("{ \"a\": 1 }", r#"{ "a": 1 }"#),
            ("cut [\n  1,", "cut ["),
            (
                "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code></Error>",
                "<Error><Code>NoSuchKey</Code></Error>",
            ),
            ("see [1]\nat x", "see [1]"),
        ] {
            assert_eq!(first_line(text), line, "{text}");
        }
        let large = format!("{{\n\"a\": \"{}\"}}", "x".repeat(super::MAX_JSON));
        assert_eq!(first_line(&large), "{");
    }
}
