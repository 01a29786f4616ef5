//! An OpenAPI document (3.0 to 3.2) as specs of `proxy.http`, one tool for each operation.
//!
//! Owns: how the document is read, which operations are selected, and the spec of each. Keeps true: an operation that cannot
//! be proxied as described is left out and reported; the document determines no host other than its own server's.

mod document;
mod form;
mod omissions;
mod operation;
mod schema;
mod security;
mod skip_reason;
#[cfg(feature = "testing")]
pub mod testkit;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, anyhow};
use asp_command::failure::Failure;
use asp_command::http_client;
use asp_registry::MAX_PRIMITIVES;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};

use document::{DescribedOperation, OpenApiDocument};
use omissions::Omissions;
use operation::Tool;
use security::Authentication;
use skip_reason::SkipReason;
use values::one_line;

use crate::args::ImportArgs;
use crate::files::{DECODED, ImportResult, free_id, proxy, server_file, spec_path};
use crate::report::ImportReport;

/// Maximum size of a document in bytes; the largest public ones have 12 MB.
const MAX_BYTES: usize = 32 << 20;

/// Maximum bytes of all specs of one import.
const MAX_SPECS: usize = 64 << 20;

/// Creates the client for requests to a URL that the operator named.
pub(super) fn http(settings: reqwest::ClientBuilder) -> Result<reqwest::Client, Failure> {
    // As in the gateway: nothing here decompresses responses.
    let plain = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    let client = settings
        .default_headers(plain)
        .connect_timeout(std::time::Duration::from_secs(5))
        .read_timeout(std::time::Duration::from_secs(30))
        .build()
        .context("build the HTTP client")?;
    Ok(client)
}

/// Reads the document from a file or a URL.
pub(super) async fn read(place: &str) -> Result<Vec<u8>, Failure> {
    let is_url = place.starts_with("http://") || place.starts_with("https://");
    if !is_url {
        let length = std::fs::metadata(place).with_context(|| format!("read {place}"))?.len();
        if length > MAX_BYTES as u64 {
            return Err(too_large(place));
        }
        return Ok(std::fs::read(place).with_context(|| format!("read {place}"))?);
    }
    let url = reqwest::Url::parse(place).with_context(|| format!("read the URL {place}"))?;
    let client = http(http_client::without_credential(&url))?;
    let mut response = client.get(url).send().await.with_context(|| format!("get {place}"))?;
    if !response.status().is_success() {
        return Err(anyhow!("get {place}: {}", response.status()).into());
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.with_context(|| format!("get {place}"))? {
        if text.len() + chunk.len() > MAX_BYTES {
            return Err(too_large(place));
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

fn too_large(place: &str) -> Failure {
    anyhow!("{place} has more than {} MiB", MAX_BYTES >> 20).into()
}

/// Note on an operation whose name is taken.
const NUMBERED: &str = "another operation has its name: it is served as one with a number";

/// Converts the selected operations to specs, and reports what is left out.
pub(super) fn import(
    args: &ImportArgs,
    text: &[u8],
    lines: &mut ImportReport,
) -> Result<ImportResult, Failure> {
    let document = OpenApiDocument::parse(text).map_err(|fault| anyhow!("{}: {fault}", place(args)))?;
    let document = document.at(place(args));
    let base = base(args, &document)?;
    let found = document.operations().map_err(|fault| anyhow!("{}: {fault}", place(args)))?;
    let selected = || found.iter().filter(move |operation| is_selected(args, operation));
    let securities = selected().map(|operation| security::of(&document, operation));
    let authentication = Authentication::new(args, &base, securities);
    let base = base.trim_end_matches('/');
    let mut specs = Specs { args, base, authentication, files: BTreeMap::new(), ids: Vec::new() };
    let mut taken = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut report = Omissions::default();
    if args.proxy_url.is_none() && document.has_relative_server() {
        report.part("the document", &format!("its server is {base}, relative to where it was read"));
    }
    for part in document.losses() {
        report.part("the document", &format!("{part}: {DECODED}"));
    }
    note_unknown_names(args, &found, &mut report);
    for operation in selected() {
        let place = || format!("{} {}", operation.method, operation.path);
        match tool(args, &document, operation) {
            Ok(_) if specs.ids.len() >= MAX_PRIMITIVES => {
                let why = format!("a server has at most {MAX_PRIMITIVES} tools (choose some by --tag)");
                report.operation(&place(), &why);
            }
            Ok(_) if specs.files.values().map(String::len).sum::<usize>() > MAX_SPECS => {
                report.operation(&place(), "the earlier specs use up the size limit of an import");
            }
            Ok(tool) => {
                for note in &tool.notes {
                    report.part(&tool.name, note);
                }
                if !names.insert(tool.name.clone()) {
                    report.part(&tool.name, NUMBERED);
                }
                let auth = specs.authentication.auth(security::of(&document, operation));
                specs.add(tool, auth, &mut taken);
            }
            Err(why) => report.operation(&place(), &why.to_string()),
        }
    }
    report_unserved(args, &document, &mut report);
    report.print(lines);
    if let Some(file) = &args.report {
        std::fs::write(file, report.lines()).with_context(|| format!("write {}", file.display()))?;
    }
    let Specs { mut files, ids, authentication, .. } = specs;
    if ids.is_empty() {
        return Err(anyhow!("no operation of {} can be imported", place(args)).into());
    }
    let description = "What an HTTP service offers, as its OpenAPI document says.";
    let file = document.info().describe(&server_file(&args.server, description, &ids));
    files.insert(format!("{}/server.yaml", args.server), file);
    let said = format!("{} operations ({} left out) from {}", ids.len(), report.operations(), place(args));
    let requirements = authentication.requirements();
    Ok(ImportResult { files, ids, said, dropped: Vec::new(), renamed: Vec::new(), requirements })
}

/// Returns the URL of all operations.
fn base(args: &ImportArgs, document: &OpenApiDocument) -> Result<String, Failure> {
    args.proxy_url.clone().or_else(|| document.server()).ok_or_else(|| {
        Failure::bad("--proxy-url", "the document names no server of its own; write where the operations are")
    })
}

/// Reports names on the command line that select nothing: they are usually misspelt.
fn note_unknown_names(args: &ImportArgs, found: &[DescribedOperation<'_>], report: &mut Omissions) {
    let ids: BTreeSet<&str> = found.iter().map(DescribedOperation::id).collect();
    let tags: BTreeSet<&str> = found.iter().flat_map(DescribedOperation::tags).collect();
    for (option, names, known) in [
        ("--operation", &args.operations, &ids),
        ("--except", &args.except, &ids),
        ("--tag", &args.tags, &tags),
    ] {
        for name in names.iter().filter(|name| !known.contains(name.as_str())) {
            report.part(&format!("{option} {}", one_line(name)), "no operation has it");
        }
    }
}

/// Adds the operations whose method no tool can have, the paths whose operations are in another document, and the parts that
/// concern the whole document.
fn report_unserved(args: &ImportArgs, document: &OpenApiDocument, report: &mut Omissions) {
    for operation in document.unserved().iter().filter(|operation| is_selected(args, operation)) {
        let place = one_line(&format!("{} {}", operation.method, operation.path));
        report.operation(&place, "no tool can have its method");
    }
    for (path, fault) in document.external_paths() {
        report.operation(path, &fault.to_string());
    }
    let servers = if args.proxy_url.is_none() { document.server_parts() } else { Vec::new() };
    for (place, note) in document.parts().into_iter().chain(servers) {
        report.part(&place, &note);
    }
}

/// Converts an operation to a tool. It must be at the document's server, unless the operator names the URL of all operations.
fn tool(
    args: &ImportArgs,
    document: &OpenApiDocument,
    found: &DescribedOperation<'_>,
) -> Result<Tool, SkipReason> {
    match document.other_server(found) {
        Some(server) if args.proxy_url.is_none() => Err(SkipReason::Server(one_line(&server))),
        _ => operation::tool(document, found),
    }
}

fn place(args: &ImportArgs) -> &str {
    args.openapi.as_deref().unwrap_or_default()
}

fn is_selected(args: &ImportArgs, operation: &DescribedOperation<'_>) -> bool {
    let named = |names: &[String], name: &str| names.iter().any(|other| other == name);
    let tags = operation.tags();
    (args.tags.is_empty() || tags.iter().any(|tag| named(&args.tags, tag)))
        && (args.operations.is_empty() || named(&args.operations, operation.id()))
        && !named(&args.except, operation.id())
}

struct Specs<'a> {
    args: &'a ImportArgs,
    base: &'a str,
    authentication: Authentication<'a>,
    files: BTreeMap<String, String>,
    ids: Vec<String>,
}

impl Specs<'_> {
    fn add(&mut self, tool: Tool, auth: Option<Value>, taken: &mut BTreeSet<String>) {
        let server = &self.args.server;
        let id = free_id(server, &tool.name, taken);
        let exposed = id.strip_prefix(&format!("{server}.")).unwrap_or(&id).to_owned();
        let risk = if tool.mutation == "read_only" { "low" } else { "medium" };
        let mut http = Map::new();
        http.insert("method".into(), tool.method.into());
        http.insert("url".into(), format!("{}{}", self.base, tool.path).into());
        for (name, value) in [("query", tool.query), ("headers", tool.headers)] {
            if !value.is_empty() {
                http.insert(name.into(), Value::Object(value));
            }
        }
        if let Some(body) = tool.body {
            http.insert("body".into(), body);
        }
        if let Some(format) = tool.body_format {
            http.insert("bodyFormat".into(), format.into());
        }
        if !tool.body_styles.is_empty() {
            http.insert("bodyStyles".into(), Value::Object(tool.body_styles));
        }
        let mut runtime = proxy("http", Value::Object(http), self.args);
        if let (Some(auth), Value::Object(members)) = (auth, &mut runtime) {
            members.insert("auth".into(), auth);
        }
        let mut schemas = Map::from_iter([("input_schema".to_owned(), tool.input)]);
        if let Some(output) = tool.output.filter(|_| !self.args.no_output_schemas) {
            schemas.insert("output_schema".into(), output);
        }
        let spec = json!({
            "id": id,
            "name": tool.title,
            "type": "tool",
            "version": "1.0.0",
            "owner": self.args.owner,
            "summary": tool.summary,
            "security": {"riskClass": risk},
            "mutation": tool.mutation,
            "annotations": {"openWorldHint": true},
            "primitiveSchema": schemas,
            "exposure": {"mcp": {"tool": {"enabled": true, "name": exposed}}},
            "runtime": runtime,
        });
        let text = serde_json::to_string_pretty(&spec).unwrap_or_default();
        self.files.insert(spec_path(server, &id), text + "\n");
        self.ids.push(id);
    }
}

#[cfg(test)]
#[path = "openapi/tests.rs"]
mod tests;
