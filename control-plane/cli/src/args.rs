//! The command line of `asp`.

pub mod db;
pub mod dev;
pub mod environment;
pub mod machines;
pub mod mcp;
pub mod plugin;
pub mod policy;
pub mod servers;
pub mod upgrade;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use dev::DevArgs;
use environment::ENVIRONMENT_HELP;
use machines::MachinesCommand;
use mcp::McpArgs;
use plugin::PluginCommand;
use policy::PolicyArgs;

/// The Agentic Server Platform: a gateway for MCP.
#[derive(Debug, Parser)]
#[command(
    name = "asp",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  asp plugin new greet --language python mine   a server with one tool that works
  asp dev mine                                  serves it on this machine, and follows every change
  asp lint mine                                 every fault of its files
  asp serve --dev --primitives mine             control plane and gateway on this machine
  asp token --org acme --user alice             a token to call it with"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves a directory of primitives on this machine and follows every change of specs and code
    Dev(DevArgs),
    /// Runs the control plane, the gateway, or both
    Serve(ServeArgs),
    /// Mints a token from the development issuer and prints it alone
    Token(TokenArgs),
    /// Logs an admin in at the company's issuer (ASP_ADMIN_URL)
    Login(LoginArgs),
    /// Checks a directory of primitives and reports every fault
    Lint(LintArgs),
    /// Compiles a directory of primitives and shows the result
    Compile(CompileArgs),
    /// Sends a directory of primitives to the control plane (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Apply(ApplyArgs),
    /// Compares a directory of primitives with the control plane
    Diff(DiffArgs),
    /// Brings what another MCP server lists into a directory of primitives
    Import(ImportArgs),
    /// Shows the published snapshot and who has it
    Status(StatusArgs),
    /// Says which rule decides about a call
    Explain(ExplainArgs),
    /// Shows or changes what an org may reach and who of it may call what
    Policy(PolicyArgs),
    /// Shows or replaces the rate limits of an org
    Limits(LimitsArgs),
    /// Revokes a token, a user or an org
    Revoke(RevokeArgs),
    /// Lists, makes and takes away what machines of an org call with
    #[command(subcommand)]
    Machines(MachinesCommand),
    /// Shows who called what, newest first (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Audit(AuditArgs),
    /// Shows the stored servers and their versions, and goes back to one (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Servers(servers::ServersCommand),
    /// Prints what an upgrade to this version needs (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Upgrade(upgrade::UpgradeCommand),
    /// Shows, moves and backs up the database of `asp serve` (ASP_DATABASE_URL)
    #[command(subcommand)]
    Db(db::DbCommand),
    /// Brings a server to a local client that talks over standard input and output
    Mcp(McpArgs),
    /// Works with the code of plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  asp explain --org acme --user alice --group ops --server demo --primitive echo
  asp explain --org acme --user alice --server demo --primitive echo --arguments '{\"message\": \"hi\"}'

The answer is about a caller who has the groups, scopes and the token that are named, and no others. The team of a server may ask
about its own server, and is told of an org's policy that it denies, not by which rule.
Ends with 0 when the call would be allowed, 1 when not.")]
pub struct ExplainArgs {
    #[arg(long)]
    pub org: String,
    #[arg(long)]
    pub user: Option<String>,
    /// A machine instead of a user
    #[arg(long, conflicts_with_all = ["user", "issuer"])]
    pub machine: Option<String>,
    /// Issuer of the user [default: the server's, where one alone speaks for the org]
    #[arg(long, value_name = "NAME")]
    pub issuer: Option<String>,
    /// A group of the user; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// The token's id
    #[arg(long)]
    pub wcit: Option<String>,
    /// A scope of the token; repeat for more
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    #[arg(long)]
    pub server: String,
    /// The primitive's id
    #[arg(long, value_name = "ID")]
    pub primitive: String,
    /// mcp or rest; a2a is not served yet
    #[arg(long, default_value = "mcp")]
    pub protocol: String,
    /// What the call would say, for bindings that ask about arguments
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example of a file:
  - {selector: {user: each}, policy: {capacity: 20, refill: 5/s}}                 20 at once and 5 a second for each user
  - {selector: {primitive: cc.pay, user: \"*\"}, policy: {capacity: 100, refill: 1/s}}  one bucket for all users together

  - {selector: {machine: each}, policy: {capacity: 5, refill: 1/s}}               for each machine; no `user` is ever one
  - {selector: {user: bob, issuer: login}, policy: {capacity: 5, refill: 1/s}}    bob of that issuer, and no other bob

A selector has server, primitive, user, machine, wcit (a token's id) and issuer; what is missing is `*`. As user, machine or
wcit `each` has one bucket for each. The same user or token of two issuers is two.")]
pub struct LimitsArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// Replaces all limits of the org by those of a file, YAML or JSON; - is standard input
    #[arg(long, value_name = "FILE")]
    pub put: Option<PathBuf>,
    /// Stores names that no org, server, primitive or issuer has
    #[arg(long, requires = "put")]
    pub force: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Examples:
  asp revoke --org acme --user bob --reason left   every token of bob issued until now
  asp revoke --token JTI
  asp revoke --tokens leaked.txt                   every token whose id is a line of the file
  asp revoke --org acme                            every token of the org issued until now
  asp revoke --lift ID                             takes a revocation back; its id is in the answer and in `asp explain`

A token issued after the second that the answer says works. The answer has the commands that keep bob out: a denial of
everything, and one of each binding that would still allow him something.")]
pub struct RevokeArgs {
    #[arg(long)]
    pub org: Option<String>,
    #[arg(long)]
    pub user: Option<String>,
    /// A token's id (jti)
    #[arg(long, value_name = "JTI", conflicts_with_all = ["user", "token_hash"])]
    pub token: Option<String>,
    /// Lower-case hex SHA-256 of the compact token
    #[arg(long, value_name = "HEX", conflicts_with = "user")]
    pub token_hash: Option<String>,
    /// Ids of tokens, one a line of a file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "token", "token_hash", "token_hashes"])]
    pub tokens: Option<PathBuf>,
    /// Hashes of tokens, one a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "token", "token_hash"])]
    pub token_hashes: Option<PathBuf>,
    #[arg(long)]
    pub reason: Option<String>,
    /// Takes this revocation back: what it ended is good again
    #[arg(long, value_name = "ID", conflicts_with_all = ["org", "user", "token", "token_hash", "tokens", "token_hashes", "reason"])]
    pub lift: Option<String>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp lint                        every fault and warning of ./primitives
  asp lint primitives/demo/echo.yaml   one file; what it refers to is read from the files beside it")]
pub struct LintArgs {
    /// A directory of primitives, or one file of it
    #[arg(value_name = "PATH", default_value = "primitives")]
    pub path: PathBuf,
    /// For programs
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// As SARIF 2.1.0, for code hosts
    #[arg(long)]
    pub sarif: bool,
}

#[derive(Clone, Debug, Args)]
pub struct CompileArgs {
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Only this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// For programs: everything that was compiled
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp apply primitives --dry-run   what would change
  asp apply primitives

Ends with 3 when a contract breaks without a new major version.")]
pub struct ApplyArgs {
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Says what would change, and changes nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Applies what breaks callers without a new major version too; the audit says so
    #[arg(long)]
    pub force: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Ends with 0 when nothing breaks callers, 3 when something does without a new major version: a gate for a merge pipeline.")]
pub struct DiffArgs {
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// For programs
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// As SARIF 2.1.0, for code hosts: what breaks callers is an error, every other change a note
    #[arg(long)]
    pub sarif: bool,
}

#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("source").required(true).args(["mcp", "stdio", "openapi"]),
    after_help = "\
Examples:
  asp import --mcp http://127.0.0.1:3001/mcp --server tickets
  asp import --stdio @modelcontextprotocol/server-everything@2.0.0 --server everything
  asp import --openapi shop.json --server shop --tag orders
  asp import --openapi shop.json --server shop --protocols mcp,rest

A tool without hints is taken as MCP's defaults say: destructive and in an open world. What an upstream MCP server lists
is pinned: gateways go on with what was imported, whatever it lists later, until the import is run again and its changes
are accepted.
Ends with 1 and writes nothing when something differs from what was imported before and --accept is not given."
)]
pub struct ImportArgs {
    /// The upstream's Streamable HTTP endpoint
    #[arg(long, value_name = "URL")]
    pub mcp: Option<String>,
    /// An MCP server that runs on standard input and output, in the sandbox of plugins: the package whose code lies in
    /// DIR/NAME/plugins, in the folder of its name (a scope `@a/b` is `a__b`), with its manifest.json (MCP bundle)
    #[arg(long, value_name = "PACKAGE[@VERSION]")]
    pub stdio: Option<String>,
    /// An OpenAPI 3 document in JSON or YAML: each of its operations becomes a tool
    #[arg(long, value_name = "FILE|URL")]
    pub openapi: Option<String>,
    /// Of an OpenAPI document, only operations with one of these tags
    #[arg(long = "tag", value_name = "TAG", requires = "openapi")]
    pub tags: Vec<String>,
    /// Of an OpenAPI document, only these operations, by their operationId
    #[arg(long = "operation", value_name = "ID", requires = "openapi")]
    pub operations: Vec<String>,
    /// Writes a line about each part of an OpenAPI document that is left out
    #[arg(long, value_name = "FILE", requires = "openapi")]
    pub report: Option<PathBuf>,
    /// A tool of the upstream, or an operation, that is left out
    #[arg(long, value_name = "NAME")]
    pub except: Vec<String>,
    /// Writes what differs from what was imported before
    #[arg(long)]
    pub accept: bool,
    /// The server it becomes here
    #[arg(long, value_name = "NAME")]
    pub server: String,
    /// The URL that the specs name, when it is not the one of the upstream or of the document (an upstream entry of the
    /// operator)
    #[arg(long, value_name = "URL", conflicts_with = "stdio")]
    pub proxy_url: Option<String>,
    /// A page below which the upstream's tools may send a user (elicitation mode `url`), https
    #[arg(long = "page", value_name = "URL", requires = "mcp")]
    pub pages: Vec<String>,
    /// The operator's credential (ASP_CREDENTIALS) by which the upstream is listed, and which the specs name
    #[arg(long, value_name = "NAME")]
    pub credential: Option<String>,
    /// Protocols over which the server is served, tools under the same names: mcp, rest [default: mcp, or what an earlier
    /// import chose]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ["mcp", "rest"])]
    pub protocols: Vec<String>,
    /// Who answers for the imported primitives
    #[arg(long, default_value = "platform@example.com", value_name = "ADDRESS")]
    pub owner: String,
    /// The directory of primitives
    #[arg(long, default_value = "primitives", value_name = "DIR")]
    pub out: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct AuditArgs {
    /// Only this organisation's calls
    #[arg(long)]
    pub org: Option<String>,
    /// How many events
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Only events before this one: the number at the start of a line
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub before: Option<i64>,
    /// For programs: one event a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = ENVIRONMENT_HELP)]
pub struct ServeArgs {
    /// What this process does: control, gateway [default: control,gateway]
    #[arg(long, value_name = "LIST")]
    pub roles: Option<String>,
    /// Development mode: its own issuer, loopback origins, no TLS needed
    #[arg(long)]
    pub dev: bool,
    /// Starts Envoy and the sample MCP server too (with --dev)
    #[arg(long)]
    pub stack: bool,
    /// Lets plugins reach private addresses, on any port, by the names that their specs list (with --stack)
    #[arg(long, requires = "stack")]
    pub allow_private: bool,
    /// Applies this directory of primitives at start
    #[arg(long, value_name = "DIR")]
    pub primitives: Option<PathBuf>,
    /// The address every listener binds [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub bind: Option<String>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Commands that talk to the admin API use the login where ASP_ADMIN_TOKEN is not set. It is kept in asp/logins.json below
$XDG_CONFIG_HOME or ~/.config.")]
pub struct LoginArgs {
    /// Which of several admin issuers
    #[arg(long, value_name = "NAME")]
    pub issuer: Option<String>,
}

#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "asp token --org <ORG> --user <USER> [OPTIONS]\n       asp token --admin --user <USER> [--role <ROLE>] [OPTIONS]\n       asp token --break-glass --user <USER> --reason <TEXT> [--ttl <TTL>]\n       asp token --break-glass --user <USER> --new-key",
    after_help = "\
Examples:
  asp token --org acme --user alice --group ops --ttl 15m
  asp token --admin --user ops --role platform:read
  asp token --break-glass --user ops --reason \"the company's login is down\"

--break-glass is for production: it opens the admin API for at most 15 minutes, to whoever may read the state directory
of the control plane, and its use is in the audit with its reason."
)]
pub struct TokenArgs {
    /// The caller's organisation; needed unless --admin is given
    #[arg(long, required_unless_present_any = ["admin", "break_glass"])]
    pub org: Option<String>,
    /// The caller
    #[arg(long)]
    pub user: String,
    /// A scope; repeat for more
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// A group of the user; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// How long it lives: 30s, 15m, 1h; at most 24h, of --break-glass 15m [default: 1h, of --break-glass 15m]
    #[arg(long)]
    pub ttl: Option<String>,
    /// Only for this server
    #[arg(long, value_name = "NAME", conflicts_with = "admin")]
    pub server: Option<String>,
    /// For the admin API instead
    #[arg(long)]
    pub admin: bool,
    /// What an admin token may do: platform, org:ID, server:NAME or installer, each with :read behind it or not
    #[arg(long, requires = "admin", default_value = "platform")]
    pub role: String,
    /// An emergency token for the admin API
    #[arg(long, conflicts_with_all = ["admin", "org", "server", "scopes", "groups"])]
    pub break_glass: bool,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", requires = "break_glass")]
    pub reason: Option<String>,
    /// Replaces the key of emergency tokens instead: the control plane takes the new one, and no token of the old one, once
    /// it is restarted
    #[arg(long, requires = "break_glass", conflicts_with_all = ["reason", "ttl"])]
    pub new_key: bool,
}
