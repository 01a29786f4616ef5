//! Exposure of a primitive: the protocols that show it, and its names there.
//!
//! A protocol that is not mentioned exposes the primitive under its id wherever the server speaks that protocol and
//! the kind fits it; `enabled: false` hides it there.

use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Exposure {
    pub mcp: Mcp,
    pub a2a: A2a,
    pub rest: Rest,
}

/// Exposure over MCP, under the key for the primitive's kind: `tool` for tools and tasks.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Mcp {
    pub tool: Option<ExposureSettings>,
    pub resource: Option<ExposureSettings>,
    pub prompt: Option<ExposureSettings>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct A2a {
    pub skill: Option<Skill>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rest {
    pub operation: Option<ExposureSettings>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Exposed")]
pub(crate) struct ExposureSettings {
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Exposed name; the primitive's id when absent. `[A-Za-z0-9_.-]{1,128}`; for a resource 1 to 256 visible
    /// characters, shown in lists.
    pub name: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Skill {
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Skill id, visible ASCII, often a URI; the primitive's id when absent.
    pub id: Option<String>,
    /// Media types; the card's when empty.
    #[serde(default)]
    pub input_modes: Vec<String>,
    #[serde(default)]
    pub output_modes: Vec<String>,
    /// Name of the top-level text argument that takes a message's text, unless that is a JSON object of arguments.
    pub text_argument: Option<String>,
}

fn yes() -> bool {
    true
}
