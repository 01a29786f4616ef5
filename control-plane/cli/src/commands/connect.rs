//! `asp connect`: prints or writes the entry of a client for a server.
//!
//! Keeps true: other entries of the client's file stay; a file that is not plain JSON is not touched; no token is written.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::shell;
use asp_protocols::connect::ClientProgram;
use serde_json::{Map, Value, json};

use super::answer;
use super::mcp::edge_url;
use crate::args::connect::ConnectArgs;
use crate::bridge;

/// Prints or writes the entry.
pub fn run(args: &ConnectArgs) -> Result<(), Failure> {
    let program = ClientProgram::parse(&args.client)
        .ok_or_else(|| Failure::bad("--client", format!("`{}` is not a known client", args.client)))?;
    let url = bridge::below(edge_url(args.url.as_deref(), &ProcessEnvironment)?, &args.server, "mcp");
    let url = url.context("the URL of the platform has no path below it")?;
    let name = args.name.as_deref().unwrap_or(&args.server);
    let document = program.document(name, url.as_str(), args.token);
    if args.write {
        let of_project = program.file().map(Path::new);
        let file = args.file.as_deref().or(of_project).ok_or_else(|| {
            Failure::bad(
                "--write",
                format!("{} has no file of servers: run the printed command", program.title()),
            )
        })?;
        write(file, name, &document)?;
        let words = format!("{} has {name} at {url} now", file.display());
        let written = json!({ "file": file.display().to_string(), "name": name, "url": url.as_str() });
        answer::show(&written, args.json, &words);
        return Ok(());
    }
    let command = program.command(&shell::word(name), &shell::word(url.as_str()), args.token);
    let link = program.link(name, url.as_str());
    if args.json {
        let entry = program.file().map(|_| &document);
        print::json(&json!({ "file": program.file(), "entry": entry, "command": command, "link": link }));
        return Ok(());
    }
    if let Some(file) = program.file() {
        print::note(&format!("in {file}:"));
        print::json(&document);
    }
    for (what, text) in [("or run:", command), ("or open:", link)] {
        if let Some(text) = text {
            print::note(what);
            print::line(&text);
        }
    }
    Ok(())
}

/// Adds the document's entry to a file, which is made if it is missing.
fn write(file: &Path, name: &str, document: &Value) -> anyhow::Result<()> {
    let shown = file.display();
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "{}".to_owned(),
        Err(error) => return Err(error).with_context(|| format!("read {shown}")),
    };
    let known: Option<Map<String, Value>> = serde_json::from_str(&text).ok();
    let mut known = known.ok_or_else(|| {
        anyhow!("{shown} is not a plain JSON object, maybe it has comments: add the entry by hand, without --write")
    })?;
    merge(&mut known, document).with_context(|| format!("add {name} to {shown}"))?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let text = format!("{}\n", serde_json::to_string_pretty(&known)?);
    std::fs::write(file, text).with_context(|| format!("write {shown}"))
}

/// Adds the entry and the questions of a document to those of a file.
fn merge(known: &mut Map<String, Value>, document: &Value) -> anyhow::Result<()> {
    for (member, added) in document.as_object().into_iter().flatten() {
        let own = known.entry(member.clone()).or_insert_with(|| match added {
            Value::Array(_) => Value::Array(Vec::new()),
            _ => Value::Object(Map::new()),
        });
        match (own, added) {
            (Value::Object(own), Value::Object(added)) => {
                for (key, entry) in added {
                    if own.get(key).is_some_and(|former| former != entry) {
                        bail!("it has another entry {key}: choose a name with --name, or remove that entry");
                    }
                    own.insert(key.clone(), entry.clone());
                }
            }
            (Value::Array(own), Value::Array(added)) => {
                let is_new = |entry: &&Value| own.iter().all(|former| former.get("id") != entry.get("id"));
                let new: Vec<Value> = added.iter().filter(is_new).cloned().collect();
                own.extend(new);
            }
            _ => bail!("its member {member} has another form"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(before: Option<&str>, name: &str, document: &Value) -> anyhow::Result<Value> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(".vscode/mcp.json");
        if let Some(before) = before {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, before).unwrap();
        }
        write(&file, name, document)?;
        Ok(serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap())
    }

    #[test]
    fn an_entry_joins_those_of_the_file() {
        let document = ClientProgram::VsCode.document("demo", "http://a/demo/mcp", true);
        assert_eq!(written(None, "demo", &document).unwrap(), document);
        let before = r#"{"servers": {"other": {"command": "x"}}, "inputs": [{"id": "key"}]}"#;
        let after = written(Some(before), "demo", &document).unwrap();
        assert_eq!(after["servers"]["other"], json!({ "command": "x" }));
        assert_eq!(after["servers"]["demo"], document["servers"]["demo"]);
        assert_eq!(after["inputs"].as_array().unwrap().len(), 2);
        assert_eq!(written(Some(&after.to_string()), "demo", &document).unwrap(), after, "twice is once");
    }

    #[test]
    fn a_file_that_would_lose_something_stays() {
        let document = ClientProgram::Cursor.document("demo", "http://a/demo/mcp", false);
        let fault = |before: &str| format!("{:#}", written(Some(before), "demo", &document).unwrap_err());
        assert!(fault("// mine\n{}").contains("comments"));
        assert!(fault(r#"{"mcpServers": {"demo": {"url": "http://b"}}}"#).contains("--name"));
        assert!(fault(r#"{"mcpServers": []}"#).contains("another form"));
    }
}
