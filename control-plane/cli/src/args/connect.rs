//! The command line of `asp connect`.

use std::path::PathBuf;

use asp_protocols::connect::ClientProgram;
use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp connect demo --client claude-code           prints the entry of the client's file and its command
  asp connect demo --client cursor --write        adds the entry to .cursor/mcp.json of this directory
  asp connect demo --client vscode --write --file ~/.config/Code/User/mcp.json

Clients log in by themselves. With --token the entry sends the token in ASP_TOKEN of the client's environment (VS Code asks for
it); the token itself is never written. docs/clients.md describes each client.

Environment:
  ASP_EDGE_URL      URL of the platform [http://127.0.0.1:8080]")]
pub struct ConnectArgs {
    /// Name of the server, as in its URL
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Client to connect
    #[arg(long, value_name = "CLIENT", value_parser = ClientProgram::NAMES)]
    pub client: String,
    /// URL of the platform [default: ASP_EDGE_URL, else http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Name of the entry [default: the server's]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Sends the user's token instead of logging in
    #[arg(long)]
    pub token: bool,
    /// Adds the entry to the client's file in this directory; other entries stay
    #[arg(long)]
    pub write: bool,
    /// File to add the entry to, instead of the one in this directory
    #[arg(long, value_name = "FILE", requires = "write")]
    pub file: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
