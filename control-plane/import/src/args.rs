//! The command line of `asp import`.

use std::path::PathBuf;

use clap::Args;

/// Maximum length of a new name, which is part of an id: ids have 128 bytes, servers' names up to 63.
const MAX_NAME: usize = 64;

#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("source").required(true).args(["client", "mcp", "npx", "uvx", "stdio", "a2a", "openapi"]),
    after_help = "\
Examples:
  asp import ~/.cursor/mcp.json                    every server of a client's file (Claude, VS Code, Cursor)
  asp import --mcp http://127.0.0.1:3001/mcp --server tickets
  asp import --npx '@modelcontextprotocol/server-everything stdio' --server everything
  asp import --uvx mcp-server-time --server time --env API_KEY    the value of API_KEY here becomes a secret
  asp import --a2a https://agent.example.com --server agent
  asp import --openapi shop.json --server shop --tag orders
  asp import --openapi shop.json --server shop --protocols mcp,rest
  asp import --openapi shop.json --server shop --rename get_order_orders__id__get=order --read-only 'list_*'

A tool without hints, and every skill of an agent, gets MCP's defaults: destructive and open-world. What an upstream MCP server
lists, and what an agent's card says of its skills, is pinned: gateways keep serving what was imported, whatever the upstream
lists later, until you import again and accept the changes.
Exit code: 1, and nothing is written, if something differs from the previous import and --accept is not given; with FILE, 1 if a
server of it is left out."
)]
pub struct ImportArgs {
    /// A client's file of MCP servers (`mcpServers` or `servers`): each becomes a folder of specs. Packages of npx and uvx are
    /// fetched and run in the sandbox; keys are written to ASP_SECRETS and ASP_CREDENTIALS [default: secrets.json and
    /// credentials.json in ASP_STATE_DIR]
    #[arg(value_name = "FILE", conflicts_with_all = ["proxy_url", "pages", "credential"])]
    pub client: Option<PathBuf>,
    /// Streamable HTTP endpoint of the upstream
    #[arg(long, value_name = "URL")]
    pub mcp: Option<String>,
    /// Package of npm that `npx` would run, with its arguments in the same word: it is fetched at one version into
    /// DIR/NAME/plugins, and runs in the plugin sandbox
    #[arg(long, value_name = "PACKAGE[@VERSION]", conflicts_with_all = ["proxy_url", "pages", "credential"])]
    pub npx: Option<String>,
    /// Package of PyPI that `uvx` would run, likewise
    #[arg(long, value_name = "PACKAGE[@VERSION]", conflicts_with_all = ["proxy_url", "pages", "credential"])]
    pub uvx: Option<String>,
    /// Variable that the package reads: its value in the environment of this command becomes a secret for the server alone;
    /// repeat for more
    #[arg(long = "env", value_name = "NAME", conflicts_with_all = ["client", "mcp", "stdio", "a2a", "openapi"])]
    pub variables: Vec<String>,
    /// MCP server that runs on standard input and output, in the plugin sandbox: the package whose code is in
    /// DIR/NAME/plugins, in the folder of its name (a scope `@a/b` is `a__b`), with its manifest.json (MCP bundle)
    #[arg(long, value_name = "PACKAGE[@VERSION]")]
    pub stdio: Option<String>,
    /// A2A agent, or its card: each of its skills becomes a task. The signature of the card is verified
    #[arg(long, value_name = "URL")]
    pub a2a: Option<String>,
    /// Origin other than the card's at which keys of its signature are read; repeat for more
    #[arg(long = "card-keys", value_name = "ORIGIN", requires = "a2a")]
    pub card_keys: Vec<String>,
    /// OpenAPI 3 document in JSON or YAML; each operation becomes a tool
    #[arg(long, value_name = "FILE|URL")]
    pub openapi: Option<String>,
    /// Imports only OpenAPI operations with this tag; repeat for more
    #[arg(long = "tag", value_name = "TAG", requires = "openapi")]
    pub tags: Vec<String>,
    /// Imports only the OpenAPI operation with this operationId; repeat for more
    #[arg(long = "operation", value_name = "ID", requires = "openapi")]
    pub operations: Vec<String>,
    /// Writes a line to this file for each part of the OpenAPI document that is left out
    #[arg(long, value_name = "FILE", requires = "openapi")]
    pub report: Option<PathBuf>,
    /// Writes no output schemas of an OpenAPI document, for a service whose answers do not match it
    #[arg(long, requires = "openapi")]
    pub no_output_schemas: bool,
    /// Leaves out this upstream tool, skill or operation; repeat for more
    #[arg(long, value_name = "NAME")]
    pub except: Vec<String>,
    /// New name of a tool, skill, operation or prompt, here and in its id; repeat for more
    #[arg(long = "rename", value_name = "OLD=NEW", value_parser = parse_rename)]
    pub renames: Vec<(String, String)>,
    /// YAML or JSON file of new names, with the old ones as keys; give it to later imports too
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,
    /// Tool that only reads, by its name or `prefix*`, so that its calls need no approval; repeat for more. Later imports keep it
    #[arg(long = "read-only", value_name = "NAME")]
    pub read_only: Vec<String>,
    /// Accepts and writes changes since the previous import
    #[arg(long)]
    pub accept: bool,
    /// Name of the server here; with FILE, the only one to import [default with FILE: all]
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "client",
        default_value = "",
        hide_default_value = true
    )]
    pub server: String,
    /// Host that a package on standard input and output may reach; repeat for more. Later imports keep it
    #[arg(long = "allow-domain", value_name = "HOST", conflicts_with_all = ["mcp", "a2a", "openapi"])]
    pub domains: Vec<String>,
    /// URL that the specs name (an upstream entry of the operator) [default: the URL of the upstream or of the document]
    #[arg(long, value_name = "URL", conflicts_with = "stdio")]
    pub proxy_url: Option<String>,
    /// Prefix (https URL) of pages to which the upstream's tools or the agent may send a user; repeat for more
    #[arg(long = "page", value_name = "URL", conflicts_with_all = ["stdio", "openapi"])]
    pub pages: Vec<String>,
    /// Operator's credential (ASP_CREDENTIALS) used to list the upstream, which the specs then name
    #[arg(long, value_name = "NAME")]
    pub credential: Option<String>,
    /// Audience of the tokens with which OpenAPI operations that need authentication are called: the caller's issuer exchanges
    /// the caller's own for them [default: a credential with the server's name]
    #[arg(long, value_name = "AUDIENCE", requires = "openapi", conflicts_with = "credential")]
    pub exchange: Option<String>,
    /// Writes no authentication into the specs of OpenAPI operations
    #[arg(long, requires = "openapi", conflicts_with_all = ["credential", "exchange"])]
    pub no_auth: bool,
    /// Protocols the server is served over, with the same tool names: mcp, rest, a2a [default: those of the previous import, else mcp]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["mcp", "rest", "a2a"])]
    pub protocols: Vec<String>,
    /// Contact address for the imported primitives
    #[arg(long, default_value = "platform@example.com", value_name = "ADDRESS")]
    pub owner: String,
    /// Directory of primitives to write to
    #[arg(long, default_value = "primitives", value_name = "DIR")]
    pub out: PathBuf,
    /// Prints JSON: one object on standard output, text for people on standard error
    #[arg(long)]
    pub json: bool,
}

/// Parses `old=new`.
pub(crate) fn parse_rename(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.split_once('=').ok_or("a new name has the form OLD=NEW")?;
    check_rename(old, new)?;
    Ok((old.to_owned(), new.to_owned()))
}

/// Rejects a name that lists and ids cannot hold.
pub(crate) fn check_rename(old: &str, new: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_plain = (1..=MAX_NAME).contains(&new.len()) && !new.starts_with('.') && new.bytes().all(fits);
    if old.is_empty() || !is_plain {
        return Err(format!("`{new}` is not a name of 1 to {MAX_NAME} letters, digits, `_`, `.` and `-`"));
    }
    Ok(())
}
