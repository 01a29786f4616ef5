//! An MCP server that speaks on standard input and output: the manifest's own command.
//!
//! Keeps true: the program is one of the runtime's interpreters or a file of the package, and no other program of the
//! machine; an argument that names a file of the package becomes its path, because the server starts in its work
//! directory.

use std::path::Path;

use super::{Command, MEBIBYTE, prefixes, text};
use crate::cause::FullHeap;
use crate::plugin::manifest::is_relative;
use crate::refusal::Refusal;
use crate::settings::Languages;

pub(super) fn command(
    languages: &Languages,
    words: &[String],
    package: &Path,
    memory: u64,
) -> Result<Command, Refusal> {
    let (program, rest) = words.split_first().ok_or(Refusal::LanguageAbsent("command"))?;
    let mebibytes = memory / MEBIBYTE;
    let mut full_heap = FullHeap::Unknown;
    let (interpreter, flag) = match program.as_str() {
        "python" | "python3" => {
            (languages.python.as_deref().ok_or(Refusal::LanguageAbsent("python"))?, "-B".into())
        }
        "node" => {
            let node = languages.node.as_ref().ok_or(Refusal::LanguageAbsent("node"))?;
            let heap = mebibytes / 4 * 3;
            full_heap = super::node::full_heap(heap);
            (node.binary.as_path(), format!("--max-old-space-size={heap}"))
        }
        "java" => {
            let (java, _) = languages.java.as_ref().ok_or(Refusal::LanguageAbsent("java"))?;
            (java.as_path(), format!("-Xmx{}m", mebibytes / 2))
        }
        own => {
            let path = package.join(own);
            if !is_relative(own) || !path.is_file() {
                return Err(Refusal::NotInstalled(format!("the package has no program {own}")));
            }
            let argv = [text(&path)].into_iter().chain(rest.iter().map(|word| located(word, package)));
            return Ok(Command {
                secrets: Vec::new(),
                argv: argv.collect(),
                read_only: Vec::new(),
                full_heap,
            });
        }
    };
    let argv = [text(interpreter), flag].into_iter().chain(rest.iter().map(|word| located(word, package)));
    let mut read_only = prefixes(interpreter);
    if program.starts_with("python") {
        read_only = super::python::command(interpreter).read_only;
    }
    Ok(Command { secrets: Vec::new(), argv: argv.collect(), read_only, full_heap })
}

fn located(word: &str, package: &Path) -> String {
    let path = package.join(word);
    if is_relative(word) && path.exists() { text(&path) } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_an_interpreter_or_a_file_of_the_package() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path();
        std::fs::write(package.join("server.py"), "").unwrap();
        let languages = Languages { python: Some("/opt/p/bin/python".into()), ..Languages::default() };
        let make = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command(&languages, &words, package, 64 * MEBIBYTE).map(|command| command.argv)
        };
        let server = text(&package.join("server.py"));
        assert_eq!(
            make(&["python", "server.py", "--flag", "other"]).unwrap(),
            ["/opt/p/bin/python", "-B", &server, "--flag", "other"]
        );
        assert_eq!(make(&["server.py", "x"]).unwrap(), [server.as_str(), "x"]);
        for refused in ["node", "/bin/sh", "../sh", "sh"] {
            assert!(make(&[refused]).is_err(), "{refused}");
        }
    }
}
