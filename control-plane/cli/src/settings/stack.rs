//! The programs of the development stack.

use std::path::PathBuf;

use asp_packaging::languages::runtime_binary;
use asp_packaging::runtime::ENV_ALLOW_PRIVATE;
use clap::{ArgAction, Args};

use super::source::Checks;
use super::values::{choice, number};

/// Programs that `--stack` and `asp dev` start
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Development stack")]
pub struct StackSection {
    /// Envoy binary (required with `--stack`); without it, as in `asp dev`, clients reach the gateway directly
    #[arg(long, env = "ASP_ENVOY_BIN")]
    pub envoy: Option<PathBuf>,
    /// Node binary, for the sample MCP server
    #[arg(long, env = "ASP_NODE_BIN")]
    pub node: Option<PathBuf>,
    /// Script of the sample MCP server, which is not started without it
    #[arg(long, env = "ASP_EVERYTHING_JS")]
    pub everything: Option<PathBuf>,
    /// Port of the sample MCP server; 0 takes a free one
    #[arg(long, env = "ASP_EVERYTHING_PORT", default_value_t = 0, value_parser = number(0..=u16::MAX))]
    pub everything_port: u16,
    /// Language runtime binary; plugins are off without one [default: `asp-runtime` next to `asp`]
    #[arg(long, env = "ASP_RUNTIME_BIN")]
    pub runtime: Option<PathBuf>,
    /// Whether plugins may reach private services that their specs list, as with `--allow-private`: `true` or `false`
    #[arg(long, env = ENV_ALLOW_PRIVATE, action = ArgAction::Set, default_value = "false",
        value_parser = choice(&[("true", true), ("false", false)]))]
    pub allow_private: bool,
}

/// Reads the programs of `--stack`. `allow_private`: the flag on the command line.
pub(super) fn read(checks: &mut Checks<'_>, allow_private: bool) -> Option<StackSection> {
    let section = programs(checks, allow_private)?;
    if section.envoy.is_none() {
        checks.fault("ASP_ENVOY_BIN", "is required with --stack: the path of the envoy binary");
    }
    if section.everything.is_some() && section.node.is_none() {
        checks.fault("ASP_NODE_BIN", "is required with ASP_EVERYTHING_JS");
    }
    Some(section)
}

/// Reads the programs that are given; `asp dev` gives a language runtime only.
pub(super) fn programs(checks: &mut Checks<'_>, allow_private: bool) -> Option<StackSection> {
    let mut section: StackSection = checks.read()?;
    section.runtime = section.runtime.or_else(runtime_binary);
    section.allow_private |= allow_private;
    Some(section)
}
