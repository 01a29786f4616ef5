//! The primitive spec as its author writes it.
//!
//! Owns the keys, in the mixed case the format has had from its first sample, and their defaults. Refuses
//! unknown keys. What the keys may hold beyond their types is judged in `rules`.
//!
//! Against the first sample these keys are restored or corrected, and these are added:
//! - `primitiveDependencies` is an object `{elicitations: [{id}], delegations: [{id}]}` (it was an array
//!   holding keys, which is no JSON);
//! - `primitiveSchema.artifacts` stands beside `output_schema`, not inside it, since the sample's tool has
//!   no such key in its `outputSchema`;
//! - comments are gone from JSON, and the lines the page's edge had cut off are whole;
//! - added: `_meta`, `mutation`, `annotations`, `examples`, `icons`, `idempotency`,
//!   `capabilities.inputTimeoutSeconds|elicitationRequired|taskRequired|taskAfterInput|pollStream`, `exposure.rest`, `exposure.a2a.skill.inputModes|outputModes`,
//!   the runtime modes `builtin`, `mcp-stdio` and `primitive`, `proxy.openai`, `roots` and `prefer` of delegates.

mod exposure;
mod runtime;
mod schema;

pub(crate) use exposure::{Exposed, Exposure};
pub(crate) use runtime::{
    Body, BodyFormat, CallsProxy, Cpu, HttpProxy, Mode, OpenaiProxy, Pool, PoolMode, Resources, Runtime,
    ServiceAuth,
};
pub(crate) use schema::{
    Completer, ContentType, Contents, Field, FieldType, Message, Offered, Prefer, PrimitiveSchema, Role,
    Sampling,
};

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::version;

/// A primitive: one unit of work or one static element that servers expose over MCP, A2A and REST.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Policy, limits and audit name the primitive by this: `[A-Za-z0-9_.-]{1,128}`.
    pub id: String,
    /// The title people read.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Semantic version.
    pub version: String,
    /// Who answers for it, an address or alias.
    pub owner: String,
    /// What it does: the description a model chooses by.
    #[serde(default)]
    pub summary: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub capabilities: Capabilities,
    #[serde(default, rename = "primitiveSchema")]
    pub schema: PrimitiveSchema,
    #[serde(default)]
    pub progress_policy: Option<ProgressPolicy>,
    /// What a plugin may ask for while it runs; an id that is not here is refused.
    #[serde(default, rename = "primitiveDependencies")]
    pub dependencies: Dependencies,
    #[serde(default)]
    pub security: Security,
    #[serde(default)]
    pub exposure: Exposure,
    /// How it runs; absent for static prompts and resources, elicitations and plain delegates.
    #[serde(default)]
    pub runtime: Option<Runtime>,
    /// What a call changes. Drives hints, retries, the ledger and approval. Absent: destructive for tools
    /// and tasks, read_only for the rest.
    #[serde(default)]
    pub mutation: Option<Mutation>,
    #[serde(default)]
    pub annotations: Annotations,
    #[serde(default)]
    pub examples: Vec<Example>,
    #[serde(default)]
    pub icons: Vec<Icon>,
    /// What clients find in `_meta` of the list's entry, as it stands here, such as the page of a tool's user interface
    /// (MCP Apps, `ui.resourceUri`); at most 16 KiB.
    #[serde(default, rename = "_meta")]
    pub meta: Option<Map<String, Value>>,
    #[serde(default)]
    pub idempotency: Option<Idempotency>,
    /// The file beside it that some of its schemas come from.
    #[serde(skip)]
    pub schema_file: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Tool,
    Task,
    Resource,
    ResourceTemplate,
    Prompt,
    Elicitation,
    Delegate,
}

impl Spec {
    /// 0 of what is no version.
    pub(crate) fn major(&self) -> u64 {
        version::major(&self.version)
    }

    /// What a call changes; without a word the worst is assumed of what runs, the best of what is read.
    pub(crate) fn changes(&self) -> Mutation {
        let unstated = if self.kind.is_tool() { Mutation::Destructive } else { Mutation::ReadOnly };
        self.mutation.unwrap_or(unstated)
    }

    /// Whether another MCP server describes and runs it.
    pub(crate) fn is_upstream(&self) -> bool {
        self.runtime.as_ref().is_some_and(|runtime| runtime.mcp.is_some() || runtime.mode == Mode::McpStdio)
    }

    /// Whether code may say its schemas: a tool or task that a plugin runs.
    pub(crate) fn has_code(&self) -> bool {
        let is_plugin = self.runtime.as_ref().is_some_and(|runtime| runtime.mode == Mode::Plugin);
        self.kind.is_tool() && is_plugin
    }
}

impl Kind {
    /// Whether MCP lists it as a tool: a task is a tool that takes its time.
    pub(crate) fn is_tool(self) -> bool {
        matches!(self, Kind::Tool | Kind::Task)
    }

    pub(crate) fn is_resource(self) -> bool {
        matches!(self, Kind::Resource | Kind::ResourceTemplate)
    }

    /// Whether clients can see it at all.
    pub(crate) fn is_exposable(self) -> bool {
        !matches!(self, Kind::Elicitation | Kind::Delegate)
    }

    /// The word of the spec.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Tool => "tool",
            Kind::Task => "task",
            Kind::Resource => "resource",
            Kind::ResourceTemplate => "resource_template",
            Kind::Prompt => "prompt",
            Kind::Elicitation => "elicitation",
            Kind::Delegate => "delegate",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mutation {
    ReadOnly,
    Idempotent,
    NonIdempotent,
    Destructive,
}

impl Mutation {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Mutation::ReadOnly => "read_only",
            Mutation::Idempotent => "idempotent",
            Mutation::NonIdempotent => "non_idempotent",
            Mutation::Destructive => "destructive",
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Capabilities {
    #[serde(default)]
    pub supports_progress: bool,
    #[serde(default)]
    pub supports_cancellation: bool,
    /// Absent: as `primitiveDependencies.elicitations` says.
    #[serde(default)]
    pub supports_elicitation: Option<bool>,
    /// Absent: as `primitiveDependencies.delegations` says.
    #[serde(default)]
    pub supports_delegation: Option<bool>,
    /// Hard bound of one call in seconds; 60 when absent, at most a day.
    #[serde(default)]
    #[schemars(range(min = 1, max = 86400))]
    pub max_runtime_seconds: Option<u32>,
    /// How long a question to the user may stay open, in seconds; 300 when absent, at most a day.
    #[serde(default)]
    #[schemars(range(min = 1, max = 86400))]
    pub input_timeout_seconds: Option<u32>,
    /// Only clients whose user can be asked, in the way of each of `primitiveDependencies.elicitations`, may call it;
    /// another one's call is refused before anything runs.
    #[serde(default)]
    pub elicitation_required: bool,
    /// task: only clients that come back for what it has come to (MCP tasks extension) may call it.
    #[serde(default)]
    pub task_required: bool,
    /// task: its first questions are asked before the client is told to come back.
    #[serde(default)]
    pub task_after_input: bool,
    /// task: clients of MCP 2025-11-25 poll: a stream that is quiet is closed, and its client comes back to it.
    #[serde(default)]
    pub poll_stream: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ProgressPolicy {
    /// Silence of three of these on a task is a wedge.
    #[schemars(range(min = 1, max = 3600))]
    pub heartbeat_seconds: u32,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dependencies {
    #[serde(default)]
    pub elicitations: Vec<Dependency>,
    #[serde(default)]
    pub delegations: Vec<Dependency>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dependency {
    /// The id of a primitive in the same folder, or `folder/id`.
    pub id: String,
}

/// `folder/id@1` → `folder/id`, and what stands for its major version.
pub(crate) fn versioned(reference: &str) -> (&str, Option<&str>) {
    reference.rsplit_once('@').map_or((reference, None), |(reference, major)| (reference, Some(major)))
}

/// `folder/id` → `id`.
pub(crate) fn bare_id(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Security {
    /// high: linked tokens are never stored, calls need an explicit allow or an approval; medium (when
    /// absent): stored within the session; low: cached per user.
    #[serde(default)]
    pub risk_class: Option<RiskClass>,
    /// Hosts a plugin may reach.
    #[serde(default)]
    pub allowed_domains: Vec<String>,
    #[serde(default)]
    pub auth: Option<PrimitiveAuth>,
    #[serde(default)]
    pub rate_limit_max: Option<RateLimit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RiskClass {
    Low,
    Medium,
    High,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrimitiveAuth {
    #[serde(rename = "type")]
    pub scheme: Scheme,
    /// Scopes a caller needs beside those of the server.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// How callers prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    Jwt,
    Opaque,
    Psk,
    Mtls,
    None,
}

impl Scheme {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Scheme::Jwt => "jwt",
            Scheme::Opaque => "opaque",
            Scheme::Psk => "psk",
            Scheme::Mtls => "mtls",
            Scheme::None => "none",
        }
    }
}

/// At most `invocationCount` calls in any window of `timeUnitCount` × `timeUnit`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RateLimit {
    pub invocation_count: u32,
    #[serde(default = "one")]
    pub time_unit_count: u32,
    #[serde(default)]
    pub time_unit: TimeUnit,
    /// Calls running at once; no bound when absent.
    #[serde(default)]
    pub concurrent_invocations: Option<u32>,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeUnit {
    #[default]
    Seconds,
    Minutes,
    Hours,
    Days,
}

impl TimeUnit {
    pub(crate) fn seconds(self) -> u64 {
        match self {
            TimeUnit::Seconds => 1,
            TimeUnit::Minutes => 60,
            TimeUnit::Hours => 3_600,
            TimeUnit::Days => 86_400,
        }
    }
}

/// Hints for clients. `readOnlyHint`, `destructiveHint` and `idempotentHint` follow from `mutation` and
/// may be written only to say the same.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Annotations {
    /// `annotations.title` of a tool; `name` when absent.
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub read_only_hint: Option<bool>,
    #[serde(default)]
    pub destructive_hint: Option<bool>,
    #[serde(default)]
    pub idempotent_hint: Option<bool>,
    /// Whether a tool reaches out into an open world (web search); false when absent.
    #[serde(default)]
    pub open_world_hint: Option<bool>,
    /// Whom a resource is for.
    #[serde(default)]
    pub audience: Vec<Role>,
    /// How important a resource is, 0 to 1.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub priority: Option<f64>,
}

/// An example call: words an agent would use, arguments, or both.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Example {
    #[serde(default)]
    pub text: Option<String>,
    /// Arguments; checked against the input schema.
    #[serde(default)]
    pub input: Option<Value>,
    /// The result; checked against the output schema.
    #[serde(default)]
    pub output: Option<Value>,
    /// What `asp plugin test` answers the plugin's questions with, by the id of the elicitation (an object of its
    /// fields, "decline" or "cancel") or delegate (a text, or any other value as its JSON).
    #[serde(default)]
    pub answers: BTreeMap<String, Value>,
}

/// An icon (MCP 2025-11-25).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Icon {
    /// https or data URI.
    pub src: String,
    #[serde(default)]
    pub mime_type: Option<String>,
    /// e.g. `48x48` or `any`.
    #[serde(default)]
    pub sizes: Vec<String>,
    #[serde(default)]
    pub theme: Option<Theme>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Theme {
    Light,
    Dark,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Idempotency {
    /// The top-level text argument that carries the idempotency key.
    pub argument: String,
}
