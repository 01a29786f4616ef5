//! The faults of one file as they are found: each knows its line.

use crate::document::Document;
use crate::fault::{Fault, FaultCode};

/// Collects the faults of one file and finds the line of each.
pub(crate) struct Findings<'a> {
    file: &'a str,
    document: &'a Document,
    list: Vec<Fault>,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(file: &'a str, document: &'a Document) -> Findings<'a> {
        Findings { file, document, list: Vec::new() }
    }

    /// Adds a fault at the value (or the key, when the value is missing) that `path` points to.
    pub(crate) fn add(
        &mut self,
        code: FaultCode,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.list.len() >= MAX_FAULTS {
            return;
        }
        self.list.push(Fault {
            code,
            file: self.file.to_string(),
            line: self.document.line_at(path),
            path: path.to_string(),
            message: shortened(message.into()),
            hint: hint.into(),
        });
    }

    /// Whether a fault (not a warning) was found.
    pub(crate) fn has_faults(&self) -> bool {
        self.list.iter().any(|fault| !fault.code.is_warning())
    }

    pub(crate) fn into_list(self) -> Vec<Fault> {
        self.list
    }
}

/// More faults than anybody repairs in one go; a hostile file must not fill the memory.
const MAX_FAULTS: usize = 200;

fn shortened(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
        None => message,
    }
}

/// A validator quotes the value it refuses, which may be the whole file.
const MAX_MESSAGE_CHARS: usize = 300;
