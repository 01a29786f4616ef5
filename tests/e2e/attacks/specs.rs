//! The servers of the attacks, as their teams store them, and calls of their tools.

use asp_e2e::http1::Request;
use serde_json::{Value, json};

use crate::message::modern;

/// Runs in the gateway and returns its arguments.
pub(super) const ECHO: &str = "security: {riskClass: low}\nruntime: {mode: builtin, entrypoint: echo}\n";
/// Takes tokens of the company.
pub(super) const OF_COMPANY: &str = "{schemes: [jwt], issuers: [corporate]}";

/// A tool: its id, and its spec.
pub(super) type Tool = (String, String);

/// `runs` are the lines of its spec that say how it runs.
pub(super) fn tool(id: &str, mutation: &str, runs: &str) -> Tool {
    let spec = format!(
        "id: {id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: team@example.com\nsummary: For the tests of attacks.\n\
         tags: [test]\nmutation: {mutation}\n\
         primitiveSchema: {{input_schema: {{type: object, properties: {{message: {{type: string}}}}}}}}\n{runs}"
    );
    (id.to_owned(), spec)
}

/// A server that every org has, as the admin API takes it.
pub(super) fn server(name: &str, auth: &str, tools: &[Tool]) -> Value {
    let refs: Vec<String> = tools.iter().map(|(id, _)| format!("{{ref: {name}/{id}}}")).collect();
    let server = format!(
        "apiVersion: asp/v1\nname: {name}\ntitle: {name}\ndescription: For the tests of attacks.\nversion: 1.0.0\n\
         protocols: [mcp, rest]\nsessions: both\ndefaultExposure: allow\nauth: {auth}\nprimitives: [{}]\n",
        refs.join(", ")
    );
    let file = |file: &str, text: &str| json!({"path": format!("{name}/{file}.yaml"), "text": text});
    let mut files = vec![file("server", &server)];
    files.extend(tools.iter().map(|(id, spec)| file(id, spec)));
    json!({ "files": files })
}

/// A call over MCP 2026-07-28.
pub(super) fn call(server: &str, tool: &str, token: &str) -> Request {
    let params = json!({"name": tool, "arguments": {"message": "hi"}});
    let mut request = modern(token, "tools/call", params, &[("mcp-name", tool)]);
    request.target = format!("/{server}/mcp");
    request
}
