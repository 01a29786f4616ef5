//! Servers and their listings, indexed once.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, OnceLock};

use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{
    AuthScheme, Builtin, Definition, EdgeServer, Kind, Listing, Mutation, Primitive, Protocol, RiskClass,
    Runtime, Server, ServerPart, Sessions, service_auth,
};
use asp_registry::uri_template::UriTemplate;
use asp_registry::version;
use prost::Message as _;
use serde_json::{Map, Value, json};

use crate::artifact;
use crate::media_types::MediaTypes;
use crate::param_headers::ParamHeaders;
use crate::schema::Schema;
use crate::search::SearchIndex;

/// An elicitation or a delegate: primitives depend on it, and nobody calls it.
pub struct Dependency {
    pub kind: Kind,
    /// Constant part of the question (`Primitive.question`).
    pub question: Map<String, Value>,
    /// The primitive with its schemas; no server lists it.
    pub entry: ListedPrimitive,
}

/// One server as its callers see it, before policy.
pub struct VirtualServer {
    pub message: Server,
    pub edge: EdgeServer,
    /// Listed primitives in list order.
    pub entries: Vec<Arc<ListedPrimitive>>,
    /// Whether any primitive calls its service with a token exchanged for the caller's own.
    pub exchanges: bool,
    /// Elicitations and delegates that its primitives may use.
    pub(crate) dependencies: Vec<Arc<Dependency>>,
    tools: HashMap<String, Arc<ListedPrimitive>>,
    /// Tools and tasks by REST name.
    rest_tools: HashMap<String, Arc<ListedPrimitive>>,
    prompts: HashMap<String, Arc<ListedPrimitive>>,
    resources: HashMap<String, Arc<ListedPrimitive>>,
    /// URI templates in list order; exact URIs take precedence.
    templates: Vec<Arc<ListedPrimitive>>,
    /// Reader of artifacts, which is never listed.
    artifact: Arc<ListedPrimitive>,
    /// Search index, built at the first search.
    search: OnceLock<SearchIndex>,
}

/// A primitive as one server lists it.
pub struct ListedPrimitive {
    pub primitive: Primitive,
    pub listing: Listing,
    pub input: Option<Schema>,
    pub output: Option<Schema>,
    /// Schema of the artifacts that a task emits.
    pub artifacts: Option<Schema>,
    pub template: Option<UriTemplate>,
    pub param_headers: ParamHeaders,
    /// Media types of the skill; none if the server does not list it as one.
    pub media_types: MediaTypes,
    /// Digest of the whole primitive. As long as it is the same, a read gives the same result, as far as the spec
    /// decides that.
    pub digest: u64,
    /// Object that the gateway keeps with the primitive while this snapshot lives, so that calls need no lookup; its
    /// metrics set it at the first call.
    pub attached: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Definitions in ascending order of their first revision; dates compare as text.
    definitions: Vec<DatedDefinition>,
}

/// A definition and the first revision it applies to.
struct DatedDefinition {
    revision: String,
    definition: Map<String, Value>,
    /// Digest of the definition and of its listed name.
    digest: u64,
}

/// Rejects a primitive whose mutation or risk class this version does not know. Read as unset, the value would make
/// approval unnecessary.
fn check_known(primitive: &Primitive) -> Result<(), String> {
    let unknown = |what: &str, value: i32| {
        Err(format!("primitive {}: its {what} {value} is not known to this version", primitive.id))
    };
    if Mutation::try_from(primitive.mutation).is_err() {
        return unknown("mutation", primitive.mutation);
    }
    match RiskClass::try_from(primitive.risk_class) {
        Ok(_) => Ok(()),
        Err(_) => unknown("risk class", primitive.risk_class),
    }
}

impl VirtualServer {
    pub(crate) fn build(part: ServerPart) -> Result<VirtualServer, String> {
        let server = part.server.ok_or("it has no server")?;
        let edge = part.edge.filter(|edge| edge.name == server.name).ok_or("not at the edge")?;
        let primitives: HashMap<(&str, &str), &Primitive> =
            part.primitives.iter().map(|p| ((p.id.as_str(), p.version.as_str()), p)).collect();
        part.primitives.iter().try_for_each(check_known)?;
        let mut view = VirtualServer {
            dependencies: dependencies(&part.primitives)?,
            message: Server::default(),
            edge,
            entries: Vec::new(),
            exchanges: false,
            tools: HashMap::new(),
            rest_tools: HashMap::new(),
            prompts: HashMap::new(),
            resources: HashMap::new(),
            templates: Vec::new(),
            artifact: Arc::new(ListedPrimitive::artifact()?),
            search: OnceLock::new(),
        };
        let card: Value = serde_json::from_str(&server.a2a_card).unwrap_or_default();
        for listing in &server.listings {
            let primitive =
                primitives.get(&(listing.id.as_str(), listing.version.as_str())).ok_or_else(|| {
                    format!("primitive {}@{} is not in the snapshot", listing.id, listing.version)
                })?;
            let mut entry = ListedPrimitive::build(primitive, listing)
                .map_err(|e| format!("primitive {}: {e}", listing.id))?;
            if !listing.a2a_skill.is_empty() {
                entry.media_types = MediaTypes::of(&primitive.a2a_skill, &card);
            }
            view.add(Arc::new(entry));
        }
        view.message = server;
        Ok(view)
    }

    fn add(&mut self, entry: Arc<ListedPrimitive>) {
        let name = entry.listing.mcp_name.clone();
        if !name.is_empty() {
            match entry.primitive.kind() {
                Kind::Tool | Kind::Task => drop(self.tools.insert(name, entry.clone())),
                Kind::Prompt => drop(self.prompts.insert(name, entry.clone())),
                Kind::Resource => drop(self.resources.insert(name, entry.clone())),
                Kind::ResourceTemplate => self.templates.push(entry.clone()),
                Kind::Elicitation | Kind::Delegate | Kind::Unspecified => {}
            }
        }
        if !entry.listing.rest_name.is_empty() && matches!(entry.primitive.kind(), Kind::Tool | Kind::Task) {
            self.rest_tools.insert(entry.listing.rest_name.clone(), entry.clone());
        }
        let auth = entry.primitive.service_auth.as_ref().and_then(|auth| auth.kind.as_ref());
        self.exchanges |= matches!(auth, Some(service_auth::Kind::Exchange(_)));
        self.entries.push(entry);
    }

    /// Returns the index for searches among the listed primitives.
    pub fn search_index(&self) -> &SearchIndex {
        self.search.get_or_init(|| {
            let entries = self.entries.iter();
            SearchIndex::of(entries.map(|entry| (&entry.primitive, entry.listing.mcp_name.as_str())))
        })
    }

    /// Returns the tool or task with this id, whatever its listed name. If several major versions are listed, returns
    /// the requested one, else the highest.
    pub fn tool_by_id(&self, id: &str, named: Option<u64>) -> Option<&Arc<ListedPrimitive>> {
        let major = |entry: &&Arc<ListedPrimitive>| version::major(&entry.primitive.version);
        let is_it = |entry: &&Arc<ListedPrimitive>| {
            entry.primitive.id == id
                && matches!(entry.primitive.kind(), Kind::Tool | Kind::Task)
                && named.is_none_or(|named| named == major(entry))
        };
        self.entries.iter().filter(is_it).max_by_key(major)
    }

    /// Returns the tool or task with this MCP name.
    pub fn tool(&self, name: &str) -> Option<&Arc<ListedPrimitive>> {
        self.tools.get(name)
    }

    /// Returns the tool or task with this REST name.
    pub fn rest_tool(&self, name: &str) -> Option<&Arc<ListedPrimitive>> {
        self.rest_tools.get(name)
    }

    pub fn prompt(&self, name: &str) -> Option<&Arc<ListedPrimitive>> {
        self.prompts.get(name)
    }

    /// Returns the resource with exactly this URI, else the first matching template with the values of its variables.
    /// Artifacts have a URI scheme of their own.
    pub fn resource(&self, uri: &str) -> Option<(Arc<ListedPrimitive>, Map<String, Value>)> {
        if uri.starts_with(artifact::SCHEME) {
            return Some((self.artifact.clone(), Map::new()));
        }
        if let Some(entry) = self.resources.get(uri) {
            return Some((entry.clone(), Map::new()));
        }
        self.templates.iter().find_map(|entry| {
            let variables = entry.template.as_ref()?.matches(uri)?;
            Some((entry.clone(), variables))
        })
    }

    /// Returns the template with exactly this text if its plugin lists the resources behind it.
    pub fn listing_template(&self, text: &str) -> Option<&Arc<ListedPrimitive>> {
        let mut lists = self.templates.iter().filter(|entry| entry.primitive.listed_by_runtime);
        lists.find(|entry| entry.listing.mcp_name == text)
    }

    pub fn accepts(&self, scheme: AuthScheme) -> bool {
        self.edge.schemes().any(|accepted| accepted == scheme)
    }

    pub fn speaks(&self, protocol: Protocol) -> bool {
        self.edge.protocols().any(|spoken| spoken == protocol)
    }

    /// Returns how legacy requests without a session id are treated; stateful by default.
    pub fn sessions(&self) -> Sessions {
        match self.edge.sessions() {
            Sessions::Unspecified => Sessions::Stateful,
            stated => stated,
        }
    }
}

impl ListedPrimitive {
    pub fn build(primitive: &Primitive, listing: &Listing) -> Result<ListedPrimitive, String> {
        let compiled = |text: &str, what: &str, compile: fn(&str) -> Result<Schema, String>| match text {
            "" => Ok(None),
            text => compile(text).map(Some).map_err(|e| format!("{what}: {e}")),
        };
        let schema = |text: &str, what: &str| compiled(text, what, Schema::compile);
        // The formats of another MCP server, agent or HTTP service are for the service and its clients to check.
        let lenient = |text: &str, what: &str| compiled(text, what, Schema::compile_lenient);
        let mode = primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
        let is_upstream = matches!(mode, Some(Mode::ProxyMcp(_) | Mode::McpStdio(_) | Mode::ProxyA2a(_)));
        let is_of_service = is_upstream || matches!(mode, Some(Mode::ProxyHttp(_)));
        let template = match primitive.kind() {
            Kind::ResourceTemplate => Some(
                UriTemplate::parse_matching(&listing.mcp_name)
                    .map_err(|fault| format!("the URI template: {fault}"))?,
            ),
            _ => None,
        };
        let definition = |message| definition(message, listing);
        let definitions = primitive.mcp.iter().map(definition).collect::<Result<Vec<_>, String>>()?;
        let input = match primitive.kind() {
            Kind::Prompt => schema(&prompt_schema(&definitions), "prompt arguments")?,
            _ if is_upstream => lenient(&primitive.input_schema, "input schema")?,
            _ => schema(&primitive.input_schema, "input schema")?,
        };
        Ok(ListedPrimitive {
            input,
            output: match is_of_service {
                true => lenient(&primitive.output_schema, "output schema")?,
                false => schema(&primitive.output_schema, "output schema")?,
            },
            artifacts: schema(&primitive.artifact_schema, "artifact schema")?,
            param_headers: ParamHeaders::of(&primitive.input_schema),
            media_types: MediaTypes::default(),
            template,
            digest: digest(&[&primitive.encode_to_vec()]),
            attached: OnceLock::new(),
            definitions,
            primitive: primitive.clone(),
            listing: listing.clone(),
        })
    }

    /// Returns the resource behind all artifact URIs.
    fn artifact() -> Result<ListedPrimitive, String> {
        let builtin = Builtin { entrypoint: artifact::ENTRYPOINT.into() };
        let primitive = Primitive {
            id: artifact::PRIMITIVE_ID.into(),
            kind: Kind::Resource.into(),
            mutation: Mutation::ReadOnly.into(),
            runtime: Some(Runtime { mode: Some(Mode::Builtin(builtin)) }),
            ..Primitive::default()
        };
        ListedPrimitive::build(&primitive, &Listing::default())
    }

    /// Whether its calls may create resources that only the caller can read.
    pub fn may_leave_artifacts(&self) -> bool {
        let mode = self.primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
        // A tool with an output schema answers with JSON.
        let may_answer_bytes = matches!(mode, Some(Mode::ProxyHttp(_))) && self.output.is_none();
        matches!(self.primitive.kind(), Kind::Tool | Kind::Task)
            && (may_answer_bytes || matches!(mode, Some(Mode::Plugin(_) | Mode::McpStdio(_))))
    }

    /// Whether its calls go to an external service, in that service's protocol and with its schemas and defaults.
    pub fn is_forwarded(&self) -> bool {
        let mode = self.primitive.runtime.as_ref().and_then(|runtime| runtime.mode.as_ref());
        matches!(mode, Some(Mode::ProxyMcp(_) | Mode::McpStdio(_) | Mode::ProxyHttp(_) | Mode::ProxyA2a(_)))
    }

    /// Whether a prompt has this argument, or a template this variable.
    pub fn is_argument(&self, name: &str) -> bool {
        match &self.template {
            Some(template) => template.variables().any(|variable| variable == name),
            None => prompt_arguments(&self.definitions)
                .any(|argument| argument.get("name").and_then(Value::as_str) == Some(name)),
        }
    }

    /// Returns the MCP definition for `revision`, under the name that this server exposes.
    pub fn definition(&self, revision: Revision) -> Option<Value> {
        let mut definition = self.since(revision)?.definition.clone();
        let key = match self.primitive.kind() {
            Kind::Resource => "uri",
            Kind::ResourceTemplate => "uriTemplate",
            _ => "name",
        };
        definition.insert(key.into(), Value::String(self.listing.mcp_name.clone()));
        Some(Value::Object(definition))
    }

    /// Returns a digest of what `revision` lists of the primitive; `None` if it lists nothing.
    pub fn listed_digest(&self, revision: Revision) -> Option<u64> {
        Some(self.since(revision)?.digest)
    }

    fn since(&self, revision: Revision) -> Option<&DatedDefinition> {
        self.definitions.iter().rev().find(|since| since.revision.as_str() <= revision.as_str())
    }
}

fn dependencies(primitives: &[Primitive]) -> Result<Vec<Arc<Dependency>>, String> {
    let mut found = Vec::new();
    for primitive in primitives.iter().filter(|p| matches!(p.kind(), Kind::Elicitation | Kind::Delegate)) {
        let question = match primitive.question.as_str() {
            "" => Map::new(),
            text => serde_json::from_str(text)
                .map_err(|e| format!("primitive {}: question: {e}", primitive.id))?,
        };
        let entry = ListedPrimitive::build(primitive, &Listing::default())
            .map_err(|e| format!("primitive {}: {e}", primitive.id))?;
        found.push(Arc::new(Dependency { kind: primitive.kind(), question, entry }));
    }
    Ok(found)
}

fn prompt_arguments(definitions: &[DatedDefinition]) -> impl Iterator<Item = &Value> {
    let arguments = definitions.last().and_then(|since| since.definition.get("arguments")?.as_array());
    arguments.into_iter().flatten()
}

/// Returns the schema of a prompt's arguments: strings, some of them required (MCP `PromptArgument`).
fn prompt_schema(definitions: &[DatedDefinition]) -> String {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for argument in prompt_arguments(definitions) {
        let Some(name) = argument.get("name").and_then(Value::as_str) else { continue };
        properties.insert(name.into(), json!({"type": "string"}));
        if argument.get("required") == Some(&Value::Bool(true)) {
            required.push(name);
        }
    }
    json!({"type": "object", "properties": properties, "required": required}).to_string()
}

fn definition(message: &Definition, listing: &Listing) -> Result<DatedDefinition, String> {
    match serde_json::from_str(&message.json) {
        Ok(Value::Object(definition)) => Ok(DatedDefinition {
            digest: digest(&[message.json.as_bytes(), listing.mcp_name.as_bytes()]),
            revision: message.since.clone(),
            definition,
        }),
        _ => Err(format!("definition since {}: not a JSON object", message.since)),
    }
}

/// Tells versions of one item apart within this process, nothing else. A spec whose digest collides with that of its
/// previous version only misses a notification to its own clients.
fn digest(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    hasher.finish()
}
