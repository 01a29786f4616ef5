//! `/all/mcp` with the 500 tools of 20 servers of `tests/catalog/tools.tsv`, one of whose services is down: how large the
//! lists of all servers are, how large the one list is that stands for them, and how long both take at the edge.
//!
//! That the right tool is among the first five found is asserted by the tests of the search (`control-plane/snapshot/src/search.rs`
//! with `tests/catalog/questions.tsv`).

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{Connection, Request, Response};
use asp_e2e::spread::percentile;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool::{self, Build};
use serde::Serialize;
use serde_json::{Value, json};

use crate::goal::Goal;
use crate::plan::Plan;
use crate::progress::say;

/// The server whose service is down, and the host of that service.
const DOWN: &str = "weather";
const DEAD: &str = "down.internal";
const SERVERS: usize = 20;
const TOOLS: usize = 500;
const ALL: &str = "all";
const MODERN: &str = "2026-07-28";
const HEAD: &str = "version: 1.0.0\nowner: bench@example.com\ntags: [bench]\nsecurity: {riskClass: low}\nmutation: read_only\n";
/// Bytes of JSON per token: an estimate, since models differ.
const BYTES_A_TOKEN: usize = 4;
/// Part of the bytes that the list may have.
const LENGTH: f64 = 0.1;

/// Sizes and times of the lists.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Catalog {
    pub servers: usize,
    pub tools: usize,
    /// Bytes of the tools of every server's own list, and of the one list.
    pub separate_bytes: usize,
    pub all_bytes: usize,
    /// Tools in the one list.
    pub listed: usize,
    /// Times of every server's list one after the other, and of the one list, in milliseconds.
    pub separate_ms: Vec<f64>,
    pub all_ms: Vec<f64>,
}

/// A client with one connection.
struct Client {
    connection: Connection,
    token: String,
}

pub(crate) async fn measure(plan: &Plan) -> Result<Catalog> {
    say("500 tools at one address");
    let folder = tempfile::tempdir()?;
    let table = fs::read_to_string(tool::root()?.join("tests/catalog/tools.tsv"))?;
    let servers = write_specs(&table, folder.path())?;
    let options = Options {
        primitives: folder.path().to_owned(),
        dead_upstream: Some(DEAD.into()),
        ..Options::of(Build::own()?)
    };
    let stack = Stack::start(options).await?;
    let mut client = Client { connection: Connection::to(stack.edge()), token: stack.alice().await? };
    client.finds_one_down().await?;
    let mut found = Catalog { servers: servers.len(), ..Catalog::default() };
    for server in &servers {
        let tools = client.list(server).await?;
        found.tools += tools.len();
        found.separate_bytes += Value::Array(tools).to_string().len();
    }
    ensure!((found.servers, found.tools) == (SERVERS, TOOLS), "not the catalogue that is meant: {found:?}");
    let tools = client.list(ALL).await?;
    found.listed = tools.len();
    found.all_bytes = Value::Array(tools).to_string().len();
    let rounds = if plan.quick { 5 } else { 300 };
    for _ in 0..rounds {
        let began = Instant::now();
        for server in &servers {
            client.list(server).await?;
        }
        found.separate_ms.push(milliseconds(began.elapsed()));
        let began = Instant::now();
        client.list(ALL).await?;
        found.all_ms.push(milliseconds(began.elapsed()));
    }
    Ok(found)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Writes the specs of a table of server, name, description and arguments; returns the servers in their order.
fn write_specs(table: &str, folder: &Path) -> Result<Vec<String>> {
    let mut servers: Vec<(String, Vec<String>)> = Vec::new();
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [server, name, description, arguments] = cells.as_slice() else {
            anyhow::bail!("a row has four cells: {row}");
        };
        let at = folder.join(server);
        fs::create_dir_all(&at)?;
        fs::write(at.join(format!("{name}.yaml")), spec(server, name, description, arguments))?;
        let reference = format!("{{ref: {server}/{name}}}");
        match servers.last_mut().filter(|(last, _)| last == server) {
            Some((_, references)) => references.push(reference),
            None => servers.push(((*server).to_owned(), vec![reference])),
        }
    }
    for (server, references) in &servers {
        let text = format!(
            "apiVersion: asp/v1\nname: {server}\ntitle: {server}\ndescription: For the benchmark.\nversion: 1.0.0\n\
             protocols: [mcp]\nsessions: both\ndefaultExposure: allow\nauth: {{schemes: [jwt], issuers: [dev]}}\n\
             primitives: [{}]\n",
            references.join(", ")
        );
        fs::write(folder.join(server).join("server.yaml"), text)?;
    }
    Ok(servers.into_iter().map(|(server, _)| server).collect())
}

fn spec(server: &str, name: &str, description: &str, arguments: &str) -> String {
    let property = |argument: &str| {
        let description = format!("The {} of the request.", argument.replace('_', " "));
        (argument.to_owned(), json!({"type": "string", "description": description}))
    };
    let properties: Value = arguments.split(", ").map(property).collect();
    let schema = json!({"type": "object", "properties": properties});
    let runtime = match server == DOWN {
        true => format!("{{mode: proxy, mcp: {{url: \"http://{DEAD}/mcp\", tool: {name}}}}}"),
        false => "{mode: builtin, entrypoint: echo}".to_owned(),
    };
    format!(
        "id: {name}\nname: {name}\ntype: tool\n{HEAD}summary: {}\nprimitiveSchema:\n  input_schema: {schema}\n\
         runtime: {runtime}\n",
        json!(description)
    )
}

impl Client {
    /// Calls a tool whose service is down, and one of another server, at the address of all.
    async fn finds_one_down(&mut self) -> Result<()> {
        for (name, reason) in
            [("weather__get_forecast", Some("upstream_unavailable")), ("github__get_pull_request", None)]
        {
            let params = json!({"name": name, "arguments": {}});
            let answer = self.send(ALL, "tools/call", Some(name), params).await?.json()?;
            let said = answer.pointer("/result/_meta/asp~1reason").and_then(Value::as_str);
            ensure!(said == reason, "{name}: {answer}");
        }
        Ok(())
    }

    /// Returns the tools that a server lists, which are one page.
    async fn list(&mut self, server: &str) -> Result<Vec<Value>> {
        let answer = self.send(server, "tools/list", None, json!({})).await?.json()?;
        ensure!(answer.pointer("/result/nextCursor").is_none(), "{server}: more than a page");
        let tools = answer.pointer("/result/tools").and_then(Value::as_array).cloned();
        tools.with_context(|| format!("{server}: {answer}"))
    }

    async fn send(
        &mut self,
        server: &str,
        method: &str,
        name: Option<&str>,
        mut params: Value,
    ) -> Result<Response> {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN,
                          "io.modelcontextprotocol/clientCapabilities": {}});
        if let Some(params) = params.as_object_mut() {
            params.insert("_meta".into(), meta);
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let bearer = format!("Bearer {}", self.token);
        let mut headers = vec![
            ("authorization", bearer.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", MODERN),
            ("mcp-method", method),
        ];
        headers.extend(name.map(|name| ("mcp-name", name)));
        let request = Request {
            method: "POST".into(),
            target: format!("/{server}/mcp"),
            headers: headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            body: body.to_string().into_bytes(),
        };
        let answer = self.connection.send(&request).await?;
        ensure!(answer.status == 200, "/{server}/mcp, {method}: {} {}", answer.status, answer.text());
        Ok(answer)
    }
}

impl Catalog {
    fn part(&self) -> f64 {
        self.all_bytes as f64 / self.separate_bytes.max(1) as f64
    }

    pub(crate) fn judge(&self) -> Vec<Goal> {
        vec![Goal {
            goal: format!(
                "the list of /all/mcp with {TOOLS} tools has at most {LENGTH} of the tokens of its servers' own lists"
            ),
            met: self.all_bytes > 0 && self.part() <= LENGTH,
            figures: format!(
                "{:.3} of them: about {} against {} tokens",
                self.part(),
                self.all_bytes / BYTES_A_TOKEN,
                self.separate_bytes / BYTES_A_TOKEN
            ),
        }]
    }

    /// Writes the section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## {} tools at one address\n", self.tools)?;
        writeln!(
            text,
            "{} servers, one of whose services is down; `tools/list` of 2026-07-28 through Envoy over one connection, {} times, \
             and the whole answer. A list is what `result.tools` has as JSON; tokens are estimated as bytes / {BYTES_A_TOKEN}. \
             The right tool among the first five: the tests of `control-plane/snapshot/src/search.rs`.\n",
            self.servers,
            self.all_ms.len()
        )?;
        writeln!(text, "| | tools | bytes | tokens | p50 ms | p99 ms |\n|---|---|---|---|---|---|")?;
        for (name, tools, bytes, times) in [
            (
                "every server's own list, one after the other",
                self.tools,
                self.separate_bytes,
                &self.separate_ms,
            ),
            ("the list of `/all/mcp`", self.listed, self.all_bytes, &self.all_ms),
        ] {
            let [half, most] = [0.5, 0.99].map(|share| percentile(times, share).unwrap_or_default());
            writeln!(
                text,
                "| {name} | {tools} | {bytes} | {} | {half:.2} | {most:.2} |",
                bytes / BYTES_A_TOKEN
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_may_have_a_tenth() {
        let met = |all_bytes| {
            let found = Catalog { separate_bytes: 1000, all_bytes, ..Catalog::default() };
            found.judge().iter().map(|goal| goal.met).collect::<Vec<_>>()
        };
        assert_eq!([met(100), met(101), met(0)].concat(), [true, false, false]);
    }

    #[test]
    fn specs_are_those_of_the_table_and_one_service_is_down() {
        let folder = tempfile::tempdir().unwrap();
        let table = "# head\nweather\tget\tReturns it.\tcity, day\nmail\tsend\tSends: it.\tto\nmail\tread\tReads.\tid\n";
        assert_eq!(write_specs(table, folder.path()).unwrap(), ["weather", "mail"]);
        let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(read("weather/get.yaml").contains(DEAD) && !read("mail/send.yaml").contains(DEAD));
        assert!(read("mail/server.yaml").contains("[{ref: mail/send}, {ref: mail/read}]"));
        assert!(read("mail/send.yaml").contains("summary: \"Sends: it.\"\n"));
        assert!(write_specs("a\tb\n", folder.path()).is_err());
    }
}
