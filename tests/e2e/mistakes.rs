//! Typical mistakes of a plugin's author, in each language: `asp dev` shows the lines of `docs/mistakes.md`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use asp_e2e::process::Process;
use asp_e2e::wait::ErrorDetails;
use asp_e2e::{tool, wait};
use serde_json::json;

use crate::clients::{self, Place};
use crate::dev::{Author, block, ready};
use crate::plugins::MODES;
use crate::trial::{Shared, trials};

trials! { mistakes:
    authors_in_python_see_cause_place_and_remedy,
    authors_in_node_see_cause_place_and_remedy,
    authors_in_java_see_cause_place_and_remedy,
}

/// Each mistake of the tables: the server that makes it, and the name that its tool is called with.
const MISTAKES: [(&str, &str, &str); 11] = [
    ("result of a wrong type", "greet", "wrong_type"),
    ("exception at import", "load", "Ada"),
    ("exception in a call", "greet", "exception"),
    ("missing dependency", "lacks", "Ada"),
    ("infinite loop", "greet", "infinite_loop"),
    ("blocking call", "greet", "blocking_call"),
    ("print to standard output", "greet", "stdout"),
    ("blocked network", "greet", "network"),
    ("huge result", "greet", "huge_result"),
    ("bad log level", "greet", "log_level"),
    ("exit", "greet", "exit"),
];

async fn authors_in_python_see_cause_place_and_remedy(_: &Shared) -> Result<()> {
    shows_each_mistake("Python", "python", "main.py").await
}

async fn authors_in_node_see_cause_place_and_remedy(_: &Shared) -> Result<()> {
    shows_each_mistake("Node", "node", "main.mjs").await
}

async fn authors_in_java_see_cause_place_and_remedy(_: &Shared) -> Result<()> {
    shows_each_mistake("Java", "java", "Main.java").await
}

/// Makes each mistake, with the code of `tests/fixtures/mistakes`.
async fn shows_each_mistake(heading: &str, language: &str, file: &str) -> Result<()> {
    let table = table(heading)?;
    let names: Vec<&str> = table.iter().map(|(name, _)| name.as_str()).collect();
    ensure!(names == MISTAKES.map(|(name, ..)| name), "docs/mistakes.md has other mistakes: {names:?}");
    let author = Author::new()?;
    for server in ["greet", "load", "lacks"] {
        author.server_in(language, server).await?;
        let code = tool::root()?.join("tests/fixtures/mistakes").join(server).join(file);
        fs::copy(code, author.root.join(server).join("plugins").join(server).join(file))?;
    }
    if language == "java" {
        // A thread may wait as long as the call may last.
        limit(&author.root.join("greet/greet.yaml"))?;
    }
    let dev = author.dev(&["--port", "0"])?;
    ready(&dev).await?;
    for ((name, texts), (_, server, argument)) in table.iter().zip(MISTAKES) {
        // What does not load or build may be reported before the call.
        let before = if server == "greet" { dev.log().lines().len() } else { 0 };
        call(&dev, server, argument).await?;
        for text in texts {
            let what = format!("{name}: {text}");
            let seen =
                || async { dev.log().lines()[before..].iter().any(|line| shows(text, line)).then_some(()) };
            wait::until(&what, wait::START, seen).await.with_details(|| dev.tail())?;
        }
    }
    Ok(())
}

fn limit(spec: &Path) -> Result<()> {
    let text = fs::read_to_string(spec)?;
    Ok(fs::write(spec, text + "capabilities: {maxRuntimeSeconds: 10}\n")?)
}

/// Returns the table below a heading of the page: each mistake, and the lines that are shown.
fn table(heading: &str) -> Result<Vec<(String, Vec<String>)>> {
    let page = fs::read_to_string(tool::root()?.join("docs/mistakes.md"))?;
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(heading));
    let rows = section.with_context(|| format!("no section {heading}"))?.lines();
    rows.filter(|line| line.starts_with("| ")).skip(1).map(row).collect()
}

fn row(line: &str) -> Result<(String, Vec<String>)> {
    // An escaped bar belongs to its cell.
    let line = line.replace("\\|", "\0");
    let cells: Vec<String> =
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('\0', "|")).collect();
    let [name, shown, remedy] = cells.as_slice() else { anyhow::bail!("not three cells: {line}") };
    let texts: Vec<String> = shown.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    ensure!(!texts.is_empty() && !remedy.is_empty(), "{name}: no text or no remedy");
    Ok((name.clone(), texts))
}

/// Whether a line contains the parts of a text between its ellipses, in order.
fn shows(text: &str, line: &str) -> bool {
    let mut rest = line;
    text.split('…').all(|part| {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
        true
    })
}

/// Calls the tool of a server by the official client, whatever comes of it.
async fn call(dev: &Process, server: &str, name: &str) -> Result<()> {
    let block = block(dev).context("the block of an mcp.json is printed")?;
    let entry = &block["mcpServers"][server];
    // A server whose code does not build is not there.
    let Some(url) = entry["url"].as_str() else { return Ok(()) };
    let authorization = entry["headers"]["Authorization"].as_str().context("a header")?;
    let token = authorization.strip_prefix("Bearer ").context("a bearer token")?;
    let place = Place { url, token, tools: &[], environment: &[] };
    let (mode, _) = MODES[0];
    // Err: an error answer, which some mistakes come to.
    let _ = clients::python_calls(&place, mode, server, &json!({"name": name})).await;
    Ok(())
}
