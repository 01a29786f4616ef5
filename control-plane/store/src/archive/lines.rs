//! The lines of an archive.
//!
//! The first says what it is. Then each table in its order: `{"table", "columns"}`, a line for each row, which is an array
//! of its values (bytes in Base64), and `{"end", "rows", "sha256"}`, the digest of the lines of its rows. The last line is
//! `{"complete": true}`.
//! Refuses: lines beyond [`MAX_LINE`], another order, other columns, a digest that is another one, and what ends early.

use std::io::{BufRead, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::tables::{Kind, Table};
use super::{ArchiveError, Summary};
use crate::hex::hex;

/// Of what archives are, and in which form.
const FORMAT: &str = "asp-archive/1";
/// Longest line: the outcome of a call may be large.
const MAX_LINE: u64 = 256 << 20;

/// Bytes as a row has them.
pub(super) fn text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a value; `None` for null.
pub(super) fn bytes(value: &Value) -> Option<Vec<u8>> {
    // What is no Base64 was refused when it was read.
    value.as_str().and_then(|text| STANDARD.decode(text).ok())
}

/// A row as a line, its end included.
pub(super) fn row(values: &[Value]) -> Result<Vec<u8>, ArchiveError> {
    let mut line = serde_json::to_vec(values).map_err(std::io::Error::from)?;
    line.push(b'\n');
    Ok(line)
}

/// Counts rows and their digest.
#[derive(Default)]
pub(super) struct Rows {
    count: u64,
    digest: Sha256,
}

impl Rows {
    pub(super) fn take(&mut self, line: &[u8]) {
        self.count += 1;
        self.digest.update(line);
    }

    pub(super) fn summary(self, table: &Table) -> Summary {
        let sha256 = hex(&self.digest.finalize());
        Summary { table: table.name, rows: self.count, sha256 }
    }
}

fn head(table: &Table) -> Value {
    let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    json!({"table": table.name, "columns": columns})
}

/// Writes an archive.
pub(super) struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(mut out: W) -> Result<Writer<W>, ArchiveError> {
        writeln!(out, "{}", json!({"format": FORMAT}))?;
        Ok(Writer { out })
    }

    pub(super) fn table(&mut self, table: &Table) -> Result<(), ArchiveError> {
        writeln!(self.out, "{}", head(table))?;
        Ok(())
    }

    pub(super) fn row(&mut self, line: &[u8]) -> Result<(), ArchiveError> {
        self.out.write_all(line)?;
        Ok(())
    }

    pub(super) fn end_of(&mut self, summary: &Summary) -> Result<(), ArchiveError> {
        let Summary { table, rows, sha256 } = summary;
        writeln!(self.out, "{}", json!({"end": table, "rows": rows, "sha256": sha256}))?;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), ArchiveError> {
        writeln!(self.out, "{}", json!({"complete": true}))?;
        self.out.flush()?;
        Ok(())
    }
}

/// What stands in a table.
pub(super) enum Line {
    Row(Vec<Value>),
    End(Summary),
}

/// Reads an archive.
pub(super) struct Reader<R> {
    archive: R,
    /// The number of the line that was read last.
    line: u64,
    rows: Rows,
    /// Whether the head of the table under way was read.
    begun: bool,
}

impl<R: BufRead> Reader<R> {
    pub(super) fn new(archive: R) -> Result<Reader<R>, ArchiveError> {
        let mut reader = Reader { archive, line: 0, rows: Rows::default(), begun: false };
        let (_, first) = reader.read()?;
        if first != json!({"format": FORMAT}) {
            return Err(reader.fault(format!("it is no archive of `asp db export` in the form {FORMAT}")));
        }
        Ok(reader)
    }

    /// The next row of `table`, or its end.
    pub(super) fn next(&mut self, table: &Table) -> Result<Line, ArchiveError> {
        if !std::mem::replace(&mut self.begun, true) {
            let (_, found) = self.read()?;
            if found != head(table) {
                let own = head(table);
                return Err(self.fault(format!(
                    "here begins {found}, and this version of asp has {own}: export and import with the same version"
                )));
            }
        }
        let (line, value) = self.read()?;
        match value {
            Value::Array(values) => {
                self.fits(table, &values)?;
                self.rows.take(&line);
                Ok(Line::Row(values))
            }
            end => {
                self.begun = false;
                let summary = std::mem::take(&mut self.rows).summary(table);
                let Summary { table, rows, sha256 } = &summary;
                if end != json!({"end": table, "rows": rows, "sha256": sha256}) {
                    return Err(self.fault(format!(
                        "{rows} rows of {table} with the checksum {sha256} stand before {end}: the archive was changed"
                    )));
                }
                Ok(Line::End(summary))
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<(), ArchiveError> {
        match self.read()? {
            (_, last) if last == json!({"complete": true}) => Ok(()),
            (_, other) => Err(self.fault(format!("the end is expected, and {other} is there"))),
        }
    }

    fn fits(&self, table: &Table, values: &[Value]) -> Result<(), ArchiveError> {
        if values.len() != table.columns.len() {
            let fault =
                format!("a row of {} has {} values, not {}", table.name, values.len(), table.columns.len());
            return Err(self.fault(fault));
        }
        for (column, value) in table.columns.iter().zip(values) {
            let fits = value.is_null()
                || match column.kind {
                    Kind::Text => value.is_string(),
                    Kind::Integer | Kind::Flag => value.is_i64(),
                    Kind::Bytes => bytes(value).is_some(),
                };
            if !fits {
                return Err(self.fault(format!("{} of a row of {} is {value}", column.name, table.name)));
            }
        }
        Ok(())
    }

    /// The next line, and what it says.
    fn read(&mut self) -> Result<(Vec<u8>, Value), ArchiveError> {
        self.line += 1;
        let mut line = Vec::new();
        self.archive.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(self.fault("the archive ends here: it is not whole".into()));
        }
        if line.last() != Some(&b'\n') {
            return Err(self.fault(format!("it is cut, or longer than {MAX_LINE} bytes")));
        }
        match serde_json::from_slice(&line) {
            Ok(value) => Ok((line, value)),
            Err(error) => Err(self.fault(format!("it is no JSON: {error}"))),
        }
    }

    fn fault(&self, fault: String) -> ArchiveError {
        ArchiveError::Malformed { line: self.line, fault }
    }
}
