//! Parsers of settings' values. An error completes a sentence that begins with the setting's name.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use asp_platform::operator_list::{self, ListEntry};

/// Value of a setting that is a list. clap would take a `Vec` for an argument that may be repeated.
pub(super) type List<T> = Vec<T>;

/// Returns a parser of numbers within `range`.
pub(super) fn number<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text: &str| match text.parse::<T>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("must be a number from {} to {}, not `{text}`", range.start(), range.end())),
    }
}

/// Returns a parser of words, each of which stands for a value.
pub(super) fn choice<T>(
    words: &'static [(&'static str, T)],
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: Copy + Send + Sync + 'static,
{
    move |text: &str| {
        let chosen = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        chosen.ok_or_else(|| {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            format!("must be {}, not `{text}`", words.join(" or "))
        })
    }
}

/// Parses the entries between commas. The error names every bad one.
pub(super) fn list<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<List<T>, String> {
    let mut entries = Vec::new();
    let mut faults = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        match parse(entry) {
            Ok(entry) => entries.push(entry),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(entries) } else { Err(faults.join("; ")) }
}

/// Parses `VALUE[;for=…]` entries.
pub(super) fn list_entries(text: &str) -> Result<List<ListEntry>, String> {
    operator_list::parse(text).map_err(|faults| faults.join("; "))
}

/// Makes a path absolute: Envoy and other processes would resolve a relative one from their own directory.
pub(super) fn absolute(text: &str) -> io::Result<PathBuf> {
    std::path::absolute(text)
}

/// Reads a file of at most `limit` bytes. No fault repeats its text.
pub(super) fn small_file(path: &Path, limit: u64, too_large: &str) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > limit {
        return Err(too_large.to_owned());
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

pub(super) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not an IP address"))
}

/// Parses `host:port` with a literal address: Envoy's endpoint discovery does not resolve names.
pub(super) fn socket_address(text: &str) -> Result<String, String> {
    let parsed = text.parse::<SocketAddr>();
    parsed.map(|_| text.to_owned()).map_err(|_| format!("must be <ip>:<port>, not `{text}`"))
}

/// Parses an http(s) origin: scheme, host, optional port; no path, query or trailing slash.
pub(super) fn origin(text: &str) -> Result<String, String> {
    match is_origin(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("must be http(s)://host[:port] without a path, not `{text}`")),
    }
}

/// Parses origins separated by commas.
pub(super) fn origins(text: &str) -> Result<List<String>, String> {
    list(text, origin)
}

/// Whether the text is scheme, host and optional port only.
pub(super) fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !host.is_empty() && host.chars().all(plain)
}

/// Parses the name of a server.
pub(super) fn server_name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match (1..=63).contains(&text.len()) && text.bytes().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err(format!("must be 1 to 63 of a-z 0-9 -, not `{text}`")),
    }
}

/// Parses names of servers separated by commas.
pub(super) fn server_names(text: &str) -> Result<List<String>, String> {
    list(text, server_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reports_every_bad_entry() {
        assert_eq!(list("1, 2,,", number(1..=2_u8)).unwrap(), [1, 2]);
        assert_eq!(origins("https://a,b,c").unwrap_err().matches("not `").count(), 2);
        assert_eq!(
            choice(&[("on", true), ("off", false)])("maybe").unwrap_err(),
            "must be `on` or `off`, not `maybe`"
        );
    }
}
