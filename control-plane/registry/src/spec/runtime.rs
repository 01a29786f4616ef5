//! Runtime of a primitive.
//!
//! One flat mapping: `mode` determines which of the other keys have a meaning; the rest are misplaced.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runtime {
    pub mode: Mode,
    /// builtin: a registered name. plugin: a file, module or class inside the package, optionally followed by `:` and the
    /// name of the handler in it; without one, the only handler there, or the one named like the primitive.
    pub entrypoint: Option<String>,
    /// plugin
    pub language: Option<Language>,
    /// plugin, mcp-stdio
    pub resources: Option<Resources>,
    /// plugin, mcp-stdio: number of processes and of calls that each serves.
    pub pool: Option<Pool>,
    /// plugin, mcp-stdio: weakest sandbox that its workers may run in. 3 (when absent): namespaces, Landlock, seccomp
    /// and cgroups; 2: without namespaces; 1: its own user and resource limits only.
    #[serde(default, rename = "minIsolation")]
    #[schemars(range(min = 1, max = 3))]
    pub min_isolation: Option<u32>,
    /// plugin, mcp-stdio: SHA-256 of the package file that `asp plugin build` makes, 64 lower-case hex digits.
    #[serde(default, rename = "artifactSha256")]
    pub artifact_sha256: Option<String>,
    /// plugin, of a tool or task: whether it may keep keys and values for each org, which outlive its calls
    /// (docs/plugins.md); false when absent.
    pub storage: Option<bool>,
    /// plugin: names of the operator's secrets that the code asks for (`ctx.secret`, docs/secrets.md). Naming a secret grants
    /// nothing: the operator lists its users.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// proxy: one HTTP request for each call.
    pub http: Option<HttpProxy>,
    /// proxy: a tool, prompt or resource of another MCP server.
    pub mcp: Option<McpProxy>,
    /// proxy: a service that hosts calls over HTTP/JSON, including long ones with progress and questions.
    pub calls: Option<CallsProxy>,
    /// proxy: a skill of a remote A2A agent.
    pub a2a: Option<A2aProxy>,
    /// proxy, for a delegate: a model behind an OpenAI-compatible endpoint.
    pub openai: Option<OpenaiProxy>,
    /// primitive, for a delegate: id of a tool or task in the same folder, or `folder/id`, optionally followed by
    /// `@1` for its major version 1; otherwise the highest version that a server lists is used. Every server that
    /// needs the delegate lists it.
    pub primitive: Option<String>,
    /// plugin: package that has the code, `name` or `name@version`, with its folder `plugins/<name>`; the specs that name one
    /// package share its code and its processes. When absent, the primitive's id and version. mcp-stdio: installed package;
    /// the package fixes its command line.
    pub package: Option<String>,
    /// mcp-stdio: the server's own name of the primitive.
    pub tool: Option<String>,
    /// mcp-stdio: digest of the accepted description, schemas and annotations of the server, as `asp import` writes
    /// it, 64 lower-case hex digits. If the server lists something else, that is reported and not served.
    pub pin: Option<String>,
    /// proxy, plugin: authentication to the service behind it. When absent, a proxied call has none, and a plugin
    /// gets the platform's token if the operator permits exactly one audience for it.
    pub auth: Option<ServiceAuth>,
}

/// Exactly one of `token`, `exchange`, `credential` and `linked`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceAuth {
    /// The platform's own token, which identifies the caller and expires no later than the call. The operator decides
    /// which primitives get it for which audience.
    pub token: Option<MintedToken>,
    /// A token that the caller's issuer exchanges for the caller's own (RFC 8693).
    pub exchange: Option<ExchangedToken>,
    /// Name of an operator's credential, which is sent only to its own origin; a spec never contains the secret. For
    /// a plugin, the proxy of its sandbox adds it to plain requests to that origin, whose host `allowedDomains`
    /// lists.
    pub credential: Option<String>,
    /// proxy: name of the operator's provider at which the caller links an account; its token is sent to the origins of
    /// that provider (docs/linked-accounts.md). A caller without a link is sent to a page to make it.
    pub linked: Option<String>,
    /// Scopes that the token of the `linked` account must have.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// A token whose `aud` is one origin: for a proxied primitive that of the service's URL.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MintedToken {
    /// plugin: origin (`https://host[:port]`) of the one service that the token is for; `allowedDomains` must list
    /// its host.
    pub audience: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExchangedToken {
    /// Audience of the requested token: the issuer's name for the service. The operator decides to which origins such
    /// tokens may be sent.
    pub audience: String,
    /// Requested scopes, each of which the caller's own token must have; those of `security.auth` when empty.
    #[serde(default)]
    pub scopes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    Builtin,
    Proxy,
    Plugin,
    McpStdio,
    Primitive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Python,
    Node,
    Java,
}

words!(Language: Python => "python", Node => "node", Java => "java");

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resources {
    /// Cores: `1`, `0.5` or `500m`.
    pub cpu: Option<Cpu>,
    /// Bytes: `512M`, `1G`, `256Mi`, `1Gi`. As in Kubernetes, `M` is 10^6 and `Mi` is 2^20.
    pub memory: Option<String>,
    /// Maximum number of processes and threads.
    #[schemars(range(min = 1, max = 32768))]
    pub pids: Option<u32>,
    /// Maximum number of open files of one process.
    #[schemars(range(min = 16, max = 1048576))]
    pub files: Option<u32>,
    /// Size of the work directory in bytes, written like `memory`.
    pub disk: Option<String>,
    /// Bytes of output kept per second, written like `memory`; the rest is counted and dropped.
    pub logs: Option<String>,
}

/// Pooling of a plugin's processes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// `warm`: processes serve many calls. `ephemeral`: one call each; the default if riskClass is high.
    pub mode: Option<PoolMode>,
    /// Number of processes that are kept ready.
    #[schemars(range(max = 256))]
    pub min: Option<u32>,
    #[schemars(range(min = 1, max = 256))]
    pub max: Option<u32>,
    /// Number of concurrent calls of one process.
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: Option<u32>,
    /// Seconds without a call after which a process ends.
    #[serde(default, rename = "idleSeconds")]
    #[schemars(range(min = 1, max = 86400))]
    pub idle_seconds: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PoolMode {
    Warm,
    Ephemeral,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Cpu {
    Cores(f64),
    Quantity(String),
}

/// One HTTP request for each call. `url`, `query` and `headers` are RFC 6570 level 1 templates over the arguments; a
/// query parameter or header whose argument is absent is omitted. A list is written with commas; a query parameter
/// with the template `{name*}` is repeated for each element of a list, or has a parameter for each member of an
/// object. Headers are not percent-encoded.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpProxy {
    #[serde(default)]
    pub method: Method,
    pub url: String,
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// `args`: the arguments are the body. A JSON pointer such as `/body`: the value of that argument is the body;
    /// without that argument there is no body. A mapping: builds an object from JSON pointers into the arguments.
    pub body: Option<RequestBody>,
    /// Encoding of the body. `json` (when absent); `form`: application/x-www-form-urlencoded; `multipart`:
    /// multipart/form-data with text fields. The body of a form is an object whose members are the fields.
    #[serde(default, rename = "bodyFormat")]
    pub body_format: BodyFormat,
    /// Styles of a form's members; `form` for members without an entry. A member whose name has brackets needs an
    /// entry.
    #[serde(default, rename = "bodyStyles")]
    pub body_styles: BTreeMap<String, BodyStyle>,
    /// JSON pointer into the response; the whole response when absent.
    pub result: Option<String>,
    #[serde(default, rename = "timeoutMs")]
    #[schemars(range(min = 1, max = 600000))]
    pub timeout_ms: Option<u32>,
    /// Number of retries, only for read_only and idempotent primitives.
    #[serde(default)]
    #[schemars(range(max = 5))]
    pub retries: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Method {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

words!(Method: Get => "GET", Post => "POST", Put => "PUT", Patch => "PATCH", Delete => "DELETE");

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Body")]
pub(crate) enum RequestBody {
    Word(String),
    Pointers(BTreeMap<String, String>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BodyFormat {
    #[default]
    Json,
    Form,
    Multipart,
}

/// Styles of a form's field, in the words of OpenAPI. `form`: a list repeats the name, an object is JSON;
/// `deepObject`: `name[]` for each element of a list, `name[key]` for each member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum BodyStyle {
    Form,
    DeepObject,
}

words!(BodyStyle: Form => "form", DeepObject => "deepObject");

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpProxy {
    /// URL of the upstream's Streamable HTTP endpoint.
    pub url: String,
    /// The upstream's own name (for a resource, its URI or template); the primitive's id when absent.
    pub tool: Option<String>,
    /// Digest of the accepted description, schemas and annotations of the upstream, as `asp import` writes it, 64
    /// lower-case hex digits. If the upstream lists something else, that is reported and not served.
    pub pin: Option<String>,
    /// Pages (https) to which, or below which, the upstream may send a user; none when empty.
    #[serde(default)]
    pub pages: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallsProxy {
    /// The service's base URL, without query; `/tools`, `/resources` and `/prompts` are appended.
    pub url: String,
    /// The service's own name of the tool, prompt or resource; the primitive's id when absent.
    pub tool: Option<String>,
}

/// A message with the arguments starts a task at the agent, which is followed to its end. One text argument is sent as text,
/// other arguments as data.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct A2aProxy {
    /// URL of the agent's interface, as its card names it.
    pub url: String,
    /// The agent's own id of the skill, which messages name in their metadata; none when absent.
    pub skill: Option<String>,
    #[serde(default)]
    pub binding: AgentBinding,
    #[serde(default)]
    pub version: AgentVersion,
    /// Tenant that the card names for the interface.
    pub tenant: Option<String>,
    /// Name of the top-level text argument that is sent as the message's text if a call has no other argument.
    pub text_argument: Option<String>,
    /// Whether the agent streams the changes of its tasks; otherwise they are polled.
    #[serde(default = "yes")]
    pub streaming: bool,
    /// URL of the agent's card, in which changes of the skill are looked for.
    pub card: Option<String>,
    /// Digest of the accepted skill, as `asp import` writes it, 64 lower-case hex digits. If the card describes something else,
    /// that is reported and not served.
    pub pin: Option<String>,
    /// Thumbprints (RFC 7638) of the keys that may sign the card. If none of them signs it, that is reported.
    #[serde(default)]
    pub signers: Vec<String>,
    /// Pages (https) to which, or below which, the agent may send a user; none when empty.
    #[serde(default)]
    pub pages: Vec<String>,
}

fn yes() -> bool {
    true
}

/// Binding of A2A: `jsonrpc` (when absent), or `rest` (HTTP+JSON).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AgentBinding {
    #[default]
    Jsonrpc,
    Rest,
}

/// Version of A2A; `1.0` when absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum AgentVersion {
    #[default]
    #[serde(rename = "1.0")]
    V10,
    #[serde(rename = "0.3")]
    V03,
}

words!(AgentVersion: V10 => "1.0", V03 => "0.3");

/// One `POST {url}/chat/completions` for each delegation, with the settings of `primitiveSchema.sampling` and the
/// plugin's input as the user's message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct OpenaiProxy {
    /// Base URL, such as `https://llm.internal/v1`.
    pub url: String,
    pub model: String,
    /// Name of the endpoint's key in the operator's settings; a spec never contains the key itself.
    pub api_key_name: Option<String>,
    /// Temperature that overrides `sampling.temperature`.
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<f64>,
    /// Token limit that overrides `sampling.maxTokens`.
    #[schemars(range(min = 1, max = 1000000))]
    pub max_tokens: Option<u32>,
    /// Maximum duration of one delegation including retries, in milliseconds; when absent, as long as the plugin
    /// waits.
    #[schemars(range(min = 1, max = 600000))]
    pub timeout_ms: Option<u32>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Whether to send `output_schema` as `response_format`, for endpoints that support it.
    #[serde(default)]
    pub json_schema: bool,
}
