//! The command line of `asp config`.

use std::path::PathBuf;

use clap::Args;

use super::ServeArgs;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp config                                      what `asp serve` would use here, and what it would refuse
  asp config --roles gateway --settings /etc/asp/gateway.env
  asp config --format json
  asp config --format markdown                    the reference, without values

A secret prints as ***, and so does a value that is refused, which may be one.
Exit code: 64 if `asp serve` would refuse the settings.")]
pub struct ConfigArgs {
    /// Form of the output
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "markdown"])]
    pub format: String,
    /// Prints JSON, as `--format json` does
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// File of NAME=VALUE lines that override the environment; repeat for more
    #[arg(long, value_name = "FILE")]
    pub settings: Vec<PathBuf>,
    #[command(flatten)]
    pub serve: ServeArgs,
}
