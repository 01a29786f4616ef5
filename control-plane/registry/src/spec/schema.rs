//! `primitiveSchema`: what goes in and comes out, by kind.
//!
//! One flat mapping: the kind says which keys have a meaning; the rest are misplaced.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrimitiveSchema {
    /// tool, task, delegate: JSON Schema 2020-12 of the arguments, served as written. A plugin's may be left to the
    /// types of its code: `asp plugin build` writes them to `<id>.schema.json` beside the spec.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub input_schema: Option<Value>,
    /// tool, task, delegate: JSON Schema 2020-12 of the structured result; a plugin's likewise.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub output_schema: Option<Value>,
    /// task: JSON Schema 2020-12 of the list of artifacts it may emit beside its result.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub artifacts: Option<Value>,
    /// resource
    #[serde(default)]
    pub uri: Option<String>,
    /// resource_template: RFC 6570 level 1.
    #[serde(default, rename = "uriTemplate")]
    pub uri_template: Option<String>,
    /// resource, resource_template
    #[serde(default, rename = "mimeType")]
    pub mime_type: Option<String>,
    /// resource without a runtime: what it holds.
    #[serde(default)]
    pub contents: Option<Vec<Contents>>,
    /// prompt
    #[serde(default)]
    pub arguments: Option<Vec<PromptArgument>>,
    /// prompt without a runtime; `{{argument}}` in a text is replaced.
    #[serde(default)]
    pub messages: Option<Vec<Message>>,
    /// resource_template: the plugin that runs it also lists the resources behind it.
    #[serde(default)]
    pub listed: Option<Lister>,
    /// resource, resource_template: the plugin that runs it also watches what clients subscribe to, and says when it has
    /// changed.
    #[serde(default)]
    pub watched: Option<Watcher>,
    /// prompt, resource_template: what clients offer for an argument while somebody types it, by the argument's name.
    #[serde(default)]
    pub completions: Option<BTreeMap<String, Offered>>,
    /// elicitation: what the user is asked; the summary when absent.
    #[serde(default)]
    pub message: Option<String>,
    /// elicitation: the answers, short form.
    #[serde(default)]
    pub fields: Option<Vec<Field>>,
    /// elicitation: the answers as MCP's restricted JSON Schema.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub requested_schema: Option<Value>,
    /// elicitation: instead of a form, the page that the user is sent to (MCP elicitation mode `url`), https; code may
    /// name a page below it.
    #[serde(default)]
    pub url: Option<String>,
    /// delegate: the constant part of a sampling request.
    #[serde(default)]
    pub sampling: Option<Sampling>,
    /// delegate: asks for the directories and files that the client lets a server work on (MCP roots).
    #[serde(default)]
    pub roots: Option<Roots>,
    /// delegate: who answers where both could; `client` when absent.
    #[serde(default)]
    pub prefer: Option<Prefer>,
}

/// What is offered for one argument: these values, or what the primitive's plugin or upstream MCP server says at the time.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Offered {
    Values(Vec<String>),
    By(Completer),
}

/// Who knows the resources behind a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lister {
    Plugin,
}

/// Who knows when a resource has changed, beside the calls that change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Watcher {
    Plugin,
}

/// Who knows what no spec says: the values of an argument, the resources behind a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Completer {
    Plugin,
    Upstream,
}

/// Who answers a delegation where the caller's client and the platform both could. `client_only`: nobody else ever, and
/// a call by a client that cannot is refused before anything runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Prefer {
    Client,
    Platform,
    ClientOnly,
}

/// There is nothing to say about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Roots {}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contents {
    /// The resource's URI when absent.
    #[serde(default)]
    pub uri: Option<String>,
    /// The resource's media type when absent.
    #[serde(default, rename = "mimeType")]
    pub mime_type: Option<String>,
    #[serde(default)]
    pub text: Option<String>,
    /// Base64 (RFC 4648 section 4).
    #[serde(default)]
    pub blob: Option<String>,
    /// What clients find in its `_meta`, as it stands here; at most 16 KiB.
    #[serde(default, rename = "_meta")]
    pub meta: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptArgument {
    pub name: String,
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub required: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    pub role: Role,
    pub content: Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    User,
    Assistant,
}

impl Role {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// A content block that every MCP revision knows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Block {
    #[serde(rename = "type")]
    pub kind: ContentType,
    /// text
    #[serde(default)]
    pub text: Option<String>,
    /// image, audio: Base64
    #[serde(default)]
    pub data: Option<String>,
    /// image, audio
    #[serde(default, rename = "mimeType")]
    pub mime_type: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ContentType {
    Text,
    Image,
    Audio,
}

/// One answer of an elicitation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Field {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: FieldType,
    #[serde(default)]
    pub label: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    /// An answer is needed unless this is false.
    #[serde(default = "yes")]
    pub required: bool,
    /// The allowed texts.
    #[serde(default, rename = "enum")]
    pub choices: Vec<String>,
    #[serde(default)]
    pub default: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FieldType {
    String,
    Number,
    Integer,
    Boolean,
}

impl FieldType {
    pub(crate) fn word(self) -> &'static str {
        match self {
            FieldType::String => "string",
            FieldType::Number => "number",
            FieldType::Integer => "integer",
            FieldType::Boolean => "boolean",
        }
    }
}

/// The part of `sampling/createMessage` the author fixes; the plugin supplies the rest.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Sampling {
    #[serde(default)]
    pub system_prompt: Option<String>,
    #[schemars(range(min = 1, max = 1000000))]
    pub max_tokens: u32,
    #[serde(default)]
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<f64>,
    #[serde(default)]
    pub stop_sequences: Vec<String>,
    /// Model names, most wanted first.
    #[serde(default)]
    pub model_hints: Vec<String>,
    /// Code may hold a conversation in which the model uses tools that code offers; only a client's model answers it.
    #[serde(default)]
    pub tools: bool,
    /// What of its servers' context the client may show its model; nothing when absent.
    #[serde(default)]
    pub include_context: Option<IncludeContext>,
}

/// MCP `CreateMessageRequest.includeContext`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum IncludeContext {
    ThisServer,
    AllServers,
}

impl IncludeContext {
    pub(crate) fn word(self) -> &'static str {
        match self {
            IncludeContext::ThisServer => "thisServer",
            IncludeContext::AllServers => "allServers",
        }
    }
}

fn yes() -> bool {
    true
}
