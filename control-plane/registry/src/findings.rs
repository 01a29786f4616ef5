//! The faults found in one file, each with its line.
//!
//! Keeps true: the list is bounded, and warnings use none of the bound of faults: a file with any fault has one in
//! its list.

use crate::document::Document;
use crate::fault::{Fault, FaultCode, shortened};

/// Collects the faults of one file and finds the line of each.
pub(crate) struct Findings<'a> {
    file: &'a str,
    document: &'a Document,
    /// Maximum number of faults, and of warnings.
    bound: usize,
    list: Vec<Fault>,
    /// Number of faults in the list, then of warnings.
    faults: usize,
    warnings: usize,
    redirects: Vec<Redirect<'a>>,
}

/// A value whose source is in another file: its path here, that file, its path there.
struct Redirect<'a> {
    here: &'static str,
    file: &'a str,
    document: &'a Document,
    there: &'static str,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(file: &'a str, document: &'a Document, bound: usize) -> Findings<'a> {
        Findings { file, document, bound, list: Vec::new(), faults: 0, warnings: 0, redirects: Vec::new() }
    }

    /// Attributes faults at `here` and below to `file`, at the path `there`.
    pub(crate) fn attribute_to(
        &mut self,
        here: &'static str,
        file: &'a str,
        document: &'a Document,
        there: &'static str,
    ) {
        self.redirects.push(Redirect { here, file, document, there });
    }

    /// Adds a fault at the value that `path` points to, or at the key if the value is missing.
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
        let moved = self.redirects.iter().find_map(|place| {
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

/// Maximum number of faults, and of warnings, in one file. Nobody repairs more in one go, and a hostile file must not
/// fill the memory.
const MAX_OF_FILE: usize = 200;
/// Maximum number of faults, and of warnings, in all files together, except that each file may have [`FEW`].
const MAX_OF_ALL: usize = 10_000;
const FEW: usize = 5;

/// Returns the maximum number of faults, and of warnings, in each of `files` files.
pub(crate) fn max_per_file(files: usize) -> usize {
    (MAX_OF_ALL / files.max(1)).clamp(FEW, MAX_OF_FILE)
}
