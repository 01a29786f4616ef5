//! Entries of usual MCP clients for a server: what a person pastes into a file, runs or opens to connect.
//!
//! Owns the forms of the clients' files, commands and install links (`docs/clients.md`). Keeps true: no entry contains a token;
//! one that needs a token takes it from the environment of the client or asks for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Environment variable with the token of an entry.
const TOKEN: &str = "ASP_TOKEN";
/// Id of the question that VS Code asks for the token.
const TOKEN_INPUT: &str = "asp-token";

/// A program that connects to MCP servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientProgram {
    ClaudeCode,
    VsCode,
    Cursor,
    Inspector,
}

impl ClientProgram {
    /// All programs, in the order in which they are shown.
    pub const ALL: [ClientProgram; 4] =
        [ClientProgram::ClaudeCode, ClientProgram::VsCode, ClientProgram::Cursor, ClientProgram::Inspector];
    /// Their names on the command line, in the same order.
    pub const NAMES: [&'static str; 4] = ["claude-code", "vscode", "cursor", "inspector"];

    pub fn parse(name: &str) -> Option<ClientProgram> {
        let mut named = ClientProgram::NAMES.into_iter().zip(ClientProgram::ALL);
        named.find(|(known, _)| *known == name).map(|(_, program)| program)
    }

    /// Returns the program's name for people.
    pub fn title(self) -> &'static str {
        match self {
            ClientProgram::ClaudeCode => "Claude Code",
            ClientProgram::VsCode => "VS Code",
            ClientProgram::Cursor => "Cursor",
            ClientProgram::Inspector => "MCP Inspector",
        }
    }

    /// Returns the file of a project that lists its servers; `None` if it has none.
    pub fn file(self) -> Option<&'static str> {
        match self {
            ClientProgram::ClaudeCode => Some(".mcp.json"),
            ClientProgram::VsCode => Some(".vscode/mcp.json"),
            ClientProgram::Cursor => Some(".cursor/mcp.json"),
            ClientProgram::Inspector => None,
        }
    }

    /// Returns the content of that file for one server. `with_token`: the client sends a token of its user instead of
    /// logging in.
    pub fn document(self, name: &str, url: &str, with_token: bool) -> Value {
        let headers = with_token.then(|| {
            let token = match self {
                ClientProgram::VsCode => format!("${{input:{TOKEN_INPUT}}}"),
                ClientProgram::Cursor => format!("${{env:{TOKEN}}}"),
                ClientProgram::ClaudeCode | ClientProgram::Inspector => format!("${{{TOKEN}}}"),
            };
            ("headers".to_owned(), json!({ "Authorization": format!("Bearer {token}") }))
        });
        let kind = (self != ClientProgram::Cursor).then(|| ("type".to_owned(), json!("http")));
        let entry: Map<String, Value> =
            kind.into_iter().chain([("url".to_owned(), json!(url))]).chain(headers).collect();
        match self {
            ClientProgram::VsCode if with_token => json!({
                "servers": { name: entry },
                "inputs": [{ "type": "promptString", "id": TOKEN_INPUT, "description": "Token of the platform", "password": true }],
            }),
            ClientProgram::VsCode => json!({ "servers": { name: entry } }),
            _ => json!({ "mcpServers": { name: entry } }),
        }
    }

    /// Returns the command that connects; `None` if the program has none. `url` is one shell word.
    pub fn command(self, name: &str, url: &str, with_token: bool) -> Option<String> {
        let header =
            if with_token { format!(" --header \"Authorization: Bearer ${TOKEN}\"") } else { String::new() };
        match self {
            ClientProgram::ClaudeCode => {
                Some(format!("claude mcp add --transport http {name} {url}{header}"))
            }
            ClientProgram::Inspector => Some(format!(
                "npx @modelcontextprotocol/inspector@2 --cli {url} --transport http{header} --method tools/list"
            )),
            ClientProgram::VsCode | ClientProgram::Cursor => None,
        }
    }

    /// Returns the link that opens the program and adds the server; `None` if the program has none.
    pub fn link(self, name: &str, url: &str) -> Option<String> {
        let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        match self {
            ClientProgram::VsCode => {
                let entry = json!({ "name": name, "type": "http", "url": url });
                Some(format!("vscode:mcp/install?{}", encoded(&entry.to_string())))
            }
            ClientProgram::Cursor => {
                let entry = STANDARD.encode(json!({ "url": url }).to_string());
                let name = encoded(name);
                let entry = encoded(&entry);
                Some(format!("cursor://anysphere.cursor-deeplink/mcp/install?name={name}&config={entry}"))
            }
            ClientProgram::ClaudeCode | ClientProgram::Inspector => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://mcp.example.com/demo/mcp";

    #[test]
    fn each_program_has_the_form_of_its_file() {
        let document = |program: ClientProgram, with_token| program.document("demo", URL, with_token);
        assert_eq!(
            document(ClientProgram::ClaudeCode, true),
            json!({ "mcpServers": { "demo": { "type": "http", "url": URL,
                    "headers": { "Authorization": "Bearer ${ASP_TOKEN}" } } } })
        );
        assert_eq!(
            document(ClientProgram::VsCode, false),
            json!({ "servers": { "demo": { "type": "http", "url": URL } } })
        );
        assert_eq!(
            document(ClientProgram::VsCode, true)["servers"]["demo"]["headers"]["Authorization"],
            "Bearer ${input:asp-token}"
        );
        assert_eq!(document(ClientProgram::VsCode, true)["inputs"][0]["id"], "asp-token");
        assert_eq!(
            document(ClientProgram::Cursor, true),
            json!({ "mcpServers": { "demo": { "url": URL, "headers": { "Authorization": "Bearer ${env:ASP_TOKEN}" } } } })
        );
    }

    #[test]
    fn links_and_commands_name_the_server() {
        assert_eq!(
            ClientProgram::VsCode.link("demo", URL).unwrap(),
            "vscode:mcp/install?%7B%22name%22%3A%22demo%22%2C%22type%22%3A%22http%22%2C%22url%22%3A\
             %22https%3A%2F%2Fmcp.example.com%2Fdemo%2Fmcp%22%7D"
        );
        let cursor = ClientProgram::Cursor.link("demo", URL).unwrap();
        let (start, config) = cursor.split_once("&config=").unwrap();
        assert_eq!(start, "cursor://anysphere.cursor-deeplink/mcp/install?name=demo");
        let config =
            STANDARD.decode(config.replace("%3D", "=").replace("%2B", "+").replace("%2F", "/")).unwrap();
        assert_eq!(config, json!({ "url": URL }).to_string().as_bytes());
        assert_eq!(
            ClientProgram::ClaudeCode.command("demo", URL, true).unwrap(),
            format!(
                "claude mcp add --transport http demo {URL} --header \"Authorization: Bearer $ASP_TOKEN\""
            )
        );
        for (name, program) in ClientProgram::NAMES.into_iter().zip(ClientProgram::ALL) {
            assert_eq!(ClientProgram::parse(name), Some(program));
            assert!(
                program.command("demo", URL, false).is_some() || program.link("demo", URL).is_some(),
                "{name}"
            );
        }
        assert_eq!(ClientProgram::parse("nobody"), None);
    }
}
