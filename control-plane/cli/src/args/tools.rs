//! The command line of `asp tools`.

use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp tools demo        the tools that a caller sees on the server, with their arguments
  asp tools demo echo   one of them
  asp tools             every stored server and its tools, for admins (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)

Environment:
  ASP_EDGE_URL      URL of the platform [http://127.0.0.1:8080]
  ASP_TOKEN         bearer token
  ASP_TOKEN_FILE    file with the bearer token")]
pub struct ToolsArgs {
    /// Name of the server, as in its URL
    #[arg(value_name = "SERVER")]
    pub server: Option<String>,
    /// Name of a tool
    #[arg(value_name = "TOOL", requires = "server")]
    pub tool: Option<String>,
    /// URL of the platform [default: ASP_EDGE_URL, else http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", requires = "server")]
    pub url: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
