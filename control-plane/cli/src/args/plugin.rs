//! The command line of `asp plugin`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use serde_json::Value;

use crate::packaging::answers;
use crate::packaging::scaffold::Language;

#[derive(Clone, Debug, Subcommand)]
pub enum PluginCommand {
    /// Makes a server with one tool that works, to change step by step
    New(PluginNewArgs),
    /// Builds the plugins, writes the schemas their code says beside the specs, and makes a package file of each:
    /// wheel, npm tarball, jar or MCP bundle
    Build(PluginBuildArgs),
    /// Sends package files to the control plane's artifact store (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Push(PluginPushArgs),
    /// Calls the plugins with the examples of their specs, each in its sandbox
    Test(PluginTestArgs),
    /// Calls one plugin once and shows what it says
    Run(PluginRunArgs),
    /// Installs plugins where a language runtime finds them: from the code beside their specs, or from the artifact store
    Install(PluginInstallArgs),
}

#[derive(Clone, Debug, Args)]
pub struct PluginNewArgs {
    /// Of the tool, e.g. greet_all; its server is named after it
    #[arg(value_name = "ID")]
    pub id: String,
    #[arg(long)]
    pub language: Language,
    /// The directory of primitives it goes into
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct PluginBuildArgs {
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Where the package files go, each with its SHA-256 beside it
    #[arg(long, value_name = "DIR", default_value = "dist")]
    pub out: PathBuf,
    /// Writes no file, and fails where a file of schemas is not what the code says
    #[arg(long, conflicts_with_all = ["out", "json"])]
    pub check: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PluginPushArgs {
    /// Package files, or directories of them
    #[arg(value_name = "FILE", default_value = "dist")]
    pub files: Vec<PathBuf>,
    /// The control plane's admin API, instead of ASP_ADMIN_URL
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PluginTestArgs {
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Only this plugin
    #[arg(long, value_name = "ID")]
    pub only: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct PluginRunArgs {
    #[arg(value_name = "ID")]
    pub id: String,
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// A JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    /// Answers a question: of an elicitation its fields, "decline" or "cancel", of a delegate what it says; once an id
    #[arg(long = "answer", value_name = "ID=JSON", value_parser = answers::parse)]
    pub answers: Vec<(String, Value)>,
    /// Seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

#[derive(Clone, Debug, Args)]
pub struct PluginInstallArgs {
    #[arg(value_name = "DIR", default_value = "primitives")]
    pub directory: PathBuf,
    /// Where the runtime looks
    #[arg(long, value_name = "DIR", default_value = ".asp/plugins")]
    pub plugins: PathBuf,
    /// Installs what the servers registered at this admin API pin, from its artifact store (ASP_ADMIN_TOKEN)
    #[arg(long, value_name = "URL", conflicts_with = "directory")]
    pub from: Option<String>,
    /// With --from: looks again after so many seconds, until it is stopped
    #[arg(long, value_name = "SECONDS", requires = "from", value_parser = clap::value_parser!(u64).range(1..))]
    pub every: Option<u64>,
    /// Development: put other code in place of an installed version
    #[arg(long)]
    pub replace: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}
