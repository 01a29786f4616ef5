//! Output of a session: URLs of servers, what took effect, and faults.
//!
//! Owns standard output: text for a person, or only lines of JSON for programs, with the text on standard error; if standard
//! output belongs to an MCP client, nothing is written there. The tokens in the output are from the development issuer, which
//! only this session trusts.

use std::path::Path;

use asp_command::print;
use serde_json::{Map, Value, json};

use super::load::{LoadRefusal, LoadResult};
use super::{Readers, SessionContext};
use crate::serve::standing::status;
use crate::stack::{ready, table};

/// Prefix of a bearer token in the header (RFC 6750 section 2.1).
const SCHEME: &str = "Bearer ";

/// Destination of lines for a person.
#[derive(Clone, Copy)]
pub(super) struct LineOutput {
    /// Whether a person reads standard output.
    pub(super) on_output: bool,
}

impl LineOutput {
    pub(super) fn print(self, text: &str) {
        if self.on_output { print::line(text) } else { print::note(text) }
    }
}

/// State of the output so far.
pub(super) struct SessionReporter {
    line_output: LineOutput,
    /// Whether programs read standard output.
    json: bool,
    /// Command that mints a token for this session.
    mint: String,
    url: String,
    admin: String,
    /// Value of the header, including the scheme.
    authorization: String,
    /// Servers whose URLs have been announced.
    servers: Vec<String>,
    /// Last revision announced.
    revision: Option<u64>,
    /// Unused secrets that have been reported.
    unused_secrets: Vec<String>,
}

impl SessionReporter {
    pub(super) fn new(readers: &Readers, served: &SessionContext) -> anyhow::Result<SessionReporter> {
        let token = ready::client_token(&served.issuer)?;
        Ok(SessionReporter {
            line_output: LineOutput { on_output: *readers == Readers::Person },
            json: *readers == Readers::Programs,
            mint: format!("ASP_STATE_DIR={} asp token", quoted(&served.state_dir)),
            url: served.urls.edge.clone(),
            admin: served.urls.admin.clone(),
            authorization: format!("{SCHEME}{}", token.expose()),
            servers: Vec::new(),
            revision: None,
            unused_secrets: Vec::new(),
        })
    }

    /// Reports a load that is in force, with a table of what does not work.
    pub(super) async fn report_load(&mut self, loaded: &LoadResult, served: &SessionContext) {
        let known = std::mem::replace(&mut self.servers, loaded.servers.clone());
        let news: Vec<&String> = loaded.servers.iter().filter(|server| !known.contains(server)).collect();
        if self.json && !(news.is_empty() && known.len() == loaded.servers.len()) {
            print::line(&self.to_json_line().to_string());
        } else if self.line_output.on_output && !news.is_empty() {
            print::line("A client's mcp.json takes:\n");
            print::json(&json!({ "mcpServers": self.block(&news) }));
            print::line("");
        }
        match self.revision.replace(loaded.revision) {
            None => {
                self.print(&format!(
                    "tokens of other callers: {} --org {} --user bob",
                    self.mint,
                    ready::ORG
                ));
                self.print(&format!("ready: {} (Ctrl-C ends it)", self.url));
            }
            Some(before) => self.print(&describe_load(loaded, &known, before)),
        }
        loaded.notes.iter().for_each(|note| self.print(note));
        let unused = std::mem::replace(&mut self.unused_secrets, loaded.unused_secrets.clone());
        let news = loaded.unused_secrets.iter().filter(|secret| !unused.contains(secret));
        news.for_each(|secret| self.print(&format!("note: {secret}")));
        loaded.left_out.iter().for_each(|fault| self.print(&format!("fault: {fault}")));
        for failed in &loaded.not_installed {
            let runtime = served.runtime.as_ref();
            let stays = match runtime.is_some_and(|runtime| runtime.has(&failed.id, &failed.version)) {
                true => "its code from before stays in force",
                false => "it is not served",
            };
            self.print(&format!("fault: plugin {}: {}; {stays} ({})", failed.id, failed.why, failed.remedy));
        }
        let (servers, machine) = status(&served.gateway, &served.died, served.machine.clone()).await;
        if table::is_all_on(&servers, &machine) {
            return;
        }
        self.print(&format!("\n{}", table::render(&servers, &machine)));
    }

    /// Reports faults because of which a load is not in force.
    pub(super) fn report_faults(&self, refused: &LoadRefusal) {
        let LoadRefusal { faults, notes } = refused;
        notes.iter().for_each(|note| self.print(note));
        faults.iter().for_each(|fault| self.print(&format!("fault: {fault}")));
        let stays = match self.revision {
            None => "nothing is served until this is mended",
            Some(_) => "the previous specs and code stay in force until this is fixed",
        };
        let count = faults.len();
        let plural = if count == 1 { "" } else { "s" };
        self.print(&format!("not applied: {count} fault{plural}; {stays}"));
    }

    fn print(&self, text: &str) {
        self.line_output.print(text);
    }

    /// Returns everything as one line of JSON.
    fn to_json_line(&self) -> Value {
        let token = self.authorization.strip_prefix(SCHEME).unwrap_or_default();
        let servers: Vec<&String> = self.servers.iter().collect();
        json!({
            "url": self.url, "admin": self.admin, "token": token, "mint": self.mint,
            "mcpServers": self.block(&servers),
        })
    }

    /// Returns the entry for a client's `mcp.json`.
    fn block(&self, servers: &[&String]) -> Value {
        let entry = |server: &&String| {
            let url = format!("{}/{server}/mcp", self.url);
            let headers = json!({ "Authorization": self.authorization });
            ((*server).clone(), json!({ "type": "http", "url": url, "headers": headers }))
        };
        Value::Object(servers.iter().map(entry).collect::<Map<String, Value>>())
    }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if text.bytes().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn describe_load(loaded: &LoadResult, known: &[String], before: u64) -> String {
    let mut news = Vec::new();
    if loaded.revision > before {
        news.push("specs".to_owned());
    }
    news.extend(loaded.plugins.iter().map(|plugin| format!("the code of {plugin}")));
    let gone = known.iter().filter(|server| !loaded.servers.contains(server));
    news.extend(gone.map(|server| format!("{server} is gone")));
    match news.is_empty() {
        true => "applied: nothing changed".to_owned(),
        false => format!("applied: {}", news.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_where_a_shell_would_read_it_otherwise() {
        assert_eq!(quoted(Path::new("/tmp/asp-dev1.x")), "/tmp/asp-dev1.x");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
