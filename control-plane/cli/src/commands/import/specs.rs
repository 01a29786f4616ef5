//! What an upstream lists, as specs of our own format.
//!
//! A tool without hints is what MCP's defaults say (`ToolAnnotations`: destructive, not idempotent, in an open
//! world): it needs approval or an explicit allow here until somebody who knows it writes otherwise.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{Upstream, runtime, text};
use crate::args::ImportArgs;

/// Files by path relative to the primitives' root.
pub(super) fn convert(args: &ImportArgs, upstream: &Upstream) -> BTreeMap<String, String> {
    let mut import = Import { args, files: BTreeMap::new(), ids: BTreeSet::new(), refs: Vec::new() };
    for tool in &upstream.tools {
        import.tool(tool);
    }
    for prompt in &upstream.prompts {
        import.prompt(prompt);
    }
    for resource in &upstream.resources {
        import.resource(resource, "resource", "uri");
    }
    for template in &upstream.templates {
        import.resource(template, "resource_template", "uriTemplate");
    }
    import.server();
    import.files
}

struct Import<'a> {
    args: &'a ImportArgs,
    files: BTreeMap<String, String>,
    ids: BTreeSet<String>,
    /// In list order.
    refs: Vec<String>,
}

impl Import<'_> {
    fn tool(&mut self, tool: &Value) {
        let Some(name) = text(tool, "name") else { return };
        let hint = |name: &str| tool.get("annotations").and_then(|hints| hints.get(name)?.as_bool());
        let mutation = match (hint("readOnlyHint"), hint("destructiveHint"), hint("idempotentHint")) {
            (Some(true), ..) => "read_only",
            // The other two hints mean something only where the tool says that it destroys nothing.
            (_, Some(false), Some(true)) => "idempotent",
            (_, Some(false), _) => "non_idempotent",
            _ => "destructive",
        };
        let mut schema = Map::new();
        schema.insert(
            "input_schema".into(),
            tool.get("inputSchema").cloned().unwrap_or(json!({"type": "object"})),
        );
        if let Some(output) = tool.get("outputSchema") {
            schema.insert("output_schema".into(), output.clone());
        }
        let mut spec = self.common(tool, name, "tool");
        spec.insert("mutation".into(), mutation.into());
        let open = hint("openWorldHint").unwrap_or(true);
        spec.insert("annotations".into(), json!({"openWorldHint": open}));
        if mutation != "read_only" {
            spec.insert("security".into(), json!({"riskClass": "medium"}));
        }
        spec.insert("primitiveSchema".into(), Value::Object(schema));
        spec.insert("exposure".into(), json!({"mcp": {"tool": {"enabled": true, "name": name}}}));
        self.add(spec, name);
    }

    fn prompt(&mut self, prompt: &Value) {
        let Some(name) = text(prompt, "name") else { return };
        let mut arguments = Vec::new();
        for argument in prompt.get("arguments").and_then(Value::as_array).into_iter().flatten() {
            let mut kept = Map::new();
            for member in ["name", "title", "description", "required"] {
                if let Some(value) = argument.get(member) {
                    kept.insert(member.into(), value.clone());
                }
            }
            arguments.push(Value::Object(kept));
        }
        let mut spec = self.common(prompt, name, "prompt");
        spec.insert("primitiveSchema".into(), json!({"arguments": arguments}));
        spec.insert("exposure".into(), json!({"mcp": {"prompt": {"enabled": true, "name": name}}}));
        self.add(spec, name);
    }

    fn resource(&mut self, resource: &Value, kind: &str, member: &str) {
        let Some(uri) = text(resource, member) else { return };
        let name = text(resource, "name").unwrap_or(uri);
        let mut schema = Map::new();
        schema.insert(member.into(), uri.into());
        if let Some(mime) = text(resource, "mimeType") {
            schema.insert("mimeType".into(), mime.into());
        }
        let mut spec = self.common(resource, name, kind);
        spec.insert("primitiveSchema".into(), Value::Object(schema));
        self.add(spec, uri);
    }

    fn common(&mut self, item: &Value, name: &str, kind: &str) -> Map<String, Value> {
        let id = self.free_id(name);
        let mut spec = Map::new();
        spec.insert("id".into(), id.into());
        spec.insert("name".into(), text(item, "title").unwrap_or(name).into());
        spec.insert("type".into(), kind.into());
        spec.insert("version".into(), "1.0.0".into());
        spec.insert("owner".into(), self.args.owner.clone().into());
        spec.insert("summary".into(), text(item, "description").unwrap_or(name).into());
        spec.insert("security".into(), json!({"riskClass": "low"}));
        spec
    }

    fn add(&mut self, mut spec: Map<String, Value>, upstream_name: &str) {
        spec.insert("runtime".into(), runtime(self.args, upstream_name));
        let id = spec.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let file = id.strip_prefix(&format!("{}.", self.args.server)).unwrap_or(&id).to_owned();
        let text = serde_json::to_string_pretty(&Value::Object(spec)).unwrap_or_default();
        self.files.insert(format!("{}/{file}.json", self.args.server), text + "\n");
        self.refs.push(id);
    }

    /// `<server>.<name>` with what ids may hold, made unique by a number.
    fn free_id(&mut self, name: &str) -> String {
        let plain: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' })
            .collect();
        let mut slug = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        slug.truncate(100);
        let base = format!("{}.{slug}", self.args.server);
        let mut id = base.clone();
        let mut next = 2;
        while !self.ids.insert(id.clone()) {
            id = format!("{base}-{next}");
            next += 1;
        }
        id
    }

    fn server(&mut self) {
        let server = &self.args.server;
        let mut yaml = format!(
            "apiVersion: asp/v1\nname: {server}\ntitle: {server}\ndescription: What the upstream MCP server offers.\n\
             version: 1.0.0\nprotocols: [mcp]\nsessions: stateful\ndefaultExposure: deny\n\
             auth: {{schemes: [jwt], issuers: [dev]}}\nprimitives:\n"
        );
        for id in &self.refs {
            yaml.push_str(&format!("  - ref: {server}/{id}\n"));
        }
        self.files.insert(format!("{server}/server.yaml"), yaml);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(annotations: Value) -> Value {
        let args = ImportArgs {
            mcp: "https://up.example/mcp".into(),
            server: "up".into(),
            proxy_url: None,
            owner: "team".into(),
            out: "primitives".into(),
        };
        let tool = json!({ "name": "t", "inputSchema": {"type": "object"}, "annotations": annotations });
        let upstream = Upstream { tools: vec![tool], ..Upstream::default() };
        let files = convert(&args, &upstream);
        serde_json::from_str(&files["up/t.json"]).unwrap()
    }

    #[test]
    fn a_tool_is_what_its_hints_say_and_mcps_defaults_where_they_say_nothing() {
        let table = [
            (json!({}), "destructive", "medium"),
            (json!({"idempotentHint": true}), "destructive", "medium"),
            (json!({"destructiveHint": false}), "non_idempotent", "medium"),
            (json!({"destructiveHint": false, "idempotentHint": true}), "idempotent", "medium"),
            (json!({"readOnlyHint": true}), "read_only", "low"),
        ];
        for (hints, mutation, risk) in table {
            let spec = imported(hints.clone());
            assert_eq!(
                (&spec["mutation"], &spec["security"]["riskClass"]),
                (&json!(mutation), &json!(risk)),
                "{hints}"
            );
            assert_eq!(spec["annotations"]["openWorldHint"], true, "{hints}");
        }
        assert_eq!(imported(json!({"openWorldHint": false}))["annotations"]["openWorldHint"], false);
    }
}
