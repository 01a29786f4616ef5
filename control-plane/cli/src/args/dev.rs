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

Settings from the environment (`asp config` and docs/settings.md explain them):
  ASP_STATE_DIR       directory whose dev/ keeps the state and the file `env`, so that tokens survive a restart;
                      the state of `asp serve` in it is not touched [a temporary directory]
  ASP_GATEWAY_PORT, ASP_UPSTREAMS, ASP_CREDENTIALS, ASP_DELEGATE_*, ASP_SECRETS, ASP_ALLOW_PRIVATE, ASP_RUNTIME_BIN,
  ASP_PLUGIN_*, ASP_TRUST_BUILDS, ASP_LOG, SSL_CERT_FILE, SSL_CERT_DIR
  HTTP_PROXY, HTTPS_PROXY are ignored: a proxy would resolve names itself, so addresses could not be checked")]
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
