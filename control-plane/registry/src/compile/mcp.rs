//! MCP definitions, one for each revision that changes them.
//!
//! Owns which fields a revision knows; other fields are left out. `execution.taskSupport` is never advertised: long
//! calls use the tasks extension. Sources: the `Tool`, `Resource`, `ResourceTemplate` and `Prompt` definitions of the
//! official schema of each revision.

use asp_proto::mcp_revision::{Feature, Revision};
use asp_proto::snapshot;
use serde_json::{Map, Value, json};

use super::deprecation;
use crate::compiled::CompiledServer;
use crate::spec::{ContentType, Contents, Icon, Kind, Mutation, PromptMessage, Spec, Theme};

/// Compiles a server's lists at one revision: `{tools, resources, resourceTemplates, prompts}` in list order. Revisions are
/// dates and compare as text; one older than all known ones gets the lists of the oldest.
pub fn compile_mcp(server: &CompiledServer, revision: &str) -> Value {
    let mut lists =
        [("tools", vec![]), ("resources", vec![]), ("resourceTemplates", vec![]), ("prompts", vec![])];
    for listing in server.server.listings.iter().filter(|listing| !listing.mcp_name.is_empty()) {
        let found = server
            .primitives
            .iter()
            .find(|primitive| primitive.id == listing.id && primitive.version == listing.version);
        let Some(primitive) = found else { continue };
        let list = match primitive.kind() {
            snapshot::Kind::Tool | snapshot::Kind::Task => "tools",
            snapshot::Kind::Resource => "resources",
            snapshot::Kind::ResourceTemplate => "resourceTemplates",
            snapshot::Kind::Prompt => "prompts",
            _ => continue,
        };
        let Some(definition) = definition(primitive, &listing.mcp_name, revision) else { continue };
        if let Some((_, items)) = lists.iter_mut().find(|(name, _)| *name == list) {
            items.push(definition);
        }
    }
    Value::Object(lists.into_iter().map(|(name, items)| (name.to_string(), Value::Array(items))).collect())
}

/// Returns the definition for `revision`, under the exposed name.
fn definition(primitive: &snapshot::Primitive, name: &str, revision: &str) -> Option<Value> {
    let mut chosen = primitive.mcp.first()?;
    for definition in &primitive.mcp {
        if definition.since.as_str() <= revision {
            chosen = definition;
        }
    }
    let mut value: Value = serde_json::from_str(&chosen.json).ok()?;
    // The name of a resource is its URI, which the definition already has.
    if matches!(primitive.kind(), snapshot::Kind::Tool | snapshot::Kind::Task | snapshot::Kind::Prompt)
        && let Some(object) = value.as_object_mut()
    {
        object.insert("name".into(), json!(name));
    }
    Some(value)
}

/// Returns the definitions of one primitive, without those equal to the previous one.
pub(super) fn definitions(
    spec: &Spec,
    mutation: Mutation,
    input: Option<&Value>,
    output: Option<&Value>,
) -> Vec<snapshot::Definition> {
    let mut definitions: Vec<snapshot::Definition> = Vec::new();
    for revision in Revision::KNOWN {
        let definition = match spec.kind {
            Kind::Tool | Kind::Task => tool(spec, mutation, (input, output), revision),
            Kind::Resource | Kind::ResourceTemplate => resource(spec, revision),
            Kind::Prompt => prompt(spec, revision),
            Kind::Elicitation | Kind::Delegate => return definitions,
        };
        let json = Value::Object(definition).to_string();
        if definitions.last().is_none_or(|last| last.json != json) {
            definitions.push(snapshot::Definition { since: revision.as_str().into(), json });
        }
    }
    definitions
}

/// Returns a primitive's MCP name, unless its server overrides it.
pub(super) fn name(spec: &Spec) -> &str {
    let exposed = match spec.kind {
        Kind::Tool | Kind::Task => &spec.exposure.mcp.tool,
        Kind::Resource | Kind::ResourceTemplate => &spec.exposure.mcp.resource,
        Kind::Prompt => &spec.exposure.mcp.prompt,
        Kind::Elicitation | Kind::Delegate => &None,
    };
    exposed.as_ref().and_then(|exposed| exposed.name.as_deref()).unwrap_or(&spec.id)
}

/// Returns the members that all kinds share, such as name, title and description.
fn common_members(spec: &Spec, revision: Revision) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("name".into(), json!(name(spec)));
    if revision.has(Feature::Titles) {
        object.insert("title".into(), json!(spec.name));
    }
    let description = [spec.summary.clone(), deprecation::note(spec)];
    let description: Vec<String> = description.into_iter().flatten().collect();
    if !description.is_empty() {
        object.insert("description".into(), json!(description.join("\n\n")));
    }
    let own = spec
        .deprecated
        .as_ref()
        .map(|deprecated| (deprecation::META.to_owned(), deprecation::meta(deprecated)));
    let meta: Map<String, Value> = spec.meta.clone().into_iter().flatten().chain(own).collect();
    if (spec.meta.is_some() || !meta.is_empty()) && revision.has(Feature::Meta) {
        object.insert("_meta".into(), Value::Object(meta));
    }
    if revision.has(Feature::Icons) && !spec.icons.is_empty() {
        object.insert("icons".into(), spec.icons.iter().map(icon).collect());
    }
    object
}

fn tool(
    spec: &Spec,
    mutation: Mutation,
    (input, output): (Option<&Value>, Option<&Value>),
    revision: Revision,
) -> Map<String, Value> {
    let mut object = common_members(spec, revision);
    if revision.has(Feature::ToolAnnotations) {
        let title = spec.annotations.title.as_ref().unwrap_or(&spec.name);
        object.insert(
            "annotations".into(),
            json!({
                "title": title,
                "readOnlyHint": mutation == Mutation::ReadOnly,
                "destructiveHint": mutation == Mutation::Destructive,
                "idempotentHint": matches!(mutation, Mutation::ReadOnly | Mutation::Idempotent),
                "openWorldHint": spec.annotations.open_world_hint.unwrap_or(false),
            }),
        );
    }
    object.insert("inputSchema".into(), input.cloned().unwrap_or_else(|| json!({"type": "object"})));
    if let Some(output) = output
        && revision.has(Feature::StructuredOutput)
        && (revision.has(Feature::AnyOutput) || output.get("type").and_then(Value::as_str) == Some("object"))
    {
        object.insert("outputSchema".into(), output.clone());
    }
    object
}

fn resource(spec: &Spec, revision: Revision) -> Map<String, Value> {
    let mut object = common_members(spec, revision);
    let (key, place) = match spec.kind {
        Kind::Resource => ("uri", &spec.schema.uri),
        _ => ("uriTemplate", &spec.schema.uri_template),
    };
    object.insert(key.into(), json!(place.as_deref().unwrap_or_default()));
    if let Some(mime_type) = &spec.schema.mime_type {
        object.insert("mimeType".into(), json!(mime_type));
    }
    let mut annotations = Map::new();
    if !spec.annotations.audience.is_empty() {
        let audience: Vec<_> = spec.annotations.audience.iter().map(|role| role.word()).collect();
        annotations.insert("audience".into(), json!(audience));
    }
    if let Some(priority) = spec.annotations.priority {
        annotations.insert("priority".into(), json!(priority));
    }
    if !annotations.is_empty() {
        object.insert("annotations".into(), Value::Object(annotations));
    }
    object
}

fn prompt(spec: &Spec, revision: Revision) -> Map<String, Value> {
    let mut object = common_members(spec, revision);
    let Some(arguments) = &spec.schema.arguments else { return object };
    let arguments = arguments.iter().map(|argument| {
        let mut item = Map::new();
        item.insert("name".into(), json!(argument.name));
        if let Some(title) = &argument.title
            && revision.has(Feature::Titles)
        {
            item.insert("title".into(), json!(title));
        }
        if let Some(description) = &argument.description {
            item.insert("description".into(), json!(description));
        }
        item.insert("required".into(), json!(argument.required));
        Value::Object(item)
    });
    object.insert("arguments".into(), arguments.collect());
    object
}

fn icon(icon: &Icon) -> Value {
    let mut object = Map::new();
    object.insert("src".into(), json!(icon.src));
    if let Some(mime_type) = &icon.mime_type {
        object.insert("mimeType".into(), json!(mime_type));
    }
    if !icon.sizes.is_empty() {
        object.insert("sizes".into(), json!(icon.sizes));
    }
    if let Some(theme) = icon.theme {
        let word = match theme {
            Theme::Light => "light",
            Theme::Dark => "dark",
        };
        object.insert("theme".into(), json!(word));
    }
    Value::Object(object)
}

/// Returns a prompt message as in the result of `prompts/get`.
pub(super) fn message(message: &PromptMessage) -> Value {
    let block = &message.content;
    let content = match block.kind {
        ContentType::Text => json!({"type": "text", "text": block.text.as_deref().unwrap_or_default()}),
        ContentType::Image | ContentType::Audio => json!({
            "type": if block.kind == ContentType::Image { "image" } else { "audio" },
            "data": block.data.as_deref().unwrap_or_default(),
            "mimeType": block.mime_type.as_deref().unwrap_or_default(),
        }),
    };
    json!({"role": message.role.word(), "content": content})
}

/// Returns resource contents as in the result of `resources/read`.
pub(super) fn contents(item: &Contents, uri: &str, mime_type: Option<&str>) -> Value {
    let mut object = Map::new();
    object.insert("uri".into(), json!(item.uri.as_deref().unwrap_or(uri)));
    if let Some(mime_type) = item.mime_type.as_deref().or(mime_type) {
        object.insert("mimeType".into(), json!(mime_type));
    }
    match (&item.text, &item.blob) {
        (Some(text), _) => object.insert("text".into(), json!(text)),
        (None, blob) => object.insert("blob".into(), json!(blob.as_deref().unwrap_or_default())),
    };
    if let Some(meta) = &item.meta {
        object.insert("_meta".into(), Value::Object(meta.clone()));
    }
    Value::Object(object)
}
