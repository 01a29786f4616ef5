//! The list of MCP servers in a client's own file: `mcpServers` of Claude, Cursor and Windsurf, `servers` of VS Code.
//!
//! Keeps true: nothing of the file is run; a value that the client would ask for or look up is taken from the environment or
//! reported as missing; keys have a type that prints as `***`.

use asp_command::environment::Environment;
use asp_platform::secret::Secret;
use reqwest::Url;
use serde_json::Value;

use super::command::{self, ClientKey, PackageCommand};

/// Places of the list, as JSON pointers: Claude and Cursor, VS Code, and the settings of VS Code.
const LISTS: [&str; 3] = ["/mcpServers", "/servers", "/mcp/servers"];

/// Start of the names of the platform's own variables. Some hold keys, such as `ASP_ADMIN_TOKEN`, which a file of somebody else must
/// not send to its servers.
const OF_PLATFORM: &str = "ASP_";

/// Members of an entry that a server may need and that are not imported, and what to do.
const UNREAD: [(&str, &str); 2] = [
    ("envFile", "write the variables of that file into `env`"),
    ("cwd", "its sandbox has a directory of its own"),
];

/// A server of the file.
pub(super) struct ClientEntry {
    pub(super) name: String,
    /// The server, or the reason why it cannot be imported.
    pub(super) server: Result<ClientServer, String>,
    /// Members that are left out, each with a remedy.
    pub(super) unread: Vec<(&'static str, &'static str)>,
}

/// A server as the client reaches it.
pub(super) enum ClientServer {
    Http { url: Url, headers: Vec<ClientKey> },
    Package { command: PackageCommand, variables: Vec<ClientKey> },
}

/// Reads the servers of a file. Comments and trailing commas are allowed, as VS Code allows them.
pub(super) fn entries(text: &str, environment: &dyn Environment) -> Result<Vec<ClientEntry>, String> {
    // Editors on Windows begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let file: Value = serde_json::from_str(&plain_json(text)).map_err(|error| error.to_string())?;
    let list = LISTS.iter().find_map(|pointer| file.pointer(pointer)?.as_object());
    let list = list.ok_or("it has neither `mcpServers` nor `servers`")?;
    if list.is_empty() {
        return Err("its list of servers is empty".to_owned());
    }
    let entry = |(name, entry): (&String, &Value)| ClientEntry {
        name: name.clone(),
        server: server(entry, environment),
        unread: UNREAD.into_iter().filter(|(member, _)| entry.get(member).is_some()).collect(),
    };
    Ok(list.iter().map(entry).collect())
}

fn server(entry: &Value, environment: &dyn Environment) -> Result<ClientServer, String> {
    let member = |name: &str| entry.get(name).and_then(Value::as_str);
    if entry.get("disabled") == Some(&Value::Bool(true)) {
        return Err("it is disabled in the file".to_owned());
    }
    if let Some(url) = member("url").or_else(|| member("serverUrl")) {
        if member("type").or_else(|| member("transport")) == Some("sse") {
            return Err(
                "it is HTTP with SSE of MCP 2024-11-05: name its Streamable HTTP URL in the file".to_owned()
            );
        }
        return Ok(ClientServer::Http {
            url: address(url)?,
            headers: keys(entry.get("headers"), environment),
        });
    }
    let command = member("command").ok_or("it has neither a `command` nor a `url`")?;
    let arguments = entry.get("args").and_then(Value::as_array).into_iter().flatten();
    let arguments: Vec<String> =
        arguments.map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
    let variables = keys(entry.get("env"), environment);
    let (program, arguments) = command::unwrap_shell(command, &arguments);
    if let Some((url, headers)) = command::bridge(program, arguments, &variables)? {
        return Ok(ClientServer::Http { url: address(&url)?, headers });
    }
    Ok(ClientServer::Package { command: command::package(program, arguments)?, variables })
}

/// Returns the URL of a server, which becomes part of specs.
fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    let url = url.filter(|_| !text.contains("${")).ok_or("its `url` is not an http or https URL")?;
    if url.query().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err("its URL has a query or a password, which may be a key, and a URL is part of the specs: write the key as a \
                    header, if the server takes it there"
            .to_owned());
    }
    Ok(url)
}

fn keys(object: Option<&Value>, environment: &dyn Environment) -> Vec<ClientKey> {
    let members = object.and_then(Value::as_object).into_iter().flatten();
    let key = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        ClientKey { name: name.clone(), value: resolve(&text, environment).map(Secret::new) }
    };
    members.map(key).collect()
}

/// Replaces `${env:NAME}`, `${NAME}` and `${NAME:-default}`; fails with the first placeholder that has no value. The platform's own
/// variables have none here.
fn resolve(text: &str, environment: &dyn Environment) -> Result<String, String> {
    let mut resolved = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((placeholder, left)) = after.split_once('}') else { break };
        let (name, default) = match placeholder.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (placeholder, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        let known = environment.get(name).filter(|_| !name.starts_with(OF_PLATFORM));
        let value = known.or(default);
        resolved.push_str(before);
        resolved.push_str(&value.ok_or_else(|| format!("${{{placeholder}}}"))?);
        rest = left;
    }
    resolved.push_str(rest);
    Ok(resolved)
}

/// Returns the text without comments and without commas before a closing bracket, which JSON does not have. White space stays, so
/// that an error of the parser names the line of the file.
fn plain_json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let comment = [("//", "\n"), ("/*", "*/")].into_iter().find(|(begin, _)| rest.starts_with(begin));
        if let Some((_, end)) = comment {
            let skipped = rest.find(end).map_or(rest.len(), |at| at + end.len());
            let (left_out, after) = rest.split_at(skipped);
            plain.extend(left_out.chars().filter(|char| *char == '\n'));
            rest = after;
            continue;
        }
        if matches!(first, '}' | ']')
            && let Some(kept) = plain.trim_end().strip_suffix(',').map(str::len)
        {
            plain.remove(kept);
        }
        let length = if first == '"' { string_length(rest) } else { first.len_utf8() };
        plain.push_str(rest.get(..length).unwrap_or_default());
        rest = rest.get(length..).unwrap_or_default();
    }
    plain
}

/// Returns the length of the string at the start of a text, in bytes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(text: &str) -> BTreeMap<String, Result<ClientServer, String>> {
        let environment =
            BTreeMap::from([("TEAM_TOKEN", "from the environment"), ("ASP_ADMIN_TOKEN", "of the platform")]);
        let found = entries(text, &environment).unwrap();
        found.into_iter().map(|entry| (entry.name, entry.server)).collect()
    }

    fn shown(keys: &[ClientKey]) -> Vec<(&str, Result<&str, &str>)> {
        keys.iter()
            .map(|key| (key.name.as_str(), key.value.as_ref().map(Secret::expose).map_err(String::as_str)))
            .collect()
    }

    #[test]
    fn the_files_of_three_clients_are_read() {
        let claude = r#"{"mcpServers": {"github": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"],
            "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_1"}}}}"#;
        let found = read(claude);
        let Ok(ClientServer::Package { command, variables }) = &found["github"] else { panic!() };
        assert_eq!(command.name, "@modelcontextprotocol/server-github");
        assert_eq!(shown(variables), [("GITHUB_PERSONAL_ACCESS_TOKEN", Ok("ghp_1"))]);

        let code = r#"{
            // of the team
            "inputs": [{"id": "key", "type": "promptString", "password": true},],
            "servers": {
                "crm": {"type": "http", "url": "https://crm.example/mcp", "headers": {"Authorization": "Bearer ${input:key}"}},
                /* over SSE */
                "old": {"type": "sse", "url": "https://old.example/sse"},
            },
        }"#;
        let found = read(code);
        let Ok(ClientServer::Http { url, headers }) = &found["crm"] else { panic!() };
        assert_eq!(
            (url.as_str(), shown(headers)),
            ("https://crm.example/mcp", vec![("Authorization", Err("${input:key}"))])
        );
        assert!(found["old"].as_ref().err().unwrap().contains("Streamable HTTP"));

        let cursor = r#"{"mcpServers": {"a": {"url": "https://a.example/mcp", "headers": {"X-Key": "${env:TEAM_TOKEN}"}},
            "b": {"url": "https://b.example/mcp", "headers": {"X-Key": "${NONE:-plain // text}"}},
            "c": {"command": "uvx", "args": ["mcp-server-time"], "disabled": true}}}"#;
        let found = read(cursor);
        let Ok(ClientServer::Http { headers, .. }) = &found["a"] else { panic!() };
        assert_eq!(shown(headers), [("X-Key", Ok("from the environment"))]);
        let Ok(ClientServer::Http { headers, .. }) = &found["b"] else { panic!() };
        assert_eq!(shown(headers), [("X-Key", Ok("plain // text"))]);
        assert_eq!(found["c"].as_ref().err().unwrap(), "it is disabled in the file");
    }

    #[test]
    fn no_server_gets_a_key_of_the_platform() {
        for text in ["${ASP_ADMIN_TOKEN}", "${env:ASP_ADMIN_TOKEN}"] {
            let entry = format!(r#"{{"url": "https://a.example/mcp", "headers": {{"X-Key": "{text}"}}}}"#);
            let found = read(&format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#));
            let Ok(ClientServer::Http { headers, .. }) = &found["a"] else { panic!() };
            assert_eq!(shown(headers), [("X-Key", Err(text))]);
        }
    }

    #[test]
    fn a_url_that_may_hold_a_key_and_an_entry_without_a_place_are_left_out() {
        for (entry, reason) in [
            (r#"{"url": "https://a.example/mcp?apiKey=x"}"#, "query"),
            (r#"{"url": "https://u:p@a.example/mcp"}"#, "query or a password"),
            (r#"{"url": "https://${input:host}/mcp"}"#, "not an http or https URL"),
            (r#"{"url": "file:///x"}"#, "not an http or https URL"),
            ("{}", "neither a `command` nor a `url`"),
        ] {
            let found = read(&format!("{{\"servers\": {{\"a\": {entry}}}}}"));
            let fault = found["a"].as_ref().err().unwrap();
            assert!(fault.contains(reason), "{fault}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_says_why_and_in_which_of_its_lines() {
        let none = BTreeMap::<&str, &str>::new();
        let fault = |text: &str| entries(text, &none).err().unwrap_or_default();
        assert_eq!(fault("{}"), "it has neither `mcpServers` nor `servers`");
        assert_eq!(fault("{\"mcpServers\": {}}"), "its list of servers is empty");
        let text = "// a\n/* b\nc */\n{\"servers\": {\n\"a\": [1,\n],\n\"b\" 1}}";
        assert!(fault(text).contains("line 7 "), "{}", fault(text));
        assert_eq!(fault("\u{feff}{\"servers\": {\"a\": {}}}"), "", "a byte order mark is no fault");
    }

    #[test]
    fn a_member_that_the_server_may_need_is_reported_as_left_out() {
        let none = BTreeMap::<&str, &str>::new();
        let text = r#"{"servers": {"a": {"command": "npx", "args": ["kit"], "envFile": "${workspaceFolder}/.env"}}}"#;
        let found = entries(text, &none).unwrap();
        assert_eq!(found[0].unread.iter().map(|(member, _)| *member).collect::<Vec<_>>(), ["envFile"]);
    }
}
