//! `server.yaml`: a server, its protocols and callers, and the primitives it lists.
//!
//! Owns the keys and their defaults. Refuses unknown keys. Values are checked in `rules/server.rs`, references in `link.rs`.

use asp_proto::snapshot;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::spec::{Scheme, Spec, bare_id, versioned};

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ServerFile {
    #[expect(dead_code, reason = "the structural check has read it; there is one version")]
    pub api_version: ApiVersion,
    /// Name of the server and of its folder: `[a-z0-9-]{1,63}`. Clients reach it at `/<name>/mcp`.
    pub name: String,
    pub title: Option<String>,
    pub description: Option<String>,
    /// Semantic version; 0.0.0 when absent.
    pub version: Option<String>,
    /// Instructions that a model should read before it uses the server (MCP `instructions`).
    pub instructions: Option<String>,
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub protocols: Vec<Protocol>,
    #[serde(default)]
    pub sessions: Sessions,
    #[serde(default)]
    pub default_exposure: DefaultExposure,
    /// Organisations that the server is offered to; each must enable it for itself. Not allowed with
    /// `defaultExposure: allow`, which offers it to all.
    #[serde(default)]
    #[schemars(length(max = 1000), extend("uniqueItems" = true))]
    pub offered_to: Vec<String>,
    pub auth: ServerAuth,
    /// Whether anybody may read its public documents: its token issuers, the required scopes, its agent card. The
    /// server's name is public in any case.
    #[serde(default = "yes")]
    pub discovery: bool,
    /// Web origins that may call; only the public URL's when empty.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Values of the Host header that the server answers; any when empty.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Gateway pool for its requests (`ASP_POOL`): `[a-z0-9-]{1,63}`; the default pool when absent.
    pub pool: Option<String>,
    /// Maximum size of a request body in bytes; 1 MiB when absent, at most the 4 MiB that Envoy buffers.
    #[schemars(range(min = 1024, max = 4194304))]
    pub max_body_bytes: Option<u32>,
    #[serde(default)]
    pub card: Card,
    #[serde(default)]
    pub a2a: MessageReaders,
    /// Primitives in list order.
    #[serde(default)]
    pub primitives: Vec<PrimitiveEntry>,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub(crate) enum ApiVersion {
    #[serde(rename = "asp/v1")]
    V1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    Mcp,
    A2a,
    Rest,
}

impl Protocol {
    /// Returns the protocol as in snapshots.
    pub(crate) fn wire(self) -> snapshot::Protocol {
        match self {
            Protocol::Mcp => snapshot::Protocol::Mcp,
            Protocol::A2a => snapshot::Protocol::A2a,
            Protocol::Rest => snapshot::Protocol::Rest,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sessions {
    #[default]
    Stateful,
    Stateless,
    Both,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DefaultExposure {
    /// Offered only to the organisations in `offeredTo`.
    #[default]
    Deny,
    /// Offered to every organisation, and enabled.
    Allow,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerAuth {
    /// Accepted schemes. `none` must be the only one, and is served in development mode only.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub schemes: Vec<Scheme>,
    /// Names of the issuers whose tokens are accepted.
    #[serde(default)]
    pub issuers: Vec<String>,
    /// Scopes that every caller needs.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Accepted `aud` values; when empty, the public URL, the server's URL and its MCP endpoint.
    #[serde(default)]
    pub audiences: Vec<String>,
}

/// Contents of the A2A agent card apart from the skills.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Card {
    /// Name of the agent; the server's title when absent.
    pub name: Option<String>,
    /// Description of the agent; the server's when absent.
    pub description: Option<String>,
    /// Has no effect: the agent's URL is `<public URL>/<server>/a2a`.
    pub url: Option<String>,
    pub provider: Option<Provider>,
    pub documentation_url: Option<String>,
    pub icon_url: Option<String>,
    /// Media types; `application/json` and `text/plain` when empty.
    pub default_input_modes: Vec<String>,
    pub default_output_modes: Vec<String>,
    pub capabilities: CardCapabilities,
    /// Extensions of A2A that the agent has besides the platform's.
    pub extensions: Vec<CardExtension>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Provider {
    pub organization: String,
    pub url: String,
}

/// Has no effect: the card states the abilities of the platform.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CardCapabilities {
    pub streaming: Option<bool>,
    pub push_notifications: Option<bool>,
}

/// Extension of A2A, as the card declares it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CardExtension {
    /// URI of this version of the extension.
    pub uri: String,
    pub description: Option<String>,
    /// Whether messages of clients that do not activate it are refused.
    #[serde(default)]
    pub required: bool,
}

/// Tools of the server that read A2A messages. Both are listed in `primitives`, only read, and are not skills.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MessageReaders {
    /// `folder/id` of the tool that chooses the skill of a message that names none, or `folder/id@1`.
    pub router: Option<String>,
    /// `folder/id` of the tool that finds the arguments of a skill in a text, or `folder/id@1`.
    pub filler: Option<String>,
}

impl MessageReaders {
    /// Returns the references with their keys.
    pub(crate) fn references(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("router", &self.router), ("filler", &self.filler)];
        all.into_iter().filter_map(|(key, reference)| Some((key, reference.as_deref()?)))
    }

    /// Whether the primitive is one of them.
    pub(crate) fn include(&self, spec: &Spec) -> bool {
        self.references().any(|(_, reference)| is_reference_to(reference, spec))
    }
}

/// Whether `folder/id` or `folder/id@1` names this version of a primitive.
pub(crate) fn is_reference_to(reference: &str, spec: &Spec) -> bool {
    let (reference, major) = versioned(reference);
    bare_id(reference) == spec.id && major.is_none_or(|major| major == spec.major().to_string())
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Listed")]
pub(crate) struct PrimitiveEntry {
    /// `folder/id` of a primitive; with several major versions, `folder/id@1` for major version 1.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Another exposed name on this server; not for resources, whose name is their URI.
    #[serde(default, rename = "as")]
    pub alias: Option<String>,
    /// Gateway pool for its requests, for example because it is risky or heavy; the server's when absent.
    pub pool: Option<String>,
}
