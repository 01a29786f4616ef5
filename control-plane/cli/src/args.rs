//! The command line of `asp`.

pub mod approvals;
pub mod audit;
pub mod blocks;
pub mod call;
pub mod config;
pub mod connect;
pub mod db;
pub mod deploy;
pub mod dev;
pub mod help;
pub mod history;
pub mod issuer;
pub mod kafka;
pub mod limits;
pub mod links;
pub mod live;
pub mod machines;
pub mod mcp;
pub mod orgs;
pub mod placement;
pub mod plugin;
pub mod policy;
pub mod push;
pub mod servers;
pub mod tools;
pub mod upgrade;
pub mod usage;
pub mod vault;

use std::path::PathBuf;

use asp_import::ImportArgs;
use clap::{Args, Parser, Subcommand};

use audit::AuditArgs;
use blocks::{BlockCommand, UnblockCommand};
use call::CallArgs;
use config::ConfigArgs;
use deploy::DeployArgs;
use dev::DevArgs;
use history::{HistoryArgs, UndoArgs};
use limits::LimitsArgs;
use machines::MachinesCommand;
use mcp::McpArgs;
use placement::{ArtifactsCommand, RegionsCommand, RoutesCommand};
use plugin::PluginCommand;
use policy::PolicyArgs;
use tools::ToolsArgs;

/// The Agentic Server Platform: a gateway for MCP
#[derive(Debug, Parser)]
#[command(
    name = "asp",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  asp plugin new greet --language python mine         creates a server with one working tool
  asp dev mine                                        serves it on this machine and applies every change
  asp deploy mine                                     shows what it would change on a running platform, asks, and does it
  asp serve --dev --primitives mine                   runs control plane and gateway on this machine
  asp policy acme --deny greet --user bob             denies a tool to bob; asp undo takes it back

`asp COMMAND --help` shows options and examples; docs/admin.md is the page for admins."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves a directory of primitives on this machine and applies every change to specs and code
    Dev(DevArgs),
    /// Runs the control plane, the gateway, or both
    Serve(ServeArgs),
    /// Prints every setting with its value, source, default and meaning, and every fault that `asp serve` would report
    Config(ConfigArgs),
    /// Mints a token from the development issuer and prints only the token
    Token(TokenArgs),
    /// Logs an admin in at the company's issuer (ASP_ADMIN_URL)
    Login(LoginArgs),
    /// Adds, tries, lists and deletes the issuers whose users the platform lets in (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Issuer(issuer::IssuerCommand),
    /// Checks a directory of primitives and reports every fault
    Lint(LintArgs),
    /// Compiles a directory of primitives and shows the result
    Compile(CompileArgs),
    /// Sends a directory of primitives to the control plane (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Apply(ApplyArgs),
    /// Compares a directory of primitives with the control plane
    Diff(DiffArgs),
    /// Builds, pushes, pins and applies a directory of primitives, and waits until it is served (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Deploy(DeployArgs),
    /// Imports an MCP server's tools, an A2A agent's skills, an OpenAPI document or a client's file of servers into a directory of primitives
    Import(Box<ImportArgs>),
    /// Shows the published snapshot, which edges and gateways have it, and which services fail
    Status(JsonArgs),
    /// Shows which rule decides a call
    Explain(ExplainArgs),
    /// Shows or changes which servers an org can reach and who in it may call what
    Policy(PolicyArgs),
    /// Shows, adds, replaces or removes the rate limits of an org
    Limits(LimitsArgs),
    /// Revokes a token, a user or an org, and lists and lifts revocations
    Revoke(RevokeArgs),
    /// Blocks users and orgs, with any token, until they are unblocked, and lists blocks
    #[command(subcommand)]
    Block(BlockCommand),
    /// Lets a blocked user or org in again
    #[command(subcommand)]
    Unblock(UnblockCommand),
    /// Shows the changes that admins made, newest first
    History(HistoryArgs),
    /// Lists the orgs that something is stored for (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Orgs(orgs::OrgsArgs),
    /// Undoes a change of policy, limits, offers or revocations, after a preview of who gains or loses access
    Undo(UndoArgs),
    /// Manages the keys and certificates that an org's machines call with
    #[command(subcommand)]
    Machines(MachinesCommand),
    /// Shows who called what, newest first (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Audit(AuditArgs),
    /// Shows how much was called by primitive, user, server or day, and what nobody called (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Usage(usage::UsageArgs),
    /// Lists the calls that run now on all gateways, and cancels one (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Calls(live::CallsArgs),
    /// Lists the open sessions on all gateways, and ends one (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    Sessions(live::SessionsArgs),
    /// Lists, sends again and deletes push notifications that were not received (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Push(push::PushCommand),
    /// Shows the topic that revocations come from, and its messages that revoked nothing (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Kafka(kafka::KafkaCommand),
    /// Lists, shows and decides the calls that wait for the approval of another person (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Lists and removes the accounts that users have linked at other services (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Links(links::LinksCommand),
    /// Manages the services at which users link accounts (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    LinkProvider(links::LinkProviderCommand),
    /// Shows the stored servers and their versions, offers them to orgs, and rolls back (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Servers(servers::ServersCommand),
    /// Manages the routes of requests to gateway pools (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Routes(RoutesCommand),
    /// Manages regions and the home regions of orgs (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Regions(RegionsCommand),
    /// Shows the language runtimes with their plugins, workers and quarantines
    Runtimes(JsonArgs),
    /// Lists and deletes stored packages of plugins (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Artifacts(ArtifactsCommand),
    /// Prints what an upgrade to this version needs (ASP_ADMIN_URL, ASP_ADMIN_TOKEN)
    #[command(subcommand)]
    Upgrade(upgrade::UpgradeCommand),
    /// Shows, moves and backs up the database of `asp serve` (ASP_DATABASE_URL)
    #[command(subcommand)]
    Db(db::DbCommand),
    /// Lists, rotates and removes the keys of the vault, with which linked accounts are sealed (ASP_VAULT_KMS)
    #[command(subcommand)]
    Vault(vault::VaultCommand),
    /// Connects a client that speaks MCP over standard input and output to a server
    Mcp(McpArgs),
    /// Lists the tools of a server with their arguments or, without one, the stored servers with their tools
    Tools(ToolsArgs),
    /// Prints or writes the entry of a client for a server
    Connect(connect::ConnectArgs),
    /// Calls a tool of a server over MCP, or a skill over A2A, and prints the result
    Call(CallArgs),
    /// Creates, builds, tests and installs plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Prints the script that completes commands and options in a shell
    Completions(CompletionsArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp completions bash > ~/.local/share/bash-completion/completions/asp
  asp completions zsh > ~/.zfunc/_asp                 with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  asp completions fish > ~/.config/fish/completions/asp.fish")]
pub struct CompletionsArgs {
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    pub shell: String,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  asp explain --org acme --user alice --group ops --server demo --primitive echo
  asp explain --org acme --user alice --server demo --primitive echo --arguments '{\"message\": \"hi\"}'
  asp explain --trace 4bf92f3577b34da6a3ce929d0e0e4736 --group ops   a call that was made, by its trace id
  asp explain --token token.txt --server demo --primitive echo       by the claims of a caller's token, `-` for standard input

The answer assumes a caller with exactly the groups, scopes and token given here. The team that runs a server may ask about
its own server; if an org's policy denies the call, the team sees that it does, but not which rule.
Exit code: 0 if the call would be allowed, 1 if not.")]
pub struct ExplainArgs {
    #[arg(long, required_unless_present_any = ["trace", "token"])]
    pub org: Option<String>,
    /// File with the access token of a caller; `-` reads standard input. The control plane evaluates it, and neither logs nor stores
    /// it; it takes the place of org, user, issuer, groups, scopes and wcit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["org", "trace", "user", "machine", "issuer", "groups", "wcit", "scopes"])]
    pub token: Option<PathBuf>,
    /// Recorded call to explain: its trace id, its id, or the id of its token; takes the place of org, user, server, primitive
    /// and protocol, of which those that are given select the call. The log names no groups and scopes
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,
    #[arg(long)]
    pub user: Option<String>,
    /// Machine that calls, instead of a user
    #[arg(long, conflicts_with_all = ["user", "issuer"])]
    pub machine: Option<String>,
    /// Issuer of the user [default: the server's issuer, if only one speaks for the org]
    #[arg(long, value_name = "NAME")]
    pub issuer: Option<String>,
    /// Group of the user; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// Id of the token
    #[arg(long)]
    pub wcit: Option<String>,
    /// Scope of the token; repeat for more
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    #[arg(long, required_unless_present = "trace")]
    pub server: Option<String>,
    /// Id of the primitive, or its name on the server
    #[arg(long, value_name = "ID", required_unless_present = "trace")]
    pub primitive: Option<String>,
    /// Protocol of the call: mcp, a2a or rest [default: mcp, with --trace that of the call]
    #[arg(long)]
    pub protocol: Option<String>,
    /// Arguments of the call, a JSON object, for bindings with conditions on arguments
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Examples:
  asp revoke --org acme --user bob --reason left   all tokens issued to bob until now
  asp revoke --token JTI                           one token
  asp revoke --tokens leaked.txt                   the tokens whose ids the file lists, one a line
  asp revoke --org acme                            all tokens issued to the org until now
  asp revoke --list --org acme                     the revocations of the org that are in force
  asp revoke --lift ID                             lifts a revocation; the output and `asp explain` show its id

Tokens issued after the time shown in the output still work. The output lists the commands that keep bob out: one that denies
him everything, and one for each binding that would still allow him something.")]
pub struct RevokeArgs {
    #[arg(long)]
    pub org: Option<String>,
    #[arg(long)]
    pub user: Option<String>,
    /// Id of the token (jti)
    #[arg(long, value_name = "JTI", conflicts_with_all = ["user", "token_hash"])]
    pub token: Option<String>,
    /// Lower-case hex SHA-256 of the compact token
    #[arg(long, value_name = "HEX", conflicts_with = "user")]
    pub token_hash: Option<String>,
    /// File of token ids, one a line; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "token", "token_hash", "token_hashes"])]
    pub tokens: Option<PathBuf>,
    /// File of token hashes, one a line; `-` reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "token", "token_hash"])]
    pub token_hashes: Option<PathBuf>,
    #[arg(long)]
    pub reason: Option<String>,
    /// Lists the revocations in force, newest first; with --org those of one org
    #[arg(long, conflicts_with_all = ["user", "token", "token_hash", "tokens", "token_hashes", "reason", "lift"])]
    pub list: bool,
    /// Lifts the revocation with this id: the tokens it covers are valid again
    #[arg(long, value_name = "ID", conflicts_with_all = ["org", "user", "token", "token_hash", "tokens", "token_hashes", "reason"])]
    pub lift: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp lint                             every fault and warning in ./primitives
  asp lint primitives/demo/echo.yaml   one file, checked together with the files it refers to")]
pub struct LintArgs {
    /// Directory of primitives, or one file in it
    #[arg(value_name = "PATH", default_value = "primitives")]
    pub path: PathBuf,
    /// Prints JSON
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// Prints SARIF 2.1.0, for code hosts
    #[arg(long)]
    pub sarif: bool,
}

#[derive(Clone, Debug, Args)]
pub struct CompileArgs {
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Compiles this server only
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Prints everything that was compiled, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp apply primitives --dry-run   shows what would change
  asp apply primitives
  asp apply primitives --server tickets

Exit code: 3 if a contract breaks without a new major version.")]
pub struct ApplyArgs {
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Applies this server only
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Shows what would change, without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Applies changes that break callers without a new major version; the audit log records it
    #[arg(long)]
    pub force: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Exit code: 0 if nothing breaks callers, 3 if something does without a new major version. Use it as a gate in a merge pipeline.")]
pub struct DiffArgs {
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Compares this server only
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Prints JSON
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// Prints SARIF 2.1.0, for code hosts: a change that breaks callers is an error, any other a note
    #[arg(long)]
    pub sarif: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct JsonArgs {
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Settings come from environment variables, e.g. ASP_PUBLIC_URL and ASP_DATABASE_URL. `asp config` prints each of them with its
value, source, default and meaning; docs/settings.md lists them too. A port of 0 picks a free one, recorded in ports.json in the
state directory.")]
pub struct ServeArgs {
    /// Roles of this process: control, gateway [default: control,gateway]
    #[arg(long, value_name = "LIST")]
    pub roles: Option<String>,
    /// Development mode: own issuer, loopback origins, no TLS required
    #[arg(long)]
    pub dev: bool,
    /// Also starts Envoy and the sample MCP server (requires --dev)
    #[arg(long)]
    pub stack: bool,
    /// Lets plugins reach private addresses, on any port, under the names that their specs list (requires --stack)
    #[arg(long, requires = "stack")]
    pub allow_private: bool,
    /// Directory of primitives to apply at start
    #[arg(long, value_name = "DIR")]
    pub primitives: Option<PathBuf>,
    /// Address that every listener binds [default: ASP_BIND, else 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub bind: Option<String>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Commands that talk to the admin API use the login if ASP_ADMIN_TOKEN is not set. It is stored in asp/logins.json below
$XDG_CONFIG_HOME or ~/.config.")]
pub struct LoginArgs {
    /// Admin issuer to log in at, if there are several
    #[arg(long, value_name = "NAME")]
    pub issuer: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "asp token --org <ORG> --user <USER> [OPTIONS]\n       asp token --admin --user <USER> [--role <ROLE>] [OPTIONS]\n       asp token --break-glass --user <USER> --reason <TEXT> [--ttl <TTL>]\n       asp token --break-glass --user <USER> --new-key",
    after_help = "\
Examples:
  asp token --org acme --user alice --group ops --ttl 15m
  asp token --admin --user ops --role platform:read
  asp token --break-glass --user ops --reason \"the company's login is down\"

--break-glass is for emergencies in production: anyone who can read the control plane's state directory gets access to the
admin API for at most 15 minutes. Its use and the reason are recorded in the audit log."
)]
pub struct TokenArgs {
    /// Org of the caller; required without --admin and --break-glass
    #[arg(long, required_unless_present_any = ["admin", "break_glass"])]
    pub org: Option<String>,
    /// User that calls
    #[arg(long)]
    pub user: String,
    /// Scope of the token; repeat for more
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// Group of the user; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// Lifetime, e.g. 30s, 15m or 1h: at most 24h, with --break-glass 15m [default: 1h, with --break-glass 15m]
    #[arg(long)]
    pub ttl: Option<String>,
    /// Restricts the token to this server
    #[arg(long, value_name = "NAME", conflicts_with = "admin")]
    pub server: Option<String>,
    /// Mints a token for the admin API
    #[arg(long)]
    pub admin: bool,
    /// Role of an admin token: platform, org:ID, server:NAME or installer; append :read for read access only; or auditor, to read the audit
    #[arg(long, requires = "admin", default_value = "platform")]
    pub role: String,
    /// Mints an emergency token for the admin API
    #[arg(long, conflicts_with_all = ["admin", "org", "server", "scopes", "groups"])]
    pub break_glass: bool,
    /// Reason, recorded in the audit log
    #[arg(long, value_name = "TEXT", requires = "break_glass")]
    pub reason: Option<String>,
    /// Replaces the key of emergency tokens; after a restart the control plane accepts only tokens of the new key
    #[arg(long, requires = "break_glass", conflicts_with_all = ["reason", "ttl"])]
    pub new_key: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests;
