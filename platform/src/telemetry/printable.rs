//! Terminal output that is safe from control characters and secrets in logged values.
//!
//! Keeps true: a line of the log is one line, and its only control character is at its end: foreign text (an error's
//! text, a plugin's name) can neither forge a line nor send the terminal an escape sequence (ECMA-48).

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use crate::redact::redact_text;

/// Returns a text as one line: secrets are replaced, control characters are escaped, and a line feed ends it.
pub(super) fn printable(text: &str) -> String {
    let text = redact_text(text);
    let mut line = String::with_capacity(text.len() + 1);
    for letter in text.trim_end_matches('\n').chars() {
        match letter.is_control() {
            true => line.extend(letter.escape_default()),
            false => line.push(letter),
        }
    }
    line.push('\n');
    line
}

/// Factory of writers whose lines are made printable.
pub(super) struct Printable<M>(pub(super) M);

/// One such writer. Each write is one line.
pub(super) struct LineWriter<W>(W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Printable<M> {
    type Writer = LineWriter<M::Writer>;

    fn make_writer(&'a self) -> LineWriter<M::Writer> {
        LineWriter(self.0.make_writer())
    }
}

impl<W: Write> Write for LineWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(printable(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
