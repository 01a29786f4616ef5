//! The command line of `asp mcp`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example of a client's mcp.json:
  {\"mcpServers\": {\"demo\": {\"command\": \"asp\", \"args\": [\"mcp\", \"--server\", \"demo\"],
                           \"env\": {\"ASP_EDGE_URL\": \"https://mcp.example.com\", \"ASP_TOKEN\": \"...\"}}}}

For clients that start a program and speak MCP to it over standard input and output. The command forwards their messages to
the server's URL and returns the answers, in every MCP revision. It repeats the handshake if the server has lost the session,
and resends only messages that were certainly not delivered. It ends when standard input is closed.

With --embedded this process is the platform itself: it serves a directory of primitives as `asp dev` does, to this client
only, as user alice of org acme, and keeps nothing afterwards. A client's mcp.json needs nothing else:
  {\"mcpServers\": {\"greet\": {\"command\": \"asp\", \"args\": [\"mcp\", \"--embedded\", \"/home/ada/mine\"]}}}

Environment:
  ASP_EDGE_URL      URL of the platform [http://127.0.0.1:8080]
  ASP_TOKEN         bearer token
  ASP_TOKEN_FILE    file with the bearer token, read for each request, so that it can be renewed")]
pub struct McpArgs {
    /// Name of the server, as in its URL; optional with --embedded if the directory has one server
    #[arg(long, value_name = "NAME", required_unless_present = "embedded")]
    pub server: Option<String>,
    /// URL of the platform [default: ASP_EDGE_URL, else http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Serves this directory of primitives in this process, without a platform (reads the environment of `asp dev`)
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub embedded: Option<PathBuf>,
}
