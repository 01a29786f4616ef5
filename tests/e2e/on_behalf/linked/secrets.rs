//! A search for secrets wherever a platform leaves something: files, databases, logs, answers, spans and environments.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};

/// Bytes of each form that are looked for.
const WIDTH: usize = 16;

/// The beginnings of secrets in each form in which they might be somewhere.
pub(super) struct Needles {
    beginnings: HashSet<[u8; WIDTH]>,
    /// Whether a beginning has these first two bytes.
    pairs: Vec<bool>,
}

impl Needles {
    /// A secret with periods, such as a JWT, is looked for by each of its parts too.
    pub(super) fn of<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Result<Needles> {
        let mut needles = Needles { beginnings: HashSet::new(), pairs: vec![false; 1 << 16] };
        for secret in secrets {
            ensure!(secret.len() >= WIDTH, "a secret of {} bytes cannot be told from chance", secret.len());
            for part in secret.split('.').chain([secret]).filter(|part| part.len() >= WIDTH) {
                for form in forms(part) {
                    let beginning = form.first_chunk::<WIDTH>().context("a form is as long as its secret")?;
                    needles.pairs[pair(beginning)] = true;
                    needles.beginnings.insert(*beginning);
                }
            }
        }
        Ok(needles)
    }

    pub(super) fn are_in(&self, haystack: &[u8]) -> bool {
        let is_beginning = |window: &[u8]| self.pairs[pair(window)] && self.beginnings.contains(window);
        haystack.windows(WIDTH).any(is_beginning)
    }

    /// The files below a directory that have one.
    pub(super) fn in_files(&self, directory: &Path) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut left: Vec<PathBuf> = vec![directory.to_owned()];
        while let Some(path) = left.pop() {
            // Err: databases delete files all the time.
            let Ok(kind) = fs::symlink_metadata(&path).map(|about| about.file_type()) else { continue };
            if kind.is_dir() {
                match fs::read_dir(&path) {
                    Ok(entries) => left.extend(entries.flatten().map(|entry| entry.path())),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            } else if kind.is_file() && fs::read(&path).is_ok_and(|content| self.are_in(&content)) {
                found.push(path.display().to_string());
            }
        }
        Ok(found)
    }

    /// The logs and environments that have one.
    pub(super) fn in_process(&self, name: &str, process: &Process) -> Result<Vec<String>> {
        let mut found = Vec::new();
        if self.are_in(process.log().lines().join("\n").as_bytes()) {
            found.push(format!("log of {name}"));
        }
        let id = process.id().context("the process runs")?;
        if self.are_in(&fs::read(format!("/proc/{id}/environ"))?) {
            found.push(format!("environment of {name}"));
        }
        Ok(found)
    }
}

/// The secret as it is, as hex digits, and as base64 that begins anywhere before it.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![secret.as_bytes().to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()];
    for (before, skipped) in [(0, 0), (1, 2), (2, 3)] {
        let bytes = [&[0_u8; 2][..before], secret.as_bytes()].concat();
        for engine in [BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD] {
            forms.push(engine.encode(&bytes).into_bytes().split_off(skipped));
        }
    }
    forms
}

fn pair(bytes: &[u8]) -> usize {
    (usize::from(bytes[0]) << 8) | usize::from(bytes[1])
}
