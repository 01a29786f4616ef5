//! Text for a terminal that whoever is named in it cannot command.
//!
//! Keeps true: a line of the log is one line, and nothing in it but its end is a control character: what others say
//! (an error's text, a plugin's name) neither forges a line nor sends the terminal an escape sequence (ECMA-48).

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

/// Writers whose lines are made printable.
pub(super) struct Printable<M>(pub(super) M);

/// One of them. What is written at once is one line.
pub(super) struct Line<W>(W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Printable<M> {
    type Writer = Line<M::Writer>;

    fn make_writer(&'a self) -> Line<M::Writer> {
        Line(self.0.make_writer())
    }
}

impl<W: Write> Write for Line<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let mut line = String::with_capacity(text.len());
        for letter in text.trim_end_matches('\n').chars() {
            match letter.is_control() {
                true => line.extend(letter.escape_default()),
                false => line.push(letter),
            }
        }
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
