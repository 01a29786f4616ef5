//! What a person, or a program, is told: where servers are, what took effect, what has a fault.
//!
//! Owns standard output. The tokens in it are of the development issuer, which only this session trusts.

use serde_json::{Map, Value, json};

use super::Served;
use super::load::Loaded;
use crate::print;
use crate::serve::standing::standing;
use crate::stack::{ready, table};

/// RFC 6750 section 2.1.
const SCHEME: &str = "Bearer ";

/// What was told so far.
pub(super) struct Told {
    json: bool,
    url: String,
    admin: String,
    /// The value of the header, its scheme included.
    authorization: String,
    /// The servers whose URLs were told.
    servers: Vec<String>,
    /// The revision that was told.
    revision: Option<u64>,
}

impl Told {
    pub(super) fn new(json: bool, served: &Served) -> anyhow::Result<Told> {
        let token = ready::client_token(&served.issuer)?;
        Ok(Told {
            json,
            url: served.urls.edge.clone(),
            admin: served.urls.admin.clone(),
            authorization: format!("{SCHEME}{}", token.expose()),
            servers: Vec::new(),
            revision: None,
        })
    }

    /// Something is in force. What of it does not work is told as a table.
    pub(super) async fn in_force(&mut self, loaded: &Loaded, served: &Served) {
        let known = std::mem::replace(&mut self.servers, loaded.servers.clone());
        let news: Vec<&String> = loaded.servers.iter().filter(|server| !known.contains(server)).collect();
        if self.json && !(news.is_empty() && known.len() == loaded.servers.len()) {
            print::line(&self.for_programs().to_string());
        } else if !news.is_empty() {
            print::line("A client's mcp.json takes:\n");
            print::json(&json!({ "mcpServers": self.block(&news) }));
            print::line("");
        }
        match self.revision.replace(loaded.revision) {
            None => print::line(&format!("ready: {} (Ctrl-C ends it)", self.url)),
            Some(before) => print::line(&in_words(loaded, &known, before)),
        }
        for id in &loaded.typed {
            let root = &served.machine.root;
            print::line(&format!("the types of {id} may have changed: run asp plugin build {root}"));
        }
        for fault in &loaded.left_out {
            print::line(&format!("fault: {fault}"));
        }
        for failed in &loaded.not_installed {
            print::line(&format!("fault: plugin {}: {} ({})", failed.id, failed.why, failed.way_out));
        }
        let (servers, machine) = standing(&served.gateway, &served.died, served.machine.clone()).await;
        if table::is_all_on(&servers, &machine) {
            return;
        }
        print::line(&format!("\n{}", table::render(&servers, &machine)));
    }

    /// Something has faults, and nothing of it is in force.
    pub(super) fn refused(&self, faults: &[String]) {
        for fault in faults {
            print::line(&format!("fault: {fault}"));
        }
        let stays = match self.revision {
            None => "nothing is served until this is mended",
            Some(_) => "what was served before stays in force until this is mended",
        };
        print::line(&format!("not applied: {} faults; {stays}", faults.len()));
    }

    /// Everything, in one line.
    fn for_programs(&self) -> Value {
        let token = self.authorization.strip_prefix(SCHEME).unwrap_or_default();
        let servers: Vec<&String> = self.servers.iter().collect();
        json!({ "url": self.url, "admin": self.admin, "token": token, "mcpServers": self.block(&servers) })
    }

    /// What a client's `mcp.json` takes.
    fn block(&self, servers: &[&String]) -> Value {
        let entry = |server: &&String| {
            let url = format!("{}/{server}/mcp", self.url);
            let headers = json!({ "Authorization": self.authorization });
            ((*server).clone(), json!({ "type": "http", "url": url, "headers": headers }))
        };
        Value::Object(servers.iter().map(entry).collect::<Map<String, Value>>())
    }
}

fn in_words(loaded: &Loaded, known: &[String], before: u64) -> String {
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
