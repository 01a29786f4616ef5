//! `asp plugin new`: a server folder with one working tool as a starting point.
//!
//! Never overwrites an existing file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;

use super::folder::at;

const SERVER: &str = include_str!("../templates/server.yaml");
const TOOL: &str = include_str!("../templates/tool.yaml");
/// Schema file that `asp plugin build` derives from the code in each language.
const SCHEMAS: &str = include_str!("../templates/schema.json");

/// Language of a plugin
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScaffoldLanguage {
    Python,
    Node,
    Java,
}

impl ScaffoldLanguage {
    /// Returns the name of the code file, its name in the spec, and its content.
    const fn code(self) -> (&'static str, &'static str, &'static str) {
        match self {
            ScaffoldLanguage::Python => ("main.py", "main.py", include_str!("../templates/python/main.py")),
            ScaffoldLanguage::Node => ("main.mjs", "main.mjs", include_str!("../templates/node/main.mjs")),
            ScaffoldLanguage::Java => ("Main.java", "Main", include_str!("../templates/java/Main.java")),
        }
    }
}

/// Writes `<root>/<server>/{server.yaml, <id>.yaml, <id>.schema.json, plugins/<id>/…}` and returns the files in that order.
pub fn new(root: &Path, id: &str, language: ScaffoldLanguage) -> anyhow::Result<Vec<PathBuf>> {
    let server = id.replace('_', "-");
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let first = id.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if !first || id.len() > 63 || !id.bytes().all(plain) {
        bail!(
            "`{id}` is not a valid id: use lower-case letters, digits, `_` and `-`, starting with a letter, at most 63 characters"
        );
    }
    let (file, entrypoint, code) = language.code();
    let word = language.to_possible_value();
    let word = word.as_ref().map_or("", |value| value.get_name());
    let filled = |template: &str| {
        [("server", server.as_str()), ("id", id), ("title", &title(id)), ("language", word)]
            .into_iter()
            .chain([("entrypoint", entrypoint)])
            .fold(template.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
    };
    let folder = root.join(&server);
    let files = [
        (folder.join("server.yaml"), filled(SERVER)),
        (folder.join(format!("{id}.yaml")), filled(TOOL)),
        (folder.join(asp_registry::schema_file_name(id)), filled(SCHEMAS)),
        (folder.join("plugins").join(id).join(file), code.to_owned()),
    ];
    if let Some((path, _)) = files.iter().find(|(path, _)| path.exists()) {
        bail!("{} exists already", path.display());
    }
    for (path, text) in &files {
        fs::create_dir_all(path.parent().unwrap_or(root)).with_context(at(path))?;
        // create_new: a file that another process creates at the same moment is not overwritten.
        fs::File::create_new(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(at(path))?;
    }
    Ok(files.map(|(path, _)| path).to_vec())
}

/// Turns `greet_all` into `Greet all`.
fn title(id: &str) -> String {
    let words = id.replace(['_', '-'], " ");
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_has_no_fault_in_any_language() {
        for language in [ScaffoldLanguage::Python, ScaffoldLanguage::Node, ScaffoldLanguage::Java] {
            let root = tempfile::tempdir().unwrap();
            new(root.path(), "greet_all", language).unwrap();
            let report = asp_registry::check(&asp_registry::read_dir(root.path()).unwrap());
            assert!(report.faults.is_empty() && report.warnings.is_empty(), "{report:?}");
            assert_eq!(report.catalog.unwrap().servers[0].server.name, "greet-all");
        }
    }

    #[test]
    fn a_first_tool_is_twelve_lines_of_code_and_fifteen_of_yaml_without_a_schema() {
        for language in [ScaffoldLanguage::Python, ScaffoldLanguage::Node, ScaffoldLanguage::Java] {
            let root = tempfile::tempdir().unwrap();
            let files = new(root.path(), "greet", language).unwrap();
            let text = |index: usize| fs::read_to_string(&files[index]).unwrap();
            assert!(text(0).lines().count() + text(1).lines().count() <= 15, "{language:?}");
            assert!(!text(1).contains("chema"), "{}", text(1));
            let says_what = |line: &&str| !line.is_empty() && !line.starts_with(['/', '"']);
            assert!(text(3).lines().filter(says_what).count() <= 12, "{}", text(3));
        }
    }

    #[test]
    fn nothing_that_is_there_is_touched() {
        let root = tempfile::tempdir().unwrap();
        new(root.path(), "hello", ScaffoldLanguage::Python).unwrap();
        let spec = root.path().join("hello/hello.yaml");
        fs::write(&spec, "mine").unwrap();
        let error = new(root.path(), "hello", ScaffoldLanguage::Node).unwrap_err();
        assert!(error.to_string().ends_with("exists already"), "{error}");
        assert_eq!(fs::read_to_string(spec).unwrap(), "mine");
    }

    #[test]
    fn an_id_that_could_leave_its_folder_is_refused() {
        let root = tempfile::tempdir().unwrap();
        for id in ["", "..", "a/b", "A", "1a", "-a", &"a".repeat(64)] {
            let error = new(root.path(), id, ScaffoldLanguage::Java).unwrap_err();
            assert!(error.to_string().contains("is not a valid id"), "{id}: {error}");
        }
    }
}
