//! Python wheels: pure, for every Python 3.
//!
//! Source: the binary distribution format (PEP 427), version identifiers (PEP 440), core metadata 2.1.

use std::fs::File;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::zip::Archive;
use super::{Content, Entries, PackEntry, add_own, reserved};

const TAG: &str = "py3-none-any";

/// Returns `<name>-<version>-py3-none-any.whl`.
pub(super) fn file_name(id: &str, version: &str) -> String {
    format!("{}-{TAG}.whl", stem(id, version))
}

/// Writes the wheel: the code at its root, and the wheel's metadata in `.dist-info`.
pub(super) fn write(file: File, mut entries: Entries, id: &str, version: &str) -> anyhow::Result<()> {
    let information = format!("{}.dist-info", stem(id, version));
    let metadata =
        format!("Metadata-Version: 2.1\nName: {}\nVersion: {}\n", distribution(id), python_version(version));
    let wheel = format!("Wheel-Version: 1.0\nGenerator: asp\nRoot-Is-Purelib: true\nTag: {TAG}\n");
    add_own(&mut entries, format!("{information}/METADATA"), metadata)?;
    add_own(&mut entries, format!("{information}/WHEEL"), wheel)?;
    let record_path = format!("{information}/RECORD");
    if entries.contains_key(&record_path) {
        return Err(reserved(&record_path));
    }
    let mut archive = Archive::new(file);
    let mut record = String::new();
    for (path, entry) in entries {
        let bytes = archive.add(&path, entry)?;
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(&bytes));
        record.push_str(&format!("{},sha256={digest},{}\n", quoted(&path), bytes.len()));
    }
    record.push_str(&format!("{},,\n", quoted(&record_path)));
    let record = PackEntry { content: Content::Bytes(record.into_bytes()), executable: false };
    archive.add(&record_path, record)?;
    archive.finish()
}

fn stem(id: &str, version: &str) -> String {
    format!("{}-{}", distribution(id), python_version(version).replace('-', "_"))
}

/// Returns the normalized name (PEP 503), with `_`, because a wheel's file name is split at `-`.
fn distribution(id: &str) -> String {
    let mut name = String::new();
    for part in id.split(['-', '_', '.']).filter(|part| !part.is_empty()) {
        if !name.is_empty() {
            name.push('_');
        }
        name.push_str(&part.to_ascii_lowercase());
    }
    name
}

/// Converts a semantic version to Python's form: `1.0.0-rc.1` becomes `1.0.0rc1`. A pre-release without an equivalent becomes
/// a development release with the original text in its local part.
fn python_version(version: &str) -> String {
    let (public, build) = version.split_once('+').unwrap_or((version, ""));
    let (release, pre) = public.split_once('-').unwrap_or((public, ""));
    let mut local: Vec<String> = Vec::new();
    let mut text = release.to_owned();
    if !pre.is_empty() {
        match prerelease(pre) {
            Some(written) => text.push_str(&written),
            None => {
                text.push_str(".dev0");
                local.push(local_part(pre));
            }
        }
    }
    if !build.is_empty() {
        local.push(local_part(build));
    }
    if !local.is_empty() {
        text.push('+');
        text.push_str(&local.join("."));
    }
    text
}

fn prerelease(pre: &str) -> Option<String> {
    let (word, number) = pre.split_once('.').unwrap_or((pre, "0"));
    let short = match word {
        "alpha" | "a" => "a",
        "beta" | "b" => "b",
        "rc" => "rc",
        _ => return None,
    };
    let number: u32 = number.parse().ok()?;
    Some(format!("{short}{number}"))
}

/// Returns a local version part (PEP 440): letters and digits, separated by dots.
fn local_part(text: &str) -> String {
    text.to_ascii_lowercase()
        .replace('-', ".")
        .split('.')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(".")
}

/// Returns a field of a CSV line.
fn quoted(path: &str) -> String {
    if path.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", path.replace('"', "\"\""))
    } else {
        path.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_those_python_compares_by() {
        for (id, version, name) in [
            ("greet", "1.0.0", "greet-1.0.0-py3-none-any.whl"),
            ("Greet-all.now", "1.2.3", "greet_all_now-1.2.3-py3-none-any.whl"),
            ("a--b", "1.0.0-rc.1", "a_b-1.0.0rc1-py3-none-any.whl"),
            ("a", "1.0.0-alpha", "a-1.0.0a0-py3-none-any.whl"),
            ("a", "1.0.0-x-y.2+b-5", "a-1.0.0.dev0+x.y.2.b.5-py3-none-any.whl"),
        ] {
            assert_eq!(file_name(id, version), name);
        }
    }

    #[test]
    fn a_path_with_a_comma_is_one_field() {
        assert_eq!(quoted("a,b\".py"), "\"a,b\"\".py\"");
        assert_eq!(quoted("a.py"), "a.py");
    }
}
