//! Command line and variables of a stdio MCP server, from the `manifest.json` of its package (MCP bundle, `server.mcp_config`).
//!
//! Keeps true: the command comes only from the installed package. A variable is a constant, a list of paths in the package,
//! or the name of one of the operator's secrets; anything else in a bundle is rejected rather than ignored.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const MANIFEST: &str = "manifest.json";
const MAX_BYTES: u64 = 1 << 20;
const MAX_WORDS: usize = 64;
/// Name of the unpacked folder in a bundle.
const HERE: &str = "${__dirname}/";
const PACKAGE: &str = "${__dirname}";
/// Prefixes of a value that names a secret: the platform's own, and the one with which published bundles ask their user.
const SECRETS: [&str; 2] = ["${secret:", "${user_config."];
/// Variables set by the runtime, as listed in `runtime/README.md`, which a bundle may not set; each also in lower case.
const OWN: [&str; 9] =
    ["HOME", "TMPDIR", "PATH", "LANG", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "GLIBC_TUNABLES"];

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

/// Command line and variables of a package.
#[derive(Debug)]
pub struct Launch {
    /// A language's interpreter or a program in the package, and its arguments; paths in the package are relative to it.
    pub command: Vec<String>,
    /// Variables in the form of `plugin.json`.
    pub env: Map<String, Value>,
}

/// Reads the `manifest.json` of a package.
pub fn launch(package: &Path) -> anyhow::Result<Launch> {
    let mut text = String::new();
    let file = fs::File::open(package.join(MANIFEST));
    let read = file.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.context("it cannot be read")?;
    let bundle: Bundle = serde_json::from_str(&text)?;
    let Config { command, args, env } = bundle.server.mcp_config;
    let env = env.into_iter().map(|(name, value)| {
        let set =
            variable(&name, &value).map_err(|fault| anyhow!("server.mcp_config.env.{name}: {fault}"))?;
        Ok((name, set))
    });
    let env = env.collect::<anyhow::Result<Map<_, _>>>()?;
    Ok(Launch { command: words(command, args)?, env })
}

/// Rejects a name of a variable that a package cannot set.
pub fn check_variable(name: &str) -> Result<(), &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let upper = name.to_ascii_uppercase();
    if name.is_empty() || !name.bytes().all(plain) || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err("a variable has a name of letters, digits and `_`");
    }
    if OWN.contains(&upper.as_str()) || upper.starts_with("ASP_") || upper.starts_with("LD_") {
        return Err("the runtime sets this variable");
    }
    Ok(())
}

fn variable(name: &str, value: &Value) -> Result<Value, &'static str> {
    check_variable(name)?;
    let text = value.as_str().ok_or("a variable is a text")?;
    let named = SECRETS.iter().find_map(|prefix| text.strip_prefix(prefix)?.strip_suffix('}'));
    if let Some(secret) = named {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let fits = (1..=63).contains(&secret.len()) && secret.bytes().all(plain);
        return if fits {
            Ok(json!({ "secret": secret }))
        } else {
            Err("a secret has a name of letters, digits, `-`, `_` and `.`")
        };
    }
    if text.contains(PACKAGE) {
        let below = |part: &str| match part.strip_prefix(HERE) {
            Some(path) => Some(path.trim_end_matches('/').to_owned()),
            None => (part == PACKAGE).then(|| ".".to_owned()),
        };
        let paths: Option<Vec<String>> = text.split(':').map(below).collect();
        return paths
            .map(|paths| json!({ "paths": paths }))
            .ok_or("paths are below ${__dirname}, separated by `:`");
    }
    if text.contains("${") {
        return Err("only ${__dirname}, ${secret:NAME} and ${user_config.NAME} have a meaning here");
    }
    Ok(json!({ "value": text }))
}

fn words(command: String, args: Vec<String>) -> anyhow::Result<Vec<String>> {
    let words: Vec<String> = [command].into_iter().chain(args).map(relative).collect();
    let unknown = words.iter().find(|word| word.contains("${"));
    if let Some(word) = unknown {
        bail!("server.mcp_config: `{word}` has no meaning here");
    }
    if words.len() > MAX_WORDS
        || words.iter().any(|word| word.contains('\0'))
        || words.first().is_none_or(String::is_empty)
    {
        bail!("server.mcp_config has no command, or it is too long");
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
        launch(package.path()).map(|launch| launch.command).map_err(|error| error.to_string())
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
    fn a_variable_is_a_constant_paths_of_the_package_or_the_name_of_a_secret() {
        let package = tempfile::tempdir().unwrap();
        let env = json!({"PYTHONPATH": "${__dirname}/server/lib/:${__dirname}", "API_KEY": "${user_config.crm_key}",
            "TOKEN": "${secret:crm.token}", "NODE_ENV": "production"});
        let bundle = json!({"server": {"mcp_config": {"command": "python", "args": ["s.py"], "env": env}}});
        fs::write(package.path().join(MANIFEST), bundle.to_string()).unwrap();
        let expected = json!({"PYTHONPATH": {"paths": ["server/lib", "."]}, "API_KEY": {"secret": "crm_key"},
            "TOKEN": {"secret": "crm.token"}, "NODE_ENV": {"value": "production"}});
        assert_eq!(Value::Object(launch(package.path()).unwrap().env), expected);
    }

    #[test]
    fn what_a_worker_cannot_have_is_refused() {
        for wrong in [
            "",
            "{}",
            r#"{"server": {"mcp_config": {"command": ""}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"KEY": 1}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"KEY": "a${secret:b}"}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"KEY": "${secret:}"}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"KEY": "${HOME}"}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"P": "${__dirname}/a:/etc"}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"LD_PRELOAD": "${__dirname}/x.so"}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"https_proxy": "http://x"}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "env": {"A=B": "x"}}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "args": ["${secret:key}"]}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "args": ["${user_config.dir}"]}}}"#,
            r#"{"server": {"mcp_config": {"command": "node", "args": [1]}}}"#,
            r#"{"server": {"mcp_config": {"command": "a\u0000b"}}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
