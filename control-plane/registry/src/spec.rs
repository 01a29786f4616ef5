//! The primitive spec as its author writes it.
//!
//! Owns the keys, in the mixed case that the format has had since its first sample, and their defaults. Refuses
//! unknown keys. Values are checked in `rules`.
//!
//! Compared with the first sample these keys are restored, corrected or added:
//! - `primitiveDependencies` is an object `{elicitations: [{id}], delegations: [{id}]}` (it was an array of keys,
//!   which is not JSON);
//! - `primitiveSchema.artifacts` is next to `output_schema`, not inside it, since the sample's tool has no such key
//!   in its `outputSchema`;
//! - the JSON has no comments, and lines that were cut off at the edge of the page are complete;
//! - added: `_meta`, `mutation`, `annotations`, `examples`, `icons`, `idempotency`,
//!   `capabilities.inputTimeoutSeconds|elicitationRequired|taskRequired|taskAfterInput|pollStream`, `exposure.rest`,
//!   `exposure.a2a.skill.inputModes|outputModes|textArgument`, `deprecated`, the runtime modes `builtin`, `mcp-stdio` and
//!   `primitive`, `proxy.a2a`, `proxy.openai`, `roots` and `prefer` of delegates.

/// Gives the values of an enum the words that stand for them in specs.
macro_rules! words {
    ($type:ident: $($value:ident => $word:literal),+) => {
        impl $type {
            /// Returns the value as in specs.
            pub(crate) fn word(self) -> &'static str {
                match self {
                    $($type::$value => $word,)+
                }
            }
        }
    };
}

mod exposure;
mod runtime;
mod schema;

pub(crate) use exposure::{Exposure, ExposureSettings};
pub(crate) use runtime::{
    A2aProxy, AgentBinding, BodyFormat, CallsProxy, Cpu, HttpProxy, Mode, OpenaiProxy, Pool, PoolMode,
    RequestBody, Resources, Runtime, ServiceAuth,
};
pub(crate) use schema::{
    Completer, CompletionSource, ContentType, Contents, FieldType, FormField, Prefer, PrimitiveSchema,
    PromptMessage, Role, Sampling,
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
    /// Id of the primitive in policy, limits and audit: `[A-Za-z0-9_.-]{1,128}`.
    pub id: String,
    /// Title for people.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Semantic version.
    pub version: String,
    /// Address or alias of the person or team responsible for it.
    pub owner: String,
    /// Description by which a model chooses the primitive.
    pub summary: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub capabilities: Capabilities,
    #[serde(default, rename = "primitiveSchema")]
    pub schema: PrimitiveSchema,
    pub progress_policy: Option<ProgressPolicy>,
    /// Elicitations and delegates that a plugin may use while it runs; other ids are rejected.
    #[serde(default, rename = "primitiveDependencies")]
    pub dependencies: Dependencies,
    #[serde(default)]
    pub security: Security,
    #[serde(default)]
    pub exposure: Exposure,
    /// Runtime of its calls; absent for static prompts and resources, elicitations and plain delegates.
    pub runtime: Option<Runtime>,
    /// Effect of a call. Determines hints, retries, the ledger and approval. When absent, destructive for tools and
    /// tasks, read_only for all others.
    pub mutation: Option<Mutation>,
    #[serde(default)]
    pub annotations: Annotations,
    #[serde(default)]
    pub examples: Vec<Example>,
    #[serde(default)]
    pub icons: Vec<Icon>,
    /// Members of `_meta` in the list's entry, unchanged, such as the page of a tool's user interface (MCP Apps,
    /// `ui.resourceUri`); at most 16 KiB.
    #[serde(default, rename = "_meta")]
    pub meta: Option<Map<String, Value>>,
    pub idempotency: Option<Idempotency>,
    /// End of its support, which lists and the agent card announce.
    pub deprecated: Option<Deprecation>,
    /// Path of the generated file from which some of its schemas come.
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
    /// Returns the major version, 0 if the version is invalid.
    pub(crate) fn major(&self) -> u64 {
        version::major(&self.version)
    }

    /// Returns the effect of a call. If the spec does not state it, a tool or task is assumed destructive, anything
    /// else read-only.
    pub(crate) fn changes(&self) -> Mutation {
        let unstated = if self.kind.is_tool() { Mutation::Destructive } else { Mutation::ReadOnly };
        self.mutation.unwrap_or(unstated)
    }

    /// Whether another MCP server describes and runs it.
    pub(crate) fn is_upstream(&self) -> bool {
        self.runtime.as_ref().is_some_and(|runtime| runtime.mcp.is_some() || runtime.mode == Mode::McpStdio)
    }

    /// Whether its schemas may come from code: a tool or task that a plugin runs.
    pub(crate) fn has_code(&self) -> bool {
        let is_plugin = self.runtime.as_ref().is_some_and(|runtime| runtime.mode == Mode::Plugin);
        self.kind.is_tool() && is_plugin
    }
}

impl Kind {
    /// Whether MCP lists it as a tool; a task is a long-running tool.
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
}

words!(
    Kind: Tool => "tool", Task => "task", Resource => "resource", ResourceTemplate => "resource_template",
    Prompt => "prompt", Elicitation => "elicitation", Delegate => "delegate"
);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mutation {
    ReadOnly,
    Idempotent,
    NonIdempotent,
    Destructive,
}

words!(
    Mutation: ReadOnly => "read_only", Idempotent => "idempotent", NonIdempotent => "non_idempotent",
    Destructive => "destructive"
);

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Capabilities {
    pub supports_progress: bool,
    pub supports_cancellation: bool,
    /// Whether it asks users; when absent, whether `primitiveDependencies.elicitations` lists any.
    pub supports_elicitation: Option<bool>,
    /// Whether it delegates; when absent, whether `primitiveDependencies.delegations` lists any.
    pub supports_delegation: Option<bool>,
    /// Maximum duration of one call in seconds; 60 when absent, at most a day.
    #[schemars(range(min = 1, max = 86400))]
    pub max_runtime_seconds: Option<u32>,
    /// Maximum time for which a question to the user stays open, in seconds; 300 when absent, at most a day.
    #[schemars(range(min = 1, max = 86400))]
    pub input_timeout_seconds: Option<u32>,
    /// Whether only clients that support each of `primitiveDependencies.elicitations` may call it; calls by other
    /// clients are rejected before anything runs.
    pub elicitation_required: bool,
    /// task: whether only clients that return for the result (MCP tasks extension) may call it.
    pub task_required: bool,
    /// task: whether its first questions are asked before the client is told to return later.
    pub task_after_input: bool,
    /// task: whether clients of MCP 2025-11-25 poll: a quiet stream is closed, and its client reconnects.
    pub poll_stream: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ProgressPolicy {
    /// Interval of heartbeats in seconds; a task that is silent for three of them counts as stuck.
    #[schemars(range(min = 1, max = 3600))]
    pub heartbeat_seconds: u32,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Dependencies {
    pub elicitations: Vec<Dependency>,
    pub delegations: Vec<Dependency>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dependency {
    /// Id of a primitive in the same folder, or `folder/id`.
    pub id: String,
}

/// Splits `folder/id@1` into `folder/id` and the text of its major version.
pub(crate) fn versioned(reference: &str) -> (&str, Option<&str>) {
    reference.rsplit_once('@').map_or((reference, None), |(reference, major)| (reference, Some(major)))
}

/// Returns `id` of `folder/id`.
pub(crate) fn bare_id(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Security {
    /// high: calls need an explicit allow or an approval, and each has a fresh process; medium (when absent): linked
    /// accounts end with the session; low: they outlive it.
    pub risk_class: Option<RiskClass>,
    /// Hosts that a plugin may reach by HTTP.
    pub allowed_domains: Vec<String>,
    /// `host:port` of services that a plugin may reach by TCP, such as a database or a broker (docs/plugins.md).
    pub allowed_tcp: Vec<String>,
    pub auth: Option<PrimitiveAuth>,
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
    /// `none`, or one of the server's `auth.schemes`; callers may use any of those.
    #[serde(rename = "type")]
    pub scheme: Scheme,
    /// Scopes that a caller needs in addition to those of the server.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// Authentication scheme of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    Jwt,
    Opaque,
    Psk,
    Mtls,
    None,
}

words!(Scheme: Jwt => "jwt", Opaque => "opaque", Psk => "psk", Mtls => "mtls", None => "none");

/// Limit of `invocationCount` calls in any window of `timeUnitCount` × `timeUnit`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RateLimit {
    pub invocation_count: u32,
    #[serde(default = "one")]
    pub time_unit_count: u32,
    #[serde(default)]
    pub time_unit: TimeUnit,
    /// Maximum number of concurrent calls; unlimited when absent.
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

/// Hints for clients. `readOnlyHint`, `destructiveHint` and `idempotentHint` follow from `mutation` and may only be
/// written with the same meaning.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Annotations {
    /// Title in a tool's `annotations`; `name` when absent.
    pub title: Option<String>,
    pub read_only_hint: Option<bool>,
    pub destructive_hint: Option<bool>,
    pub idempotent_hint: Option<bool>,
    /// Whether a tool interacts with an open world, such as a web search; false when absent.
    pub open_world_hint: Option<bool>,
    /// Intended audience of a resource.
    pub audience: Vec<Role>,
    /// Importance of a resource, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub priority: Option<f64>,
}

/// An example call: words an agent would use, arguments, or both.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Example {
    pub text: Option<String>,
    /// Arguments, checked against the input schema.
    pub input: Option<Value>,
    /// Result, checked against the output schema.
    pub output: Option<Value>,
    /// Answers of `asp plugin test` to the plugin's questions, by the id of the elicitation (an object of its fields,
    /// "decline" or "cancel") or delegate (a text, or any other value as its JSON).
    #[serde(default)]
    pub answers: BTreeMap<String, Value>,
}

/// An icon (MCP 2025-11-25).
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Icon {
    /// https or data URI.
    pub src: String,
    pub mime_type: Option<String>,
    /// Sizes such as `48x48` or `any`.
    #[serde(default)]
    pub sizes: Vec<String>,
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
    /// Name of the top-level text argument that carries the idempotency key.
    pub argument: String,
}

/// End of a primitive's support.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deprecation {
    /// First day without support, `YYYY-MM-DD` in UTC.
    pub until: String,
    /// Id of the primitive to call instead.
    #[serde(rename = "use")]
    pub replacement: Option<String>,
    /// Reason, for people and models.
    pub reason: Option<String>,
    /// Whether calls are refused from that day on.
    #[serde(default)]
    pub refuse: bool,
}

impl Deprecation {
    /// Returns the start of the first day without support in Unix seconds; `None` for a text that is no date.
    pub(crate) fn until_unix_s(&self) -> Option<u64> {
        let moment = asp_platform::time::from_rfc3339(&format!("{}T00:00:00Z", self.until))?;
        u64::try_from(moment / 1000).ok()
    }
}
