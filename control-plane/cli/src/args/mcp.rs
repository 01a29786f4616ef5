//! The command line of `asp mcp`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example of a client's mcp.json:
  {\"mcpServers\": {\"demo\": {\"command\": \"asp\", \"args\": [\"mcp\", \"--server\", \"demo\"],
                           \"env\": {\"ASP_EDGE_URL\": \"https://mcp.example.com\", \"ASP_TOKEN\": \"...\"}}}}

For clients that start a program and talk to it over standard input and output. It carries their messages to the
server's URL and back, in every revision of MCP, shakes hands again where the server has lost the session, and sends
again what was certainly not delivered. It ends when standard input does.

With --embedded the platform is this process itself: it serves a directory of primitives as `asp dev` does, to this client
alone, as alice of acme, and keeps nothing afterwards. A client's mcp.json needs nothing else:
  {\"mcpServers\": {\"greet\": {\"command\": \"asp\", \"args\": [\"mcp\", \"--embedded\", \"/home/ada/mine\"]}}}

Environment:
  ASP_EDGE_URL      where the platform is [http://127.0.0.1:8080]
  ASP_TOKEN         the bearer token
  ASP_TOKEN_FILE    a file with it, read for each request, so that it can be renewed")]
pub struct McpArgs {
    /// The server's name, as in its URL; with --embedded not needed where the directory has one server
    #[arg(long, value_name = "NAME", required_unless_present = "embedded")]
    pub server: Option<String>,
    /// Where the platform is [default: ASP_EDGE_URL, else http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Serves this directory of primitives in this process, without a platform (environment: that of `asp dev`)
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub embedded: Option<PathBuf>,
}
