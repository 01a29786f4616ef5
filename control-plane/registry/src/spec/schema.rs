//! `primitiveSchema`: inputs and outputs, by kind.
//!
//! One flat mapping: the kind determines which keys have a meaning; the rest are misplaced.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PrimitiveSchema {
    /// tool, task, delegate: JSON Schema 2020-12 of the arguments, served as written. For a plugin it may come from
    /// the types of its code: `asp plugin build` writes it to `<id>.schema.json` next to the spec.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub input_schema: Option<Value>,
    /// tool, task, delegate: JSON Schema 2020-12 of the structured result; for a plugin it may come from its code
    /// too.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub output_schema: Option<Value>,
    /// task: JSON Schema 2020-12 of the list of artifacts that it may emit in addition to its result.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub artifacts: Option<Value>,
    /// resource
    pub uri: Option<String>,
    /// resource_template: RFC 6570 level 1.
    #[serde(rename = "uriTemplate")]
    pub uri_template: Option<String>,
    /// resource, resource_template
    #[serde(rename = "mimeType")]
    pub mime_type: Option<String>,
    /// resource without a runtime: its contents.
    pub contents: Option<Vec<Contents>>,
    /// prompt
    pub arguments: Option<Vec<PromptArgument>>,
    /// prompt without a runtime; `{{argument}}` in a text is replaced.
    pub messages: Option<Vec<PromptMessage>>,
    /// resource_template: the plugin that runs it also lists the resources behind it.
    pub listed: Option<Lister>,
    /// resource, resource_template: the plugin that runs it also watches resources that clients subscribe to, and
    /// reports their changes.
    pub watched: Option<Watcher>,
    /// prompt, resource_template: completions that clients offer while somebody types an argument, by its name.
    pub completions: Option<BTreeMap<String, CompletionSource>>,
    /// elicitation: question for the user; the summary when absent.
    pub message: Option<String>,
    /// elicitation: the answers, short form.
    pub fields: Option<Vec<FormField>>,
    /// elicitation: the answers as MCP's restricted JSON Schema.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub requested_schema: Option<Value>,
    /// elicitation: https page that the user is sent to instead of a form (MCP elicitation mode `url`); code may
    /// choose a page below it.
    pub url: Option<String>,
    /// delegate: the constant part of a sampling request.
    pub sampling: Option<Sampling>,
    /// delegate: asks for the directories and files that the client lets a server work on (MCP roots).
    pub roots: Option<Roots>,
    /// delegate: who answers if both client and platform could; `client` when absent.
    pub prefer: Option<Prefer>,
}

/// Completions of one argument: these values, or those that the primitive's plugin or upstream MCP server returns at
/// the time.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Offered")]
pub(crate) enum CompletionSource {
    Values(Vec<String>),
    By(Completer),
}

/// Source of the resources behind a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lister {
    Plugin,
}

/// Source of changes to a resource, in addition to the calls that change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Watcher {
    Plugin,
}

/// Source of completions that are not in the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Completer {
    Plugin,
    Upstream,
}

/// Choice of who answers a delegation if both the caller's client and the platform could. `client_only`: never
/// anybody else, and calls by clients that cannot answer are rejected before anything runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Prefer {
    Client,
    Platform,
    ClientOnly,
}

/// An empty mapping: roots have no settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Roots {}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contents {
    /// URI of the contents; the resource's when absent.
    pub uri: Option<String>,
    /// Media type of the contents; the resource's when absent.
    #[serde(default, rename = "mimeType")]
    pub mime_type: Option<String>,
    pub text: Option<String>,
    /// Base64 (RFC 4648 section 4).
    pub blob: Option<String>,
    /// Members of their `_meta`, unchanged; at most 16 KiB.
    #[serde(default, rename = "_meta")]
    pub meta: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromptArgument {
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    #[serde(default)]
    pub required: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Message")]
pub(crate) struct PromptMessage {
    pub role: Role,
    pub content: Block,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    User,
    Assistant,
}

words!(Role: User => "user", Assistant => "assistant");

/// A content block that every MCP revision knows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Block {
    #[serde(rename = "type")]
    pub kind: ContentType,
    /// text
    pub text: Option<String>,
    /// image, audio: Base64
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
#[schemars(rename = "Field")]
pub(crate) struct FormField {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: FieldType,
    pub label: Option<String>,
    pub description: Option<String>,
    /// Whether an answer is needed; true when absent.
    #[serde(default = "yes")]
    pub required: bool,
    /// Allowed texts.
    #[serde(default, rename = "enum")]
    pub choices: Vec<String>,
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

words!(FieldType: String => "string", Number => "number", Integer => "integer", Boolean => "boolean");

/// The part of `sampling/createMessage` that the author fixes; the plugin supplies the rest.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Sampling {
    pub system_prompt: Option<String>,
    #[schemars(range(min = 1, max = 1000000))]
    pub max_tokens: u32,
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<f64>,
    #[serde(default)]
    pub stop_sequences: Vec<String>,
    /// Model names, in order of preference.
    #[serde(default)]
    pub model_hints: Vec<String>,
    /// Whether code may hold a conversation in which the model uses tools that the code offers. The platform's models answer
    /// it only with `prefer: platform` or `runtime.openai`.
    #[serde(default)]
    pub tools: bool,
    /// Context of its servers that the client may show its model; none when absent.
    pub include_context: Option<IncludeContext>,
}

/// MCP `CreateMessageRequest.includeContext`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum IncludeContext {
    ThisServer,
    AllServers,
}

words!(IncludeContext: ThisServer => "thisServer", AllServers => "allServers");

fn yes() -> bool {
    true
}
