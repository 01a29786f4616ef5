//! The command line of `asp plugin`.

use std::path::PathBuf;

use asp_packaging::answers;
use asp_packaging::scaffold::{ScaffoldLanguage, ScaffoldType};
use clap::{Args, Subcommand};

use serde_json::Value;

#[derive(Clone, Debug, Subcommand)]
pub enum PluginCommand {
    /// Creates a server with one working tool as a starting point, or adds a primitive to a server
    New(PluginNewArgs),
    /// Builds the plugins, writes the schemas derived from their code next to the specs, and packages each one as a wheel, npm
    /// tarball, jar or MCP bundle
    Build(PluginBuildArgs),
    /// Uploads package files to the control plane's artifact store (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Push(PluginPushArgs),
    /// Calls each plugin in its sandbox with the examples in its spec
    Test(PluginTestArgs),
    /// Calls one plugin once and shows its output
    Run(PluginRunArgs),
    /// Installs plugins for a language runtime, from the code next to their specs or from the artifact store
    Install(PluginInstallArgs),
}

#[derive(Clone, Debug, Args)]
pub struct PluginNewArgs {
    /// Id of the primitive, e.g. greet_all
    #[arg(value_name = "ID")]
    pub id: String,
    /// Language of the code; not for elicitations and delegates
    #[arg(long)]
    pub language: Option<ScaffoldLanguage>,
    /// Server that gets the primitive, whose package its code joins [default: a new one, named after it]
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Type of the primitive
    #[arg(long = "type", value_name = "TYPE", default_value = "tool")]
    pub kind: ScaffoldType,
    /// Directory of primitives to create it in
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PluginBuildArgs {
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Directory for the package files, each with a file of its SHA-256
    #[arg(long, value_name = "DIR", default_value = "dist")]
    pub out: PathBuf,
    /// Writes no file; fails if a schema file differs from the code
    #[arg(long, conflicts_with_all = ["out", "json"])]
    pub check: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PluginPushArgs {
    /// Package files or directories of package files
    #[arg(value_name = "FILE", default_value = "dist")]
    pub files: Vec<PathBuf>,
    /// URL of the admin API [default: ASP_ADMIN_URL]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PluginTestArgs {
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Tests this plugin only
    #[arg(long, value_name = "ID")]
    pub only: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PluginRunArgs {
    #[arg(value_name = "ID")]
    pub id: String,
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Arguments of the call, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    /// Answer to an elicitation (its fields, "decline" or "cancel") or to a delegation (the delegate's text or JSON); one for each id
    #[arg(long = "answer", value_name = "ID=JSON", value_parser = answers::parse)]
    pub answers: Vec<(String, Value)>,
    /// Seconds that the call may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
    /// Prints outcome and output, or the fault, as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PluginInstallArgs {
    #[arg(value_name = "DIR", default_value = "primitives")]
    pub directory: PathBuf,
    /// Directory in which the runtime looks for plugins
    #[arg(long, value_name = "DIR", default_value = ".asp/plugins")]
    pub plugins: PathBuf,
    /// Installs the packages that servers registered at this admin API pin, from its artifact store (ASP_ADMIN_TOKEN)
    #[arg(long, value_name = "URL", conflicts_with = "directory")]
    pub from: Option<String>,
    /// Repeats the installation after this many seconds, until stopped (requires --from)
    #[arg(long, value_name = "SECONDS", requires = "from", value_parser = clap::value_parser!(u64).range(1..))]
    pub every: Option<u64>,
    /// Replaces an installed version even if its code differs (for development)
    #[arg(long)]
    pub replace: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
