//! Conversion of an upstream's lists to specs.
//!
//! A tool without hints gets MCP's defaults (`ToolAnnotations`: destructive, not idempotent, open-world): it needs an
//! approval or an explicit allow until someone who knows it changes the spec.

use std::collections::{BTreeMap, BTreeSet};

use asp_mcp_client::listing::Lists;
use asp_registry::pin::pin;
use asp_registry::{MAX_PRIMITIVES, dialect, is_reserved_meta};
use serde_json::{Map, Value, json};

use super::icons;
use super::package::Package;
use crate::args::ImportArgs;
use crate::files::{DECODED, ImportResult, add_instructions, free_id, proxy, server_file, spec_path};

mod resource;

/// Members of all kinds of items: MCP's `Tool`, `Prompt`, `Resource` and `ResourceTemplate`. The code of each kind reports
/// those of them that it leaves out.
const MEMBERS: [&str; 14] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "execution",
    "arguments",
    "uri",
    "uriTemplate",
    "mimeType",
    "size",
    "_meta",
    "icons",
];
/// Members of a prompt's argument, all of which a spec has.
const ARGUMENT_MEMBERS: [&str; 4] = ["name", "title", "description", "required"];
/// Annotations of a tool; a spec says them by its name, `mutation` and `annotations`.
const HINTS: [&str; 5] = ["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

/// Location of the imported primitives.
pub(super) enum Upstream<'a> {
    Url(&'a str),
    Package(Package<'a>),
}

pub(super) fn convert(args: &ImportArgs, upstream: &Upstream<'_>, lists: &Lists) -> ImportResult {
    let files = BTreeMap::new();
    let taken = BTreeSet::new();
    let mut import = Import {
        args,
        upstream,
        completions: lists.completions,
        files,
        taken,
        ids: Vec::new(),
        kinds: BTreeMap::new(),
        dropped: lists.losses.iter().map(|loss| format!("{loss}: {DECODED}")).collect(),
        renamed: Vec::new(),
        exposed: BTreeSet::new(),
    };
    let listed: BTreeSet<&str> = lists.tools.iter().filter_map(|tool| text(tool, "name")).collect();
    for name in args.except.iter().filter(|name| !listed.contains(name.as_str())) {
        import.renamed.push(format!("note: --except {name:?}: the server lists no such tool"));
    }
    import.exposed = plain_names(&lists.tools);
    for tool in import.deduplicate(&lists.tools, ("tool", "name")) {
        import.tool(tool);
    }
    import.exposed = plain_names(&lists.prompts);
    for prompt in import.deduplicate(&lists.prompts, ("prompt", "name")) {
        import.prompt(prompt);
    }
    for resource in import.deduplicate(&lists.resources, ("resource", "uri")) {
        import.resource(resource, "resource", "uri");
    }
    for template in import.deduplicate(&lists.templates, ("resource_template", "uriTemplate")) {
        import.resource(template, "resource_template", "uriTemplate");
    }
    let Import { mut files, ids, kinds, dropped, mut renamed, .. } = import;
    let server = &args.server;
    let description = "What the upstream MCP server offers.";
    let file = server_file(server, description, &ids);
    let file = add_instructions(&file, lists.instructions.as_deref()).unwrap_or_else(|why| {
        renamed.push(format!("dropped: the server's instructions: {why}"));
        file
    });
    files.insert(format!("{server}/server.yaml"), file);
    let from = match upstream {
        Upstream::Url(url) => url,
        Upstream::Package(package) => package.name,
    };
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or_default();
    let said = format!(
        "{} tools, {} prompts, {} resources, {} templates from {from}",
        count("tool"),
        count("prompt"),
        count("resource"),
        count("resource_template"),
    );
    ImportResult { files, ids, said, dropped, renamed, requirements: Vec::new() }
}

struct Import<'a> {
    args: &'a ImportArgs,
    upstream: &'a Upstream<'a>,
    completions: bool,
    files: BTreeMap<String, String>,
    taken: BTreeSet<String>,
    /// Ids in list order.
    ids: Vec<String>,
    /// Number of specs of each type.
    kinds: BTreeMap<String, usize>,
    /// Losses: parts that a spec cannot express, one a line.
    dropped: Vec<String>,
    /// Names that differ from the upstream's, one a line.
    renamed: Vec<String>,
    /// Exposed names already in use.
    exposed: BTreeSet<String>,
}

impl Import<'_> {
    /// Returns the items without unnamed ones and those with the name of an earlier one: a call carries only the name, so it
    /// means a single item.
    fn deduplicate<'i>(&mut self, items: &'i [Value], (kind, member): (&str, &str)) -> Vec<&'i Value> {
        let mut names = BTreeSet::new();
        let mut kept = Vec::new();
        for item in items {
            match text(item, member) {
                Some(name) if !names.insert(name) => {
                    self.dropped
                        .push(format!("{kind} {name:?} is left out: the server lists this name before"));
                }
                Some(_) => kept.push(item),
                None => {
                    self.dropped.push(format!("a {kind} is left out: the server lists it without {member}"))
                }
            }
        }
        kept
    }

    fn tool(&mut self, tool: &Value) {
        let Some(name) = text(tool, "name") else { return };
        if self.args.except.iter().any(|left_out| left_out == name) {
            return;
        }
        let hint = |name: &str| tool.get("annotations").and_then(|hints| hints.get(name)?.as_bool());
        let mutation = match (hint("readOnlyHint"), hint("destructiveHint"), hint("idempotentHint")) {
            (Some(true), ..) => "read_only",
            // The other two hints are meaningful only if the tool declares that it is not destructive.
            (_, Some(false), Some(true)) => "idempotent",
            (_, Some(false), _) => "non_idempotent",
            _ => "destructive",
        };
        if tool.pointer("/execution/taskSupport").is_some_and(|word| word == "required") {
            self.dropped.push(format!("tool {name:?} is left out: it must be called as a task"));
            return;
        }
        let mut schema = Map::new();
        schema.insert("input_schema".into(), dialect::arguments(tool.get("inputSchema")));
        if let Some(output) = tool.get("outputSchema").filter(|output| is_schema(output)) {
            schema.insert("output_schema".into(), dialect::modern(output));
        }
        let mut spec = self.common(tool, name, "tool");
        spec.insert("mutation".into(), mutation.into());
        if let Some(hints) = tool.get("annotations") {
            self.note_unknown(hints, &HINTS, &format!("the annotations of {name:?}"));
        }
        let open = hint("openWorldHint").unwrap_or(true);
        spec.insert("annotations".into(), json!({"openWorldHint": open}));
        if mutation != "read_only" {
            spec.insert("security".into(), json!({"riskClass": "medium"}));
        }
        spec.insert("primitiveSchema".into(), Value::Object(schema));
        let exposed = self.exposed_name(name, "tool", &spec);
        spec.insert("exposure".into(), json!({"mcp": {"tool": {"enabled": true, "name": exposed}}}));
        self.add(spec, name, tool);
    }

    fn prompt(&mut self, prompt: &Value) {
        let Some(name) = text(prompt, "name") else { return };
        let mut arguments = Vec::new();
        for argument in prompt.get("arguments").and_then(Value::as_array).into_iter().flatten() {
            self.note_unknown(argument, &ARGUMENT_MEMBERS, &format!("an argument of {name:?}"));
            let mut kept = Map::new();
            for member in ARGUMENT_MEMBERS {
                if let Some(value) = argument.get(member).filter(|value| !value.is_null()) {
                    kept.insert(member.into(), value.clone());
                }
            }
            arguments.push(Value::Object(kept));
        }
        let mut spec = self.common(prompt, name, "prompt");
        let mut schema = Map::new();
        schema.insert("arguments".into(), json!(arguments));
        let names = arguments.iter().filter_map(|argument| text(argument, "name")).collect();
        self.complete(&mut schema, names);
        spec.insert("primitiveSchema".into(), Value::Object(schema));
        let exposed = self.exposed_name(name, "prompt", &spec);
        spec.insert("exposure".into(), json!({"mcp": {"prompt": {"enabled": true, "name": exposed}}}));
        self.add(spec, name, prompt);
    }

    /// Returns the upstream's name if clients can use it, else a plain name, which is reported.
    fn exposed_name(&mut self, name: &str, kind: &str, spec: &Map<String, Value>) -> String {
        if is_plain(name) {
            return name.to_owned();
        }
        let id = spec.get("id").and_then(Value::as_str).unwrap_or_default();
        let plain = id.strip_prefix(&format!("{}.", self.args.server)).unwrap_or(id);
        let mut exposed = plain.to_owned();
        let mut next = 2;
        while !self.exposed.insert(exposed.clone()) {
            exposed = format!("{plain}-{next}");
            next += 1;
        }
        self.renamed.push(format!("renamed: {kind} {name:?} is served as {exposed}"));
        exposed
    }

    /// Forwards completion of each of these arguments to the upstream, if it offers that.
    fn complete(&self, schema: &mut Map<String, Value>, names: Vec<&str>) {
        if self.completions && !names.is_empty() {
            let all: Map<String, Value> =
                names.into_iter().map(|name| (name.to_owned(), "upstream".into())).collect();
            schema.insert("completions".into(), Value::Object(all));
        }
    }

    fn common(&mut self, item: &Value, name: &str, kind: &str) -> Map<String, Value> {
        self.note_unknown(item, &MEMBERS, &format!("{kind} {name:?}"));
        let id = free_id(&self.args.server, name, &mut self.taken);
        let mut spec = Map::new();
        spec.insert("id".into(), id.into());
        // Servers of 2025-03-26 have a tool's title among its hints.
        let titles = [item.get("title"), item.pointer("/annotations/title")];
        let mut titles = titles.into_iter().flatten().filter_map(Value::as_str);
        let title = titles.find(|title| !title.is_empty()).unwrap_or(name);
        spec.insert("name".into(), title.into());
        spec.insert("type".into(), kind.into());
        spec.insert("version".into(), "1.0.0".into());
        spec.insert("owner".into(), self.args.owner.clone().into());
        spec.insert("summary".into(), text(item, "description").unwrap_or(name).into());
        spec.insert("security".into(), json!({"riskClass": "low"}));
        if let Some(Value::Object(meta)) = item.get("_meta") {
            spec.insert("_meta".into(), Value::Object(self.free_meta(meta, name)));
        }
        let icons = self.icons(item, name);
        if !icons.is_empty() {
            spec.insert("icons".into(), Value::Array(icons));
        }
        spec
    }

    /// Returns the icons that a spec may have; others are reported as dropped.
    fn icons(&mut self, item: &Value, name: &str) -> Vec<Value> {
        let (icons, dropped) = icons::select_icons(item);
        if dropped > 0 {
            self.dropped.push(format!("{dropped} of the icons of {name:?}: {}", icons::WHY));
        }
        icons
    }

    /// Reports members that MCP does not define and that no spec has a place for.
    fn note_unknown(&mut self, object: &Value, known: &[&str], named: &str) {
        for (member, value) in object.as_object().into_iter().flatten() {
            if !value.is_null() && !known.contains(&member.as_str()) {
                self.dropped.push(format!("{member:?} of {named}: a spec has no place for it"));
            }
        }
    }

    /// Returns the members that a spec may have; reserved ones belong to the protocol and are reported as dropped.
    fn free_meta(&mut self, meta: &Map<String, Value>, name: &str) -> Map<String, Value> {
        let (reserved, free): (Vec<_>, Vec<_>) =
            meta.clone().into_iter().partition(|(member, _)| is_reserved_meta(member));
        let dropped = reserved.iter().map(|(member, _)| {
            format!("_meta {member:?} of {name:?}: it is a name of MCP or of the platform")
        });
        self.dropped.extend(dropped);
        free.into_iter().collect()
    }

    fn add(&mut self, mut spec: Map<String, Value>, upstream_name: &str, item: &Value) {
        let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if self.ids.len() >= MAX_PRIMITIVES {
            let why = format!("a server has at most {MAX_PRIMITIVES} primitives");
            return self.dropped.push(format!("{kind} {upstream_name:?} is left out: {why}"));
        }
        *self.kinds.entry(kind).or_default() += 1;
        let id = spec.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let runtime = match self.upstream {
            Upstream::Url(url) => self.proxy_runtime(url, upstream_name, item),
            Upstream::Package(package) => {
                let named = (!self.args.domains.is_empty()).then(|| json!(self.args.domains));
                let domains = Package::reached(self.args, &id, "allowedDomains").or(named);
                let services = Package::reached(self.args, &id, "allowedTcp");
                if let Some(Value::Object(security)) = spec.get_mut("security") {
                    security.extend(domains.map(|domains| ("allowedDomains".to_owned(), domains)));
                    security.extend(services.map(|services| ("allowedTcp".to_owned(), services)));
                }
                let mut runtime = package.former_process(self.args, &id);
                runtime.insert("mode".into(), "mcp-stdio".into());
                runtime.insert("package".into(), package.name.into());
                runtime.insert("tool".into(), upstream_name.into());
                runtime.insert("pin".into(), pin(item).into());
                Value::Object(runtime)
            }
        };
        spec.insert("runtime".into(), runtime);
        let text = serde_json::to_string_pretty(&Value::Object(spec)).unwrap_or_default();
        self.files.insert(spec_path(&self.args.server, &id), text + "\n");
        self.ids.push(id);
    }

    fn proxy_runtime(&self, url: &str, upstream_name: &str, item: &Value) -> Value {
        let url = self.args.proxy_url.as_deref().unwrap_or(url);
        let mut target = json!({"url": url, "tool": upstream_name, "pin": pin(item)});
        if !self.args.pages.is_empty()
            && let Some(target) = target.as_object_mut()
        {
            target.insert("pages".into(), json!(self.args.pages));
        }
        proxy("mcp", target, self.args)
    }
}

/// Whether the name follows MCP 2025-11-25, section "Tool Names".
fn is_plain(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(fits)
}

/// Whether an output schema is there: null and the empty list of PHP count as absent.
fn is_schema(output: &Value) -> bool {
    !output.is_null() && *output != json!([])
}

fn plain_names(items: &[Value]) -> BTreeSet<String> {
    let names = items.iter().filter_map(|item| text(item, "name"));
    names.filter(|name| is_plain(name)).map(str::to_owned).collect()
}

/// Returns the text of a member, if it is text.
fn text<'a>(item: &'a Value, name: &str) -> Option<&'a str> {
    item.get(name)?.as_str()
}

#[cfg(test)]
#[path = "specs/tests.rs"]
pub(super) mod tests;
