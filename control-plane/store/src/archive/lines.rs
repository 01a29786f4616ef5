//! The lines of an archive.
//!
//! The first line names the format. Each table follows in its order: `{"table", "columns"}`, one line per row (an array
//! of its values, bytes in Base64), and `{"end", "rows", "sha256"}` with the digest of the row lines. The last line is
//! `{"complete": true}`.
//! Refuses: lines longer than [`MAX_LINE`], another order, other columns, a wrong digest and a truncated archive.

use std::io::{BufRead, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::tables::{ArchiveTable, Kind};
use super::{ArchiveError, Result, Summary};
use crate::hex::hex;

/// Format name and version in the first line.
const FORMAT: &str = "asp-archive/1";
/// Maximum length of a line in bytes; the outcome of a call may be large.
const MAX_LINE: u64 = 256 << 20;

/// Encodes bytes as the text of a row.
pub(super) fn text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes the bytes of a value; `None` for null.
pub(super) fn bytes(value: &Value) -> Option<Vec<u8>> {
    // The reader has rejected anything that is not Base64.
    value.as_str().and_then(|text| STANDARD.decode(text).ok())
}

/// Serializes a row as one line, with its line break.
pub(super) fn row(values: &[Value]) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(values).map_err(std::io::Error::from)?;
    line.push(b'\n');
    Ok(line)
}

/// Number and digest of rows.
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

    pub(super) fn summary(self, table: &ArchiveTable) -> Summary {
        let sha256 = hex(&self.digest.finalize());
        Summary { table: table.name, rows: self.count, sha256 }
    }
}

fn head(table: &ArchiveTable) -> Value {
    let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    json!({"table": table.name, "columns": columns})
}

/// Writer of an archive.
pub(super) struct ArchiveWriter<W> {
    out: W,
}

impl<W: Write> ArchiveWriter<W> {
    pub(super) fn new(mut out: W) -> Result<ArchiveWriter<W>> {
        writeln!(out, "{}", json!({"format": FORMAT}))?;
        Ok(ArchiveWriter { out })
    }

    pub(super) fn table(&mut self, table: &ArchiveTable) -> Result<()> {
        writeln!(self.out, "{}", head(table))?;
        Ok(())
    }

    pub(super) fn row(&mut self, line: &[u8]) -> Result<()> {
        self.out.write_all(line)?;
        Ok(())
    }

    pub(super) fn end_of(&mut self, summary: &Summary) -> Result<()> {
        let Summary { table, rows, sha256 } = summary;
        writeln!(self.out, "{}", json!({"end": table, "rows": rows, "sha256": sha256}))?;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        writeln!(self.out, "{}", json!({"complete": true}))?;
        self.out.flush()?;
        Ok(())
    }
}

/// A line of a table after its head.
pub(super) enum TableLine {
    Row(Vec<Value>),
    End(Summary),
}

/// Reader of an archive.
pub(super) struct ArchiveReader<R> {
    archive: R,
    /// Number of the last line read.
    line: u64,
    rows: Rows,
    /// Whether the head of the current table has been read.
    begun: bool,
}

impl<R: BufRead> ArchiveReader<R> {
    pub(super) fn new(archive: R) -> Result<ArchiveReader<R>> {
        let mut reader = ArchiveReader { archive, line: 0, rows: Rows::default(), begun: false };
        let (_, first) = reader.read()?;
        if first != json!({"format": FORMAT}) {
            return Err(
                reader.fault(format!("it is not an archive of `asp db export` in the format {FORMAT}"))
            );
        }
        Ok(reader)
    }

    /// Returns the next row of `table`, or its end.
    pub(super) fn next(&mut self, table: &ArchiveTable) -> Result<TableLine> {
        if !std::mem::replace(&mut self.begun, true) {
            let (_, found) = self.read()?;
            if found != head(table) {
                let own = head(table);
                return Err(self.fault(format!(
                    "{found} starts here, but this version of asp has {own}: export and import with the same version"
                )));
            }
        }
        let (line, value) = self.read()?;
        match value {
            Value::Array(values) => {
                self.fits(table, &values)?;
                self.rows.take(&line);
                Ok(TableLine::Row(values))
            }
            end => {
                self.begun = false;
                let summary = std::mem::take(&mut self.rows).summary(table);
                let Summary { table, rows, sha256 } = &summary;
                if end != json!({"end": table, "rows": rows, "sha256": sha256}) {
                    return Err(self.fault(format!(
                        "{rows} rows of {table} with the checksum {sha256} precede {end}: the archive was changed"
                    )));
                }
                Ok(TableLine::End(summary))
            }
        }
    }

    pub(super) fn finish(mut self) -> Result<()> {
        match self.read()? {
            (_, last) if last == json!({"complete": true}) => Ok(()),
            (_, other) => Err(self.fault(format!("the end is expected, but {other} was found"))),
        }
    }

    fn fits(&self, table: &ArchiveTable, values: &[Value]) -> Result<()> {
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

    /// Reads the next line; returns it raw and parsed.
    fn read(&mut self) -> Result<(Vec<u8>, Value)> {
        self.line += 1;
        let mut line = Vec::new();
        self.archive.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(self.fault("the archive ends here: it is incomplete".into()));
        }
        if line.last() != Some(&b'\n') {
            return Err(self.fault(format!("it is truncated, or longer than {MAX_LINE} bytes")));
        }
        match serde_json::from_slice(&line) {
            Ok(value) => Ok((line, value)),
            Err(error) => Err(self.fault(format!("it is not JSON: {error}"))),
        }
    }

    fn fault(&self, fault: String) -> ArchiveError {
        ArchiveError::Malformed { line: self.line, fault }
    }
}
