//! The faults of one file as they are found: each knows its line.
//!
//! Keeps true: the list is bounded, and warnings take no room from faults: a file with any fault has one in its list.

use crate::document::Document;
use crate::fault::{Fault, FaultCode, shortened};

/// Collects the faults of one file and finds the line of each.
pub(crate) struct Findings<'a> {
    file: &'a str,
    document: &'a Document,
    /// The bound of its faults, and of its warnings.
    bound: usize,
    list: Vec<Fault>,
    /// Number of faults in the list, and of warnings.
    faults: usize,
    warnings: usize,
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
    pub(crate) fn new(file: &'a str, document: &'a Document, bound: usize) -> Findings<'a> {
        Findings { file, document, bound, list: Vec::new(), faults: 0, warnings: 0, elsewhere: Vec::new() }
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
        let count = if code.is_warning() { &mut self.warnings } else { &mut self.faults };
        if *count >= self.bound {
            return;
        }
        *count += 1;
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
            path: shortened(path),
            message: shortened(message.into()),
            hint: shortened(hint.into()),
        });
    }

    /// Whether a fault (not a warning) was found.
    pub(crate) fn has_faults(&self) -> bool {
        self.faults > 0
    }

    pub(crate) fn into_list(self) -> Vec<Fault> {
        self.list
    }
}

/// More faults, or warnings, than anybody repairs in one go; a hostile file must not fill the memory.
const MAX_OF_FILE: usize = 200;
/// The same of all files, each of which has a few.
const MAX_OF_ALL: usize = 10_000;
const FEW: usize = 5;

/// The bound of the faults of one of so many files, and of its warnings.
pub(crate) fn bound_of_file(files: usize) -> usize {
    (MAX_OF_ALL / files.max(1)).clamp(FEW, MAX_OF_FILE)
}
