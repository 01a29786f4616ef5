//! Settings that commands read where they need them, and those that are for the programs they start.
//!
//! Declared for `asp config` and the reference alone.

use clap::Args;

/// Settings of commands, and of the programs that they start
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Commands and plugins")]
pub struct CommandArgs {
    /// Log levels, e.g. `info,asp=debug` [default: info; warn for `asp dev`]
    #[arg(long, env = "ASP_LOG")]
    pub log: Option<String>,
    /// Address of the admin API, for commands of admins and teams [default: `http://127.0.0.1:8081`]
    #[arg(long, env = "ASP_ADMIN_URL")]
    pub admin_url: Option<String>,
    /// Token for the admin API [default: the login of `asp login`]
    #[arg(long, env = "ASP_ADMIN_TOKEN", hide_env_values = true)]
    pub admin_token: Option<String>,
    /// Address of the edge, for `asp mcp`, `asp tools` and `asp call` [default: `http://127.0.0.1:8080`]
    #[arg(long, env = "ASP_EDGE_URL")]
    pub edge_url: Option<String>,
    /// Token of a caller, for `asp mcp`, `asp tools` and `asp call`
    #[arg(long, env = "ASP_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// File with the token of a caller, for `asp mcp`, `asp tools` and `asp call`
    #[arg(long, env = "ASP_TOKEN_FILE")]
    pub token_file: Option<String>,
    /// JSON file of named secrets for the plugins and stdio servers of `--stack` and `asp dev` (docs/secrets.md) [default: none]
    #[arg(long, env = "ASP_SECRETS")]
    pub secrets: Option<String>,
    /// `true` if Maven may build Java plugins without asking [default: false; `asp dev` asks once per directory, at a terminal]
    #[arg(long, env = "ASP_TRUST_BUILDS")]
    pub trust_builds: Option<String>,
    /// Registries that builds of plugins may reach beside those in the configuration of pip, npm and Maven: hosts or URLs,
    /// separated by commas
    #[arg(long, env = "ASP_BUILD_REGISTRIES")]
    pub build_registries: Option<String>,
    /// Python interpreter for plugins, with the package `asp-plugin` [default: the one that `scripts/setup` or a package installed]
    #[arg(long, env = "ASP_PLUGIN_PYTHON")]
    pub plugin_python: Option<String>,
    /// Node binary for plugins [default: the first on the PATH]
    #[arg(long, env = "ASP_PLUGIN_NODE")]
    pub plugin_node: Option<String>,
    /// Directory with the Node shim
    #[arg(long, env = "ASP_PLUGIN_NODE_SHIM")]
    pub plugin_node_shim: Option<String>,
    /// Java binary for plugins [default: the first on the PATH]
    #[arg(long, env = "ASP_PLUGIN_JAVA")]
    pub plugin_java: Option<String>,
    /// Directory of the jars of the Java shim
    #[arg(long, env = "ASP_PLUGIN_JAVA_SHIM")]
    pub plugin_java_shim: Option<String>,
    /// File of the authorities that gateways, commands and plugins' credentials trust [default: those of the system]
    #[arg(long, env = "SSL_CERT_FILE")]
    pub ssl_cert_file: Option<String>,
    /// Directory of such authorities [default: that of the system]
    #[arg(long, env = "SSL_CERT_DIR")]
    pub ssl_cert_dir: Option<String>,
}
