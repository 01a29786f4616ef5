//! Terminal output: results on standard output, faults on standard error. Write errors are ignored, because the reader
//! may be gone.

use std::io::Write;

use serde::Serialize;

/// Control characters allowed in text of several lines.
const LINES: [char; 2] = ['\n', '\t'];

/// Prints one line of a result.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", printable(text, &LINES));
}

/// Prints a result as JSON.
pub fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => line(&text),
        Err(fault) => error(&fault.to_string()),
    }
}

/// Prints one line for a person to standard error, for commands whose standard output is JSON.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text, &LINES));
}

/// Prints the command that comes next to standard error.
pub fn next_step(command: &str) {
    note(&format!("next: {command}"));
}

/// Prints one line about a fault.
pub fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "asp: {}", printable(text, &LINES));
}

/// Returns an error with its causes. Causes that the text already contains are left out, as many errors include their cause.
pub fn in_full(error: &anyhow::Error) -> String {
    let mut full = String::new();
    for cause in error.chain().map(|cause| cause.to_string()) {
        if full.is_empty() {
            full = cause;
        } else if !full.contains(&cause) {
            full.push_str(": ");
            full.push_str(&cause);
        }
    }
    full
}

/// Returns the text with every control character that a terminal would obey (ECMA-48) escaped, except those in `kept`, so
/// that a plugin's output or the text of a spec can neither forge output nor control the terminal. The escapes are those of
/// JSON (RFC 8259 section 7), so that JSON stays JSON. Characters that change the direction of the following text are escaped too.
pub fn printable(text: &str, kept: &[char]) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        let is_bidi_control = matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match (char.is_control() || is_bidi_control) && !kept.contains(&char) {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(char))),
            false => shown.push(char),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_its_error_says_is_not_said_again() {
        #[derive(Debug, thiserror::Error)]
        #[error("manifest.json: {0}")]
        struct Fault(#[from] std::num::ParseIntError);
        let cause = "x".parse::<u8>().unwrap_err();
        let error = anyhow::Error::new(Fault(cause)).context("install it");
        assert_eq!(in_full(&error), "install it: manifest.json: invalid digit found in string");
    }

    #[test]
    fn text_keeps_its_lines_and_loses_what_a_terminal_obeys() {
        let text = "one\n\ttwo \u{1b}]52;c;aGk=\u{7} \u{9b}2J é";
        assert_eq!(printable(text, &LINES), "one\n\ttwo \\u001b]52;c;aGk=\\u0007 \\u009b2J é");
        assert_eq!(printable("a\nb", &[]), "a\\u000ab");
        assert_eq!(printable("a\u{202e}b", &LINES), "a\\u202eb");
    }
}
