//! How a primitive runs.
//!
//! One flat mapping: `mode` says which of the other keys have a meaning; the rest are misplaced.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runtime {
    pub mode: Mode,
    /// builtin: a registered name. plugin: a file or module inside the package.
    #[serde(default)]
    pub entrypoint: Option<String>,
    /// plugin
    #[serde(default)]
    pub language: Option<Language>,
    /// plugin, mcp-stdio
    #[serde(default)]
    pub resources: Option<Resources>,
    /// plugin, mcp-stdio: how many processes there are and what one serves.
    #[serde(default)]
    pub pool: Option<Pool>,
    /// plugin, mcp-stdio: the weakest sandbox its workers may run in, 3 by default: namespaces, Landlock, seccomp
    /// and cgroups; 2: without namespaces; 1: its own user and resource limits only.
    #[serde(default, rename = "minIsolation")]
    #[schemars(range(min = 1, max = 3))]
    pub min_isolation: Option<u32>,
    /// plugin, mcp-stdio: SHA-256 of the package file that `asp plugin build` makes, 64 lower-case hex digits.
    #[serde(default, rename = "artifactSha256")]
    pub artifact_sha256: Option<String>,
    /// proxy: one HTTP request a call.
    #[serde(default)]
    pub http: Option<HttpProxy>,
    /// proxy: a tool, prompt or resource of another MCP server.
    #[serde(default)]
    pub mcp: Option<McpProxy>,
    /// proxy: a service that hosts calls over HTTP/JSON: long ones, with progress and questions.
    #[serde(default)]
    pub calls: Option<CallsProxy>,
    /// proxy, for a delegate: a model behind an OpenAI-compatible endpoint.
    #[serde(default)]
    pub openai: Option<OpenaiProxy>,
    /// primitive, for a delegate: the id of a tool or task in the same folder, or `folder/id`; `@1` after it for its
    /// major version 1, else the highest that a server lists. Every server that needs the delegate lists it.
    #[serde(default)]
    pub primitive: Option<String>,
    /// mcp-stdio: the installed package; its command line is pinned there.
    #[serde(default)]
    pub package: Option<String>,
    /// mcp-stdio: the server's own name of the primitive.
    #[serde(default)]
    pub tool: Option<String>,
    /// mcp-stdio: what was accepted of the server's own description, schemas and annotations, as `asp import` writes it,
    /// 64 lower-case hex digits: while the server lists something else, that is reported and not served.
    #[serde(default)]
    pub pin: Option<String>,
    /// proxy, plugin: by what a call proves itself to the service behind it; a proxied one by nothing where this is
    /// left out, a plugin by the platform's token if the operator opens exactly one audience to it.
    #[serde(default)]
    pub auth: Option<ServiceAuth>,
}

/// One of the three.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceAuth {
    /// The platform's own token, which says who calls and lives no longer than the call. The operator says which primitives
    /// get it for which audience.
    #[serde(default)]
    pub token: Option<MintedToken>,
    /// A token that the caller's issuer gives for the caller's own (RFC 8693).
    #[serde(default)]
    pub exchange: Option<ExchangedToken>,
    /// The name of a credential of the operator's, which goes to its own origin only; the secret never stands in a
    /// spec. Of a plugin its sandbox's proxy adds it to plain requests for that origin, whose host `allowedDomains` lists.
    #[serde(default)]
    pub credential: Option<String>,
}

/// Its `aud` is one origin: of a proxied primitive that of the service's URL.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MintedToken {
    /// plugin: the origin (`https://host[:port]`) of the one service that the token is for, whose host `allowedDomains` lists.
    #[serde(default)]
    pub audience: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExchangedToken {
    /// For whom the issuer is asked to give it, as the issuer names the service. The operator says to which origins such
    /// tokens may be sent.
    pub audience: String,
    /// The scopes it is asked for, each of which the caller's own token must have; those of `security.auth` where nothing
    /// is said.
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

impl Language {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Node => "node",
            Language::Java => "java",
        }
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resources {
    /// Cores: `1`, `0.5` or `500m`.
    #[serde(default)]
    pub cpu: Option<Cpu>,
    /// Bytes: `512M`, `1G`, `256Mi`, `1Gi`. As in Kubernetes, `M` is 10^6 and `Mi` is 2^20.
    #[serde(default)]
    pub memory: Option<String>,
    /// Processes and threads.
    #[serde(default)]
    #[schemars(range(min = 1, max = 32768))]
    pub pids: Option<u32>,
    /// Open files of one process.
    #[serde(default)]
    #[schemars(range(min = 16, max = 1048576))]
    pub files: Option<u32>,
    /// Bytes of the work directory, written as `memory` is.
    #[serde(default)]
    pub disk: Option<String>,
    /// Bytes of output kept per second, written as `memory` is; the rest is counted and dropped.
    #[serde(default)]
    pub logs: Option<String>,
}

/// How a plugin's processes are pooled.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// `warm`: processes serve many calls. `ephemeral`: one call each; the default where riskClass is high.
    #[serde(default)]
    pub mode: Option<PoolMode>,
    /// Processes that are kept ready.
    #[serde(default)]
    #[schemars(range(max = 256))]
    pub min: Option<u32>,
    #[serde(default)]
    #[schemars(range(min = 1, max = 256))]
    pub max: Option<u32>,
    /// Calls that one process serves at a time.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: Option<u32>,
    /// A process that served nothing for so long ends.
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

/// One HTTP request per call. `url`, `query` and `headers` are RFC 6570 level 1 templates over the
/// arguments; a query parameter or header whose argument is absent is left out. A list is written with commas; a query
/// parameter of the template `{name*}` is repeated for each element, and has a part for each member of an object. In a
/// header nothing is percent-encoded.
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
    /// `args`: the arguments are the body; a JSON pointer such as `/body`: the value of that argument is the body, and
    /// there is none where it is absent; a mapping builds an object of JSON pointers into the arguments.
    #[serde(default)]
    pub body: Option<Body>,
    /// Encoding of the body: `json` when absent; `form`: application/x-www-form-urlencoded; `multipart`:
    /// multipart/form-data with text fields. The body of a form is an object, each member of which is a field.
    #[serde(default, rename = "bodyFormat")]
    pub body_format: BodyFormat,
    /// Styles of a form's members; one that is not here has the style `form`. A member whose name has brackets is
    /// accepted only if it is here.
    #[serde(default, rename = "bodyStyles")]
    pub body_styles: BTreeMap<String, BodyStyle>,
    /// JSON pointer into the response, all of it when absent.
    #[serde(default)]
    pub result: Option<String>,
    #[serde(default, rename = "timeoutMs")]
    #[schemars(range(min = 1, max = 600000))]
    pub timeout_ms: Option<u32>,
    /// Only for read_only and idempotent primitives.
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

impl Method {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Body {
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

/// Styles of a form's field, in the words of OpenAPI. `form`: a list repeats the name, an object is JSON; `deepObject`:
/// `name[]` for each element of a list, `name[key]` for each member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum BodyStyle {
    Form,
    DeepObject,
}

impl BodyStyle {
    pub(crate) fn word(self) -> &'static str {
        match self {
            BodyStyle::Form => "form",
            BodyStyle::DeepObject => "deepObject",
        }
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpProxy {
    /// The upstream's Streamable HTTP endpoint.
    pub url: String,
    /// The upstream's own name (for a resource: its URI or template); the primitive's id when absent.
    #[serde(default)]
    pub tool: Option<String>,
    /// What was accepted of the upstream's own description, schemas and annotations, as `asp import` writes it, 64
    /// lower-case hex digits: while the upstream lists something else, that is reported and not served.
    #[serde(default)]
    pub pin: Option<String>,
    /// The pages below which the upstream may send a user, https; without any it sends nobody anywhere.
    #[serde(default)]
    pub pages: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallsProxy {
    /// The service's base URL, without query; `/tools`, `/resources` and `/prompts` follow it.
    pub url: String,
    /// The service's own name of the tool, prompt or resource; the primitive's id when absent.
    #[serde(default)]
    pub tool: Option<String>,
}

/// One `POST {url}/chat/completions` per delegation: what `primitiveSchema.sampling` says and the plugin's input as
/// the user's message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct OpenaiProxy {
    /// The base, e.g. `https://llm.internal/v1`.
    pub url: String,
    pub model: String,
    /// The name under which the operator keeps the endpoint's key; the key itself never stands in a spec.
    #[serde(default)]
    pub api_key_name: Option<String>,
    /// Instead of `sampling.temperature`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<f64>,
    /// Instead of `sampling.maxTokens`.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000000))]
    pub max_tokens: Option<u32>,
    /// Of one delegation with its repetitions; as long as the plugin waits when absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 600000))]
    pub timeout_ms: Option<u32>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Sends `output_schema` as `response_format`, for endpoints that take it.
    #[serde(default)]
    pub json_schema: bool,
}
