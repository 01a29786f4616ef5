//! The faults of one file as they are found: each knows its line.

use crate::document::Document;
use crate::fault::{Fault, FaultCode};

/// Collects the faults of one file and finds the line of each.
pub(crate) struct Findings<'a> {
    file: &'a str,
    document: &'a Document,
    list: Vec<Fault>,
    elsewhere: Vec<Elsewhere<'a>>,
}

/// A value that stands in another file: its place here, that file, its place there.
struct Elsewhere<'a> {
    here: &'static str,
    file: &'a str,
    document: &'a Document,
    there: &'static str,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(file: &'a str, document: &'a Document) -> Findings<'a> {
        Findings { file, document, list: Vec::new(), elsewhere: Vec::new() }
    }

    /// What is found at `here` and below is told of `file`, at `there`.
    pub(crate) fn stands_in(
        &mut self,
        here: &'static str,
        file: &'a str,
        document: &'a Document,
        there: &'static str,
    ) {
        self.elsewhere.push(Elsewhere { here, file, document, there });
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
        let moved = self.elsewhere.iter().find_map(|place| {
            let rest =
                path.strip_prefix(place.here).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
            Some((place.file, place.document, format!("{}{rest}", place.there)))
        });
        let (file, document, path) = moved.unwrap_or((self.file, self.document, path.to_string()));
        self.list.push(Fault {
            code,
            file: file.to_string(),
            line: document.line_at(&path),
            path,
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
