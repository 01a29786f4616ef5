//! Reports of whole runs: the raw figures as JSON and a table as Markdown, in files named by the time of the run.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use time::OffsetDateTime;

/// Current UTC time in a form that sorts, e.g. `20261121T235900Z`.
pub fn timestamp() -> String {
    timestamp_of(OffsetDateTime::now_utc())
}

/// Writes `<time>.json` and `text` as `<time>.md` into `directory` and prints the latter.
///
/// # Errors
///
/// A file that cannot be written.
pub fn write(directory: &Path, time: &str, figures: &impl Serialize, text: &str) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let json = directory.join(format!("{time}.json"));
    std::fs::write(&json, serde_json::to_string_pretty(figures)?)?;
    std::fs::write(directory.join(format!("{time}.md")), text)?;
    println!("{text}");
    println!("raw data: {}", json.display());
    Ok(())
}

fn timestamp_of(now: OffsetDateTime) -> String {
    let date = now.date();
    let time = now.time();
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_sorts_by_time() {
        assert_eq!(timestamp_of(OffsetDateTime::UNIX_EPOCH), "19700101T000000Z");
    }
}
