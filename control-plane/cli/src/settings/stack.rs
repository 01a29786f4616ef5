//! The programs of the development stack.

use std::path::PathBuf;

use super::source::Reader;
use crate::packaging;
use crate::packaging::languages::runtime_binary;
pub use crate::packaging::runtime::ENV_ALLOW_PRIVATE;

pub const ENV_ENVOY_BIN: &str = "ASP_ENVOY_BIN";
pub const ENV_NODE_BIN: &str = "ASP_NODE_BIN";
pub const ENV_EVERYTHING_JS: &str = "ASP_EVERYTHING_JS";
pub const ENV_EVERYTHING_PORT: &str = "ASP_EVERYTHING_PORT";
pub const ENV_RUNTIME_BIN: &str = "ASP_RUNTIME_BIN";

/// Programs that `--stack` and `asp dev` start.
#[derive(Clone, Debug)]
pub struct StackSection {
    /// `None`: clients reach the gateway directly.
    pub envoy: Option<PathBuf>,
    pub node: Option<PathBuf>,
    /// Script of the reference MCP server, which is not started without it.
    pub everything: Option<PathBuf>,
    pub everything_port: u16,
    /// Language runtime; plugins are off without it.
    pub runtime: Option<PathBuf>,
    /// Whether plugins may reach private services that their specs list, on any port.
    pub allow_private: bool,
}

pub(super) fn read(reader: &mut Reader<'_>, allow_private: bool) -> Option<StackSection> {
    let envoy = reader.optional(ENV_ENVOY_BIN);
    if envoy.is_none() {
        reader.fault(ENV_ENVOY_BIN, "is required with --stack: the path of the envoy binary");
    }
    let everything = reader.optional(ENV_EVERYTHING_JS).map(PathBuf::from);
    let node = reader.optional(ENV_NODE_BIN).map(PathBuf::from);
    if everything.is_some() && node.is_none() {
        reader.fault(ENV_NODE_BIN, format!("is required with {ENV_EVERYTHING_JS}"));
    }
    Some(StackSection {
        envoy: Some(PathBuf::from(envoy?)),
        node,
        everything,
        everything_port: reader.number(ENV_EVERYTHING_PORT, 0_u16, 0..=u16::MAX),
        runtime: runtime(reader),
        allow_private: self::allow_private(reader, allow_private),
    })
}

/// Whether the environment or the command line (`flag`) allows private services.
fn allow_private(reader: &mut Reader<'_>, flag: bool) -> bool {
    let asked = reader.optional(ENV_ALLOW_PRIVATE);
    packaging::runtime::allow_private(asked.as_deref()).unwrap_or_else(|fault| {
        reader.fault(ENV_ALLOW_PRIVATE, fault);
        false
    }) || flag
}

fn runtime(reader: &mut Reader<'_>) -> Option<PathBuf> {
    reader.optional(ENV_RUNTIME_BIN).map(PathBuf::from).or_else(runtime_binary)
}

/// Returns the programs of `asp dev`: a language runtime only.
pub(super) fn without_envoy(reader: &mut Reader<'_>, allow_private: bool) -> StackSection {
    StackSection {
        envoy: None,
        node: None,
        everything: None,
        everything_port: 0,
        runtime: runtime(reader),
        allow_private: self::allow_private(reader, allow_private),
    }
}
