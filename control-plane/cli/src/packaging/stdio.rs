//! The command line of a stdio MCP server, from the `manifest.json` of its package (MCP bundle, `server.mcp_config`).
//!
//! Keeps true: the command comes from the installed package and from nowhere else. What a bundle may want beyond a
//! program and its arguments (an environment, a user's settings) is refused rather than left out.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

const MANIFEST: &str = "manifest.json";
const MAX_BYTES: u64 = 1 << 20;
const MAX_WORDS: usize = 64;
/// How a bundle names the folder it is unpacked to.
const HERE: &str = "${__dirname}/";

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Value(String),
}

#[derive(Deserialize)]
struct Bundle {
    server: Server,
}

#[derive(Deserialize)]
struct Server {
    mcp_config: Config,
}

#[derive(Deserialize)]
struct Config {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Map<String, Value>,
}

/// The words of the command: a language's interpreter or a program of the package, and its arguments; files of
/// the package are relative to it.
pub fn command(package: &Path) -> Result<Vec<String>, CommandError> {
    let mut text = String::new();
    fs::File::open(package.join(MANIFEST))?.take(MAX_BYTES).read_to_string(&mut text)?;
    let bundle: Bundle = serde_json::from_str(&text)?;
    let config = bundle.server.mcp_config;
    if !config.env.is_empty() {
        return Err(CommandError::Value("server.mcp_config.env: a worker's environment is fixed".into()));
    }
    let words: Vec<String> = [config.command].into_iter().chain(config.args).map(relative).collect();
    let unknown = words.iter().find(|word| word.contains("${"));
    if let Some(word) = unknown {
        return Err(CommandError::Value(format!("server.mcp_config: `{word}` has no meaning here")));
    }
    if words.len() > MAX_WORDS
        || words.iter().any(|word| word.contains('\0'))
        || words.first().is_none_or(String::is_empty)
    {
        return Err(CommandError::Value("server.mcp_config has no command, or too long a one".into()));
    }
    Ok(words)
}

fn relative(word: String) -> String {
    word.strip_prefix(HERE).map(str::to_owned).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(manifest: &str) -> Result<Vec<String>, String> {
        let package = tempfile::tempdir().unwrap();
        fs::write(package.path().join(MANIFEST), manifest).unwrap();
        command(package.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bundles_command_is_relative_to_its_package() {
        let bundle = r#"{"manifest_version": "0.3", "name": "s", "server": {"type": "node", "entry_point": "x/s.js",
            "mcp_config": {"command": "node", "args": ["${__dirname}/x/s.js", "stdio"]}}}"#;
        assert_eq!(read(bundle).unwrap(), ["node", "x/s.js", "stdio"]);
        let own = r#"{"server": {"mcp_config": {"command": "${__dirname}/bin/s"}}}"#;
        assert_eq!(read(own).unwrap(), ["bin/s"]);
    }

    #[test]
    fn what_a_worker_cannot_have_is_refused() {
        for wrong in [
            "",
            "{}",
            r#"{"server": {"mcp_config": {"command": ""}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"KEY": "x"}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "args": ["${user_config.dir}"]}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "args": [1]}}}"#,
            r#"{"server": {"mcp_config": {"command": "a\u0000b"}}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
