//! Schemas derived from plugins' code: requested from the code in its sandbox, written next to the specs, compared.
//!
//! Derives them for plugins whose spec leaves the arguments to the code, and for those that already have a schema file. Keeps
//! true: a file matches the current code, or is reported to differ.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use asp_proto::snapshot::{Kind, runtime::Mode};
use asp_registry::{Source, schema_file, schema_file_name};
use serde_json::Value;

use super::languages::Languages;
use super::local::{Local, PluginOutcome};
use super::{Unit, examples, fingerprint};

/// Precedes the plugin's output in an error.
pub const OUTPUT: &str = "the plugin's output:";
/// Maximum number of lines shown of one difference.
const MAX_SHOWN: usize = 40;

/// Schemas of one primitive, from its code and as committed.
#[derive(Debug)]
pub struct PluginSchemas {
    pub id: String,
    pub path: PathBuf,
    /// Content for the file; `None` if the code declares nothing.
    pub said: Option<String>,
    /// `None` if there is no file.
    committed: Option<String>,
}

/// Place of the schemas of one primitive.
struct SchemaFile {
    id: String,
    path: PathBuf,
    /// `None` if there is no file.
    committed: Option<String>,
}

/// Returns the units of which a schema file is missing or older than the code.
pub fn outdated(root: &Path, sources: &[Source], units: &[Unit]) -> Result<Vec<Unit>> {
    let specs = examples::spec_files(sources)?;
    let mut found = Vec::new();
    for unit in units {
        let Some(folder) = &unit.folder else { continue };
        let changed = fingerprint::last_change(folder, &unit.language);
        let is_old = |file: &SchemaFile| {
            let written = fs::metadata(&file.path).and_then(|metadata| metadata.modified()).ok();
            written.is_none() || changed.is_none() || written < changed
        };
        if schema_files(root, &specs, unit)?.iter().any(is_old) {
            found.push(unit.clone());
        }
    }
    Ok(found)
}

/// Returns the schema files that the primitives of a unit have or should have.
fn schema_files(root: &Path, specs: &BTreeMap<String, String>, unit: &Unit) -> Result<Vec<SchemaFile>> {
    let mut found = Vec::new();
    for primitive in &unit.primitives {
        let is_tool = matches!(primitive.kind(), Kind::Tool | Kind::Task);
        let mode = primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
        let is_asked = is_tool && matches!(mode, Some(Mode::Plugin(_)));
        let Some(spec) = specs.get(&primitive.id).filter(|_| is_asked) else { continue };
        let path = root.join(spec).with_file_name(schema_file_name(&primitive.id));
        let committed = read(&path)?;
        if primitive.input_schema.is_empty() || committed.is_some() {
            found.push(SchemaFile { id: primitive.id.clone(), path, committed });
        }
    }
    Ok(found)
}

/// Derives the schemas of every primitive that should have a schema file. `sources` are the files of `root` from which the units
/// were read.
pub async fn from_code(root: &Path, sources: &[Source], units: &[Unit]) -> Result<Vec<PluginSchemas>> {
    let specs = examples::spec_files(sources)?;
    let mut asked = Vec::new();
    let mut wanted = Vec::new();
    for unit in units.iter().filter(|unit| unit.folder.is_some()) {
        let files = schema_files(root, &specs, unit)?;
        if !files.is_empty() {
            asked.push(unit.clone());
        }
        let language = &unit.language;
        wanted.extend(files.into_iter().map(|file| (file, language)));
    }
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let mut local = Local::start(&asked, Languages::find_async().await).await?;
    let mut found = Vec::new();
    for (SchemaFile { id, path, committed }, language) in wanted {
        let described = describe(&mut local, &id, language).await;
        let described = described.with_context(|| format!("{id}: read the schemas of the code"))?;
        let said = schema_file(&id, &described);
        found.push(PluginSchemas { id, path, said, committed });
    }
    Ok(found)
}

async fn describe(local: &mut Local, id: &str, language: &str) -> Result<Value> {
    let Some(plugin) = local.callable.iter().find(|plugin| plugin.id == id).cloned() else {
        bail!("plugins in {language} cannot run here");
    };
    match local.describe(&plugin).await {
        Ok(PluginOutcome::Completed(said)) if said.get("format") == Some(&1.into()) => Ok(said),
        Ok(PluginOutcome::Completed(_) | PluginOutcome::Error(_)) => {
            bail!("the plugin's library is too old to report its schemas; install the version of this asp")
        }
        Ok(PluginOutcome::Failed { code, message }) => bail!("{code}: {message}"),
        Err(error) => {
            let wrote = local.output_at_end().await.join("\n");
            if wrote.is_empty() {
                return Err(error);
            }
            bail!("{error:#}; {OUTPUT}\n{wrote}")
        }
    }
}

impl PluginSchemas {
    pub fn is_current(&self) -> bool {
        self.said == self.committed
    }

    /// Updates a file that the code has outdated, and returns a message if its content changed. A file of code that declares
    /// nothing stays, because its author may have written it.
    pub fn renew(&self) -> Result<Option<String>> {
        if self.said.is_none() {
            return Ok(None);
        }
        if !self.is_current() {
            return self.write().map(Some);
        }
        let file = fs::File::options().append(true).open(&self.path);
        // It is as new as the code now, which need not be asked again.
        let marked = file.and_then(|file| file.set_modified(SystemTime::now()));
        marked.with_context(|| format!("write {}", self.path.display()))?;
        Ok(None)
    }

    /// Updates the file to match the code; returns a message about what was done.
    pub fn write(&self) -> Result<String> {
        let path = self.path.display();
        match &self.said {
            Some(text) => {
                fs::write(&self.path, text).with_context(|| format!("write {path}"))?;
                Ok(format!("wrote {path}"))
            }
            None => {
                fs::remove_file(&self.path).with_context(|| format!("remove {path}"))?;
                Ok(format!("removed {path}: the code of {} declares no types any more", self.id))
            }
        }
    }

    /// Returns the differing lines, committed (`-`) and from the code (`+`).
    pub fn difference(&self) -> String {
        let path = self.path.display();
        match (&self.committed, &self.said) {
            (None, _) => format!("{path} is missing"),
            (Some(_), None) => {
                format!("{path} exists, but the code of {} declares no schemas any more", self.id)
            }
            (Some(committed), Some(said)) => {
                format!("{path} differs from the code:\n{}", lines(committed, said))
            }
        }
    }
}

fn lines(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.lines().collect();
    let new: Vec<&str> = new.lines().collect();
    let same = |(old, new): &(&&str, &&str)| old == new;
    let before = old.iter().zip(&new).take_while(same).count();
    let left = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev()).take(left).take_while(same).count();
    let parted = |sign: char, lines: &[&str]| -> Vec<String> {
        let changed = lines.get(before..lines.len() - after).unwrap_or_default();
        changed.iter().map(|line| format!("{sign} {line}")).collect()
    };
    let mut shown = [parted('-', &old), parted('+', &new)].concat();
    let more = shown.len().saturating_sub(MAX_SHOWN);
    shown.truncate(MAX_SHOWN);
    if more > 0 {
        shown.push(format!("… and {more} more lines"));
    }
    shown.join("\n")
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_the_lines_that_part_and_no_others() {
        let old = "{\n  \"a\": 1,\n  \"b\": 2\n}\n";
        let new = "{\n  \"a\": 1,\n  \"b\": 3,\n  \"c\": 4\n}\n";
        assert_eq!(lines(old, new), "-   \"b\": 2\n+   \"b\": 3,\n+   \"c\": 4");
        assert_eq!(lines("a\na\n", "a\n"), "- a");
        assert_eq!(lines("a\n", "a\n"), "");
        let many: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert!(lines("", &many).ends_with("… and 60 more lines"));
    }
}
