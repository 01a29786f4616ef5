//! Servers that differ in who may call, and tools that differ in what proves a call to the service behind them.

use serde_json::{Value, json};

/// The tool of the servers that differ in their callers.
pub(super) const ECHO: &str = "echo";
/// The server whose tools differ in what proves a call.
pub(super) const BEHIND: &str = "behind";
/// The issuer's name, and the audience of its tokens.
pub(super) const ISSUER: &str = "bench";
/// The service as specs name it.
pub(super) const SERVICE: &str = "service.internal";

/// What each tool of [`BEHIND`] says in `runtime.auth`.
const PROOFS: [(&str, &str); 7] = [
    ("nothing", ""),
    ("token", ", auth: {token: {}}"),
    ("exchange", ", auth: {exchange: {audience: service}}"),
    ("bearer", ", auth: {credential: bearer}"),
    ("basic", ", auth: {credential: basic}"),
    ("header", ", auth: {credential: header}"),
    ("client", ", auth: {credential: client}"),
];

/// The files of each server, as the admin API takes them.
pub(super) fn servers() -> Vec<(&'static str, Value)> {
    let admitting = |name: &'static str, auth: &str| {
        let runtime = "{mode: builtin, entrypoint: echo}";
        (name, files(name, auth, &[tool(name, ECHO, runtime)]))
    };
    let behind = PROOFS.map(|(id, auth)| {
        let runtime = format!("{{mode: proxy, http: {{url: \"http://{SERVICE}/call\"}}{auth}}}");
        tool(BEHIND, id, &runtime)
    });
    vec![
        admitting("anyone", "{schemes: [none]}"),
        admitting("signed", "{schemes: [jwt], issuers: [bench]}"),
        admitting("opaque", "{schemes: [opaque], issuers: [bench]}"),
        admitting("machines", "{schemes: [psk]}"),
        (BEHIND, files(BEHIND, "{schemes: [jwt], issuers: [bench]}", &behind)),
    ]
}

/// Name and spec of a tool.
fn tool(server: &str, id: &str, runtime: &str) -> (String, String) {
    let spec = format!(
        "id: {server}.{id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: bench@example.com\nsummary: Answers.\n\
         tags: [bench]\nmutation: read_only\nexposure: {{mcp: {{tool: {{name: {id}}}}}}}\nprimitiveSchema:\n  \
         input_schema:\n    type: object\n    required: [message]\n    properties: {{message: {{type: string}}}}\n\
         security: {{riskClass: low}}\nruntime: {runtime}\n"
    );
    (id.to_owned(), spec)
}

fn files(server: &str, auth: &str, tools: &[(String, String)]) -> Value {
    let refs: Vec<String> = tools.iter().map(|(id, _)| format!("{{ref: {server}/{server}.{id}}}")).collect();
    let head = format!(
        "apiVersion: asp/v1\nname: {server}\ntitle: Bench\ndescription: For the benchmark.\nversion: 1.0.0\n\
         protocols: [mcp]\nsessions: both\ndefaultExposure: allow\nauth: {auth}\nprimitives: [{}]\n",
        refs.join(", ")
    );
    let mut files = vec![json!({"path": format!("{server}/server.yaml"), "text": head})];
    files.extend(tools.iter().map(|(id, text)| json!({"path": format!("{server}/{id}.yaml"), "text": text})));
    json!({ "files": files })
}
