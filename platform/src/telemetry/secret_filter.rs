//! Log lines for collectors without secrets in their fields, such as the output of a plugin.
//!
//! Keeps true: a line stays one JSON object on one line.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use crate::redact::redact_json;

/// Factory of writers whose lines have no secrets.
pub(super) struct SecretFilter<M>(pub(super) M);

/// One such writer. Each write is one line.
pub(super) struct SecretFilterWriter<W>(W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for SecretFilter<M> {
    type Writer = SecretFilterWriter<M::Writer>;

    fn make_writer(&'a self) -> SecretFilterWriter<M::Writer> {
        SecretFilterWriter(self.0.make_writer())
    }
}

impl<W: Write> Write for SecretFilterWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let mut line = redact_json(text.trim_end_matches('\n')).into_owned();
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
