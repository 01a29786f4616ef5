//! `server.yaml`: a server, its protocols and callers, and the primitives it lists.
//!
//! Owns the keys and their defaults. Refuses unknown keys. What they may hold beyond their types is
//! judged in `rules/server.rs`.

use asp_proto::snapshot;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::spec::Scheme;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ServerFile {
    #[expect(dead_code, reason = "the structural check has read it; there is one version")]
    pub api_version: ApiVersion,
    /// The folder's name: `[a-z0-9-]{1,63}`. Clients reach it at `/<name>/mcp`.
    pub name: String,
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    /// Semantic version; 0.0.0 when absent.
    #[serde(default)]
    pub version: Option<String>,
    /// What a model should know before it uses the server (MCP `instructions`).
    #[serde(default)]
    pub instructions: Option<String>,
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub protocols: Vec<Protocol>,
    #[serde(default)]
    pub sessions: Sessions,
    #[serde(default)]
    pub default_exposure: DefaultExposure,
    /// Organisations that the server is offered to; each switches it on for itself. Not beside `defaultExposure: allow`,
    /// which offers it to all.
    #[serde(default)]
    #[schemars(length(max = 1000), extend("uniqueItems" = true))]
    pub offered_to: Vec<String>,
    pub auth: ServerAuth,
    /// Whether anybody may read its public documents: who issues its tokens, which scopes it wants, its agent card. Its name
    /// is public whatever stands here.
    #[serde(default = "yes")]
    pub discovery: bool,
    /// Web origins that may call; empty: the public URL's only.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Values of Host the server answers on; empty: any.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The gateway pool that its requests go to (`ASP_POOL`): `[a-z0-9-]{1,63}`; absent: the default one.
    #[serde(default)]
    pub pool: Option<String>,
    /// Largest request body in bytes; 1 MiB when absent, at most the 4 MiB that Envoy buffers.
    #[serde(default)]
    #[schemars(range(min = 1024, max = 4194304))]
    pub max_body_bytes: Option<u32>,
    #[serde(default)]
    pub card: Card,
    /// In list order.
    #[serde(default)]
    pub primitives: Vec<Listed>,
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

/// Whether the gateway has a face for a protocol. What is not served is compiled for its author to see, and
/// nothing of it reaches a snapshot.
pub fn is_served(protocol: snapshot::Protocol) -> bool {
    matches!(protocol, snapshot::Protocol::Mcp | snapshot::Protocol::Rest)
}

impl Protocol {
    pub(crate) fn is_served(self) -> bool {
        is_served(self.wire())
    }

    /// The snapshot's word for it.
    pub(crate) fn wire(self) -> snapshot::Protocol {
        match self {
            Protocol::Mcp => snapshot::Protocol::Mcp,
            Protocol::A2a => snapshot::Protocol::A2a,
            Protocol::Rest => snapshot::Protocol::Rest,
        }
    }

    /// The word of `server.yaml`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Protocol::Mcp => "mcp",
            Protocol::A2a => "a2a",
            Protocol::Rest => "rest",
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
    /// Offered to nobody but the organisations that are named.
    #[default]
    Deny,
    /// Offered to every organisation, and on.
    Allow,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerAuth {
    /// `none` stands alone and is served in development mode only.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub schemes: Vec<Scheme>,
    /// Names of the issuers whose tokens are accepted.
    #[serde(default)]
    pub issuers: Vec<String>,
    /// Scopes every caller needs.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Accepted `aud` values; empty: the public URL, the server's URL and its MCP endpoint.
    #[serde(default)]
    pub audiences: Vec<String>,
}

/// What the A2A agent card says beyond the skills. In `url`, `${public_url}` stands for the platform's
/// public URL.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Card {
    /// The title when absent.
    #[serde(default)]
    pub name: Option<String>,
    /// The server's description when absent.
    #[serde(default)]
    pub description: Option<String>,
    /// `${public_url}/<server>/a2a` when absent.
    #[serde(default)]
    pub url: Option<String>,
    #[serde(default)]
    pub provider: Option<Provider>,
    #[serde(default)]
    pub documentation_url: Option<String>,
    #[serde(default)]
    pub icon_url: Option<String>,
    /// Media types; `application/json` and `text/plain` when empty.
    #[serde(default)]
    pub default_input_modes: Vec<String>,
    #[serde(default)]
    pub default_output_modes: Vec<String>,
    #[serde(default)]
    pub capabilities: CardCapabilities,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Provider {
    pub organization: String,
    pub url: String,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CardCapabilities {
    #[serde(default)]
    pub streaming: Option<bool>,
    #[serde(default)]
    pub push_notifications: Option<bool>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    /// `folder/id` of a primitive; `folder/id@1` for its major version 1, where there are several.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Another exposed name in this server; not for resources, whose name is their URI.
    #[serde(default, rename = "as")]
    pub alias: Option<String>,
    /// The gateway pool that its requests go to, as for what is risky or heavy; absent: the server's.
    #[serde(default)]
    pub pool: Option<String>,
}
