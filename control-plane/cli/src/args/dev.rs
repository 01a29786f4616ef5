//! The command line of `asp dev`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp plugin new greet --language python mine   creates a server with one working tool
  asp dev mine                                  serves it; prints its URL and an entry for a client's mcp.json
  asp dev mine --port 0                         on any free port
  asp dev mine --allow-private                  lets plugins reach localhost:9000 if their specs list localhost

A change to a spec or to a plugin's code takes effect with the next call. If the types in the code changed, its schema
file is rewritten. Faults are reported with file and line; until they are fixed, the previous specs and code stay in
service. Output and logs of plugins are shown under their names. Ctrl-C stops everything.

Environment:
  ASP_GATEWAY_PORT    port for clients, on this machine only [8082, or a free port if that is in use]
  ASP_STATE_DIR       directory whose dev/ keeps the state and the file `env`, so that tokens survive a restart;
                      the state of `asp serve` in it is not touched [a temporary directory]
  ASP_RUNTIME_BIN     language runtime binary [asp-runtime next to asp]
  ASP_PLUGIN_PYTHON, ASP_PLUGIN_NODE, ASP_PLUGIN_NODE_SHIM, ASP_PLUGIN_JAVA, ASP_PLUGIN_JAVA_SHIM
                      interpreters for plugins [for Node and Java: the first on the PATH]
  ASP_UPSTREAMS, ASP_CREDENTIALS, ASP_DELEGATE_*
                      see `asp serve --help`
  ASP_SECRETS         JSON file of named secrets for stdio servers (docs/upstreams.md) [none]
  ASP_ALLOW_PRIVATE   true: as --allow-private [false]
  ASP_TRUST_BUILDS    true: Maven builds Java plugins in any directory [asks once per directory, at a terminal]
  SSL_CERT_FILE, SSL_CERT_DIR
                      authorities to trust when calling services [those of the system]
  HTTP_PROXY, HTTPS_PROXY
                      ignored: a proxy would resolve names itself, so addresses could not be checked
  ASP_LOG             levels of the platform's own log on standard error [warn]")]
pub struct DevArgs {
    /// Directory of primitives, with one folder for each server
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Port for clients; 0 picks a free one [default: ASP_GATEWAY_PORT, else 8082 or a free one]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Lets plugins reach private addresses, on any port, under the names that their specs list
    #[arg(long)]
    pub allow_private: bool,
    /// Prints addresses and tokens as lines of JSON; text goes to standard error
    #[arg(long)]
    pub json: bool,
}
