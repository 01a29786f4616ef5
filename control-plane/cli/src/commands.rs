//! The commands: each is a module with a `run` function; this module maps its outcome to the exit code.

mod answer;
pub mod apply;
pub mod approvals;
pub mod audit;
mod binding;
pub mod blocks;
pub mod call;
pub mod client;
pub mod compile;
pub mod completions;
pub mod config;
pub mod connect;
pub mod db;
pub mod deploy;
pub mod dev;
mod device_login;
pub mod explain;
mod hidden_input;
pub mod history;
pub mod issuer;
pub mod kafka;
mod known;
pub mod links;
pub mod lint;
pub mod live;
pub mod login;
pub mod machines;
pub mod mcp;
mod next_call;
pub mod orgs;
pub mod placement;
pub mod plugin;
pub mod policy;
pub mod push;
pub mod sarif;
pub mod server_access;
pub mod servers;
mod specs;
pub mod status;
pub mod stored_login;
pub mod token;
pub mod tools;
pub mod upgrade;
pub mod usage;
pub mod vault;

use std::process::ExitCode;

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::{EXIT_BAD_CONFIGURATION, Failure};
use asp_command::print;

use crate::args::Command;
use crate::settings::credentials;

/// `asp diff` and `asp apply` found a contract that breaks without a new major version.
const EXIT_BREAKING: u8 = 3;

/// Offset that shells add to a signal's number for the exit code.
const EXIT_SIGNALLED: u8 = 128;

/// Runs a command and returns its exit code.
pub fn run(command: Command) -> ExitCode {
    match perform(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Configuration(faults)) => {
            for fault in faults {
                print::error(&fault.to_string());
            }
            ExitCode::from(EXIT_BAD_CONFIGURATION)
        }
        Err(Failure::Refused) => ExitCode::FAILURE,
        Err(Failure::Breaking) => ExitCode::from(EXIT_BREAKING),
        Err(Failure::Signalled(number)) => ExitCode::from(EXIT_SIGNALLED.saturating_add(number)),
        Err(Failure::Other(error)) => {
            print::error(&print::in_full(&error));
            ExitCode::FAILURE
        }
    }
}

fn perform(command: Command) -> Result<(), Failure> {
    match command {
        Command::Dev(args) => dev::run(&args),
        Command::Serve(args) => crate::serve::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Login(args) => login::run(&args),
        Command::Issuer(command) => issuer::run(&command),
        Command::Lint(args) => lint::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Db(command) => db::run(&command),
        Command::Diff(args) => apply::diff(&args),
        Command::Deploy(args) => deploy::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Orgs(args) => orgs::run(&args),
        Command::Policy(args) => policy::policy(&args),
        Command::Limits(args) => policy::limits::run(&args),
        Command::Revoke(args) => policy::revoke(&args),
        Command::Block(command) => blocks::block(&command),
        Command::Unblock(command) => blocks::unblock(&command),
        Command::History(args) => history::history(&args),
        Command::Undo(args) => history::undo(&args),
        Command::Machines(command) => machines::run(&command),
        Command::Mcp(args) => mcp::run(&args),
        Command::Tools(args) => tools::run(&args),
        Command::Call(args) => call::run(&args),
        Command::Connect(args) => connect::run(&args),
        Command::Import(args) => asp_import::run(&args, &|| {
            credentials::from_environment(&ProcessEnvironment).map_err(Failure::Configuration)
        }),
        Command::Plugin(command) => plugin::run(&command),
        Command::Push(command) => push::run(&command),
        Command::Kafka(command) => kafka::run(&command),
        Command::Approvals(command) => approvals::run(&command),
        Command::Links(command) => links::run(&command),
        Command::LinkProvider(command) => links::run_provider(&command),
        Command::Artifacts(command) => placement::artifacts(&command),
        Command::Regions(command) => placement::regions(&command),
        Command::Routes(command) => placement::routes(&command),
        Command::Runtimes(args) => status::runtimes(&args),
        Command::Servers(command) => servers::run(&command),
        Command::Status(args) => status::run(&args),
        Command::Upgrade(command) => upgrade::run(&command),
        Command::Vault(command) => vault::run(&command),
        Command::Usage(args) => usage::run(&args),
        Command::Calls(args) => live::calls(&args),
        Command::Sessions(args) => live::sessions(&args),
    }
}
