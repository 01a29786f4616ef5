//! Pages for people who open the platform's address in a browser: `/` lists the public servers, `/{server}` shows how to
//! connect to one.
//!
//! Keeps true: they show no more than the registry and a 401 do: `/` the listed servers, where the operator lists them; a server
//! that is not listed its address alone; a server without discovery nothing. Programs, which do not accept HTML, get the answer
//! for an unknown path.

use asp_proto::snapshot::Protocol;
use asp_snapshot::{Snapshot, VirtualServer};
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode, header};

use crate::connect::ClientProgram;
use crate::html::{self, escaped};
use crate::registry::is_listed;
use crate::replica::Replica;

/// Maximum number of servers on a page.
const MAX_SERVERS: usize = 100;

/// Answers a GET of a browser; `None` if there is no such page.
pub fn serve(gateway: &Replica, snapshot: &Snapshot, parts: &Parts) -> Option<Response> {
    let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
    if !is_read || !accepts_html(parts) {
        return None;
    }
    let public_url = &gateway.config.public_url;
    let body = match parts.uri.path().strip_prefix('/')? {
        "" => list(snapshot, gateway.config.registry.then_some(public_url)?),
        name => {
            let server = snapshot.server(name).filter(|server| !server.message.undiscovered)?;
            one(server, public_url, gateway.config.registry && is_listed(server))
        }
    };
    Some(html::page(StatusCode::OK, "MCP servers", &body, "no-referrer"))
}

fn accepts_html(parts: &Parts) -> bool {
    let mut accepted = parts.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/html"))
}

fn list(snapshot: &Snapshot, public_url: &str) -> String {
    let mut servers: Vec<&VirtualServer> =
        snapshot.servers().map(|server| &**server).filter(|server| is_listed(server)).collect();
    servers.sort_by(|one, other| one.message.name.cmp(&other.message.name));
    let lines: String = servers.iter().take(MAX_SERVERS).map(|server| line(server)).collect();
    let more = match servers.len().saturating_sub(MAX_SERVERS) {
        0 => String::new(),
        more => format!("<p>{more} more: <a href=\"/v0.1/servers\">/v0.1/servers</a></p>"),
    };
    let lines =
        if lines.is_empty() { "<p>No server is public.</p>".to_owned() } else { format!("<ul>{lines}</ul>") };
    format!("<h1>MCP servers at {}</h1>{lines}{more}", escaped(public_url))
}

fn line(server: &VirtualServer) -> String {
    let name = escaped(&server.message.name);
    format!("<li><a href=\"/{name}\">{name}</a>: {}</li>", escaped(&server.message.description))
}

/// Returns the page of a server; what it is only if it `is_public`.
fn one(server: &VirtualServer, public_url: &str, is_public: bool) -> String {
    let message = &server.message;
    let has = |protocol: Protocol| server.edge.protocols().any(|known| known == protocol);
    let title = if is_public && !message.title.is_empty() { &message.title } else { &message.name };
    let mut body = format!("<h1>{}</h1>", escaped(title));
    if is_public {
        body.push_str(&format!("<p>{}</p>", escaped(&message.description)));
    }
    if has(Protocol::Mcp) {
        body.push_str(&connections(&message.name, &format!("{public_url}/{}/mcp", message.name)));
    }
    for (protocol, title, path) in
        [(Protocol::A2a, "A2A", "a2a"), (Protocol::Rest, "REST", "rest/openapi.json")]
    {
        if has(protocol) {
            let url = escaped(&format!("{public_url}/{}/{path}", message.name));
            body.push_str(&format!("<h2>{title}</h2><p><code>{url}</code></p>"));
        }
    }
    body
}

/// Returns how each client connects to an MCP server.
fn connections(name: &str, url: &str) -> String {
    let mut body =
        format!("<p>MCP clients connect to <code>{}</code> and log in by themselves.</p>", escaped(url));
    for program in ClientProgram::ALL {
        body.push_str(&format!("<h2>{}</h2>", program.title()));
        if let Some(link) = program.link(name, url) {
            body.push_str(&format!("<p><a href=\"{}\">Add to {}</a></p>", escaped(&link), program.title()));
        }
        if let Some(command) = program.command(name, url, false) {
            body.push_str(&format!("<pre>{}</pre>", escaped(&command)));
        }
        if let Some(file) = program.file() {
            let entry = program.document(name, url, false).to_string();
            body.push_str(&format!("<p>In <code>{file}</code>:</p><pre>{}</pre>", escaped(&entry)));
        }
    }
    body
}
