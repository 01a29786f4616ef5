//! The command line of `asp dev`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp plugin new greet --language python mine   a server with one tool that works
  asp dev mine                                  its URL, and what a client's mcp.json takes
  asp dev mine --port 0                         on any free port
  asp dev mine --allow-private                  plugins reach localhost:9000 if their specs list localhost

A change of a spec or of a plugin's code takes effect for the next call; when the types of the code changed, its
file of schemas is written anew. What has a fault is told with its file and line, and what was served before stays,
specs and code. What plugins print and log is shown with their names. Ctrl-C ends everything.

Environment:
  ASP_GATEWAY_PORT    where clients reach it, on this machine only [8082, or a free port if that is in use]
  ASP_STATE_DIR       keeps the state and the file `env` in dev/ below it, so that tokens outlive a restart and
                      what `asp serve` keeps there stays [a temporary directory]
  ASP_RUNTIME_BIN     the language runtime [asp-runtime beside asp]
  ASP_PLUGIN_PYTHON, ASP_PLUGIN_NODE, ASP_PLUGIN_NODE_SHIM, ASP_PLUGIN_JAVA, ASP_PLUGIN_JAVA_SHIM
                      what plugins run in [without ASP_PLUGIN_NODE or _JAVA: the first on the PATH]
  ASP_UPSTREAMS, ASP_CREDENTIALS, ASP_DELEGATE_*
                      as `asp serve --help` says
  ASP_SECRETS         JSON file of the named secrets that stdio servers may be given (docs/upstreams.md) [none]
  ASP_ALLOW_PRIVATE   true: as --allow-private [false]
  ASP_TRUST_BUILDS    true: Maven builds Java plugins in every directory [asks once for each, at a terminal]
  SSL_CERT_FILE, SSL_CERT_DIR
                      authorities to trust when calling services [those of the system]
  HTTP_PROXY, HTTPS_PROXY
                      are not used: a proxy would resolve names itself, so addresses could not be checked
  ASP_LOG             levels of the platform's own log on standard error [warn]")]
pub struct DevArgs {
    /// The directory of primitives: one folder for each server
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Port for clients; 0 takes a free one [default: ASP_GATEWAY_PORT, else 8082 or a free one]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Lets plugins reach private addresses, on any port, by the names that their specs list
    #[arg(long)]
    pub allow_private: bool,
    /// For programs: addresses and tokens as lines of JSON; text goes to standard error
    #[arg(long)]
    pub json: bool,
}
