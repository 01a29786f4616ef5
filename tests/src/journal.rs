//! The messages that passed the taps of a stack, one a line, in one order.
//!
//! Keeps true: bounded; a tap writes a message before it passes it on, so that a cause comes before its effects.

use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of lines.
const LINES: usize = 10_000;
/// Maximum length of a line in bytes; a longer one is cut.
const LINE_BYTES: usize = 16 << 10;

/// A journal. Its clones are the same one.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    pub fn write(&self, mut line: String) {
        line.truncate(line.floor_char_boundary(LINE_BYTES));
        let mut lines = self.0.lock();
        if lines.len() < LINES {
            lines.push(line);
        }
    }

    /// Returns the lines since the last call of this.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Returns the lines and keeps them.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Whether a line begins so.
    pub fn has(&self, start: &str) -> bool {
        self.0.lock().iter().any(|line| line.starts_with(start))
    }

    /// Returns the number of lines that begin so.
    pub fn count(&self, start: &str) -> usize {
        self.0.lock().iter().filter(|line| line.starts_with(start)).count()
    }
}
