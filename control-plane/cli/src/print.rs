//! The terminal: results on standard output, faults on standard error. A reader that went away is nobody's
//! fault.

use std::io::Write;

use serde::Serialize;

/// One line of a result.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A result for programs.
pub fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => line(&text),
        Err(fault) => error(&fault.to_string()),
    }
}

/// One line for a person, where standard output is for programs.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// One line about a fault.
pub fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "asp: {text}");
}
