//! The command line of `asp limits`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  asp limits add acme '60/min for each user on shop.*'   adds a limit; `asp limits add --help` shows all that a line can hold
  asp limits acme                                        the limits of the org
  asp limits acme --usage                                who used them in the last day, and whom each would have refused
  asp limits acme --remove 2                             removes the second of them
  asp limits '*'                                         the limits of all orgs together, which the platform's admins write

Example of a file:
  - {selector: {user: each}, policy: {capacity: 20, refill: 5/s}}                 20 at once, then 5 a second, for each user
  - {selector: {primitive: cc.pay, user: \"*\"}, policy: {capacity: 100, refill: 1/s}}  one bucket for all users together

  - {selector: {machine: each}, policy: {capacity: 5, refill: 1/s}}               for each machine; `user` never matches one
  - {selector: {user: bob, issuer: login}, policy: {capacity: 5, refill: 1/s}}    only that issuer's bob
  - {selector: {user: each}, policy: {type: fixed-window, capacity: 1000, window: 1d}}  a budget of a day for each user
  - {selector: {group: interns}, policy: {type: concurrency, capacity: 3}}        3 running calls of the group

A selector has the fields server, primitive, user, machine, wcit (a token's id), issuer and group; a missing field is `*`. `each` as
user, machine or wcit gives each of them its own bucket. The same user or token id from two issuers counts as two."
)]
pub struct LimitsArgs {
    #[command(subcommand)]
    pub command: Option<LimitsCommand>,
    #[arg(value_name = "ORG", required = true)]
    pub org: Option<String>,
    /// Replaces all limits of the org with those in a YAML or JSON file; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub put: Option<PathBuf>,
    /// Removes one limit: its place in the list, from 1
    #[arg(long, value_name = "NUMBER", conflicts_with = "put")]
    pub remove: Option<usize>,
    /// Counts the calls of the last day by each limit, and those that it would have refused
    #[arg(long, conflicts_with_all = ["put", "remove"])]
    pub usage: bool,
    /// Stores names even if no such org, server, primitive or issuer exists
    #[arg(long, requires = "put")]
    pub force: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum LimitsCommand {
    /// Adds a rate limit, written in one line
    Add(AddLimitArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp limits add acme '60/min'                                  each user, whatever the user calls
  asp limits add acme '60/min' --dry-run                        whom that would have refused in the last day
  asp limits add acme '60/min for each user on shop.*'          each user, over all primitives with this prefix together
  asp limits add acme '5/s for each token at shop burst 20'     each token at one server, up to 20 calls at once
  asp limits add acme '1000/h for everyone on pay'              all callers of the org together
  asp limits add acme '10/s for user \"Ann B\" from login'        one user, of one issuer
  asp limits add acme '1000/day in interns'                     a budget of a day for each user of a group
  asp limits add acme 'at most 5 at once on report'             calls that run at the same time
  asp limits add '*' '5000/s for everyone at shop'              all orgs together

A limit is a rate (a whole number per s, min, h or day), or `at most COUNT at once`, and then, in any order:
  for each user|machine|token, for user|machine|token NAME, for everyone   [default: for each user]
  on PRIMITIVE   an id, an exposed name or prefix*                         [default: every primitive]
  at SERVER      [default: every server]
  from ISSUER    [default: every issuer]
  in GROUP       [default: every group]
  window fixed|sliding   counts the calls of each unit of the rate, or of any period of its length; a day is fixed
  burst COUNT    calls that a caller may make at once                      [default: the number of the rate]
  observed       the limit counts calls and refuses none
Quotation marks keep a name with spaces together. A new limit begins full. The answer says which callers of the last day the limit
would have refused.")]
pub struct AddLimitArgs {
    #[arg(value_name = "ORG")]
    pub org: String,
    /// The limit in one line
    #[arg(value_name = "LIMIT")]
    pub limit: String,
    /// Shows which callers of the last day the limit would have refused, and stores nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Stores names even if no such org, server, primitive or issuer exists
    #[arg(long, conflicts_with = "dry_run")]
    pub force: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(words: &[&str]) -> Result<LimitsArgs, String> {
        let words = ["asp", "limits"].iter().chain(words);
        match Cli::try_parse_from(words).map_err(|fault| fault.to_string())?.command {
            Command::Limits(args) => Ok(args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_limit_is_added_by_its_own_command_and_an_org_is_required_otherwise() {
        let shown = parse(&["acme", "--remove", "2"]).unwrap();
        assert_eq!((shown.org.as_deref(), shown.remove), (Some("acme"), Some(2)));
        let added = parse(&["add", "acme", "60/min for each user", "--force"]).unwrap();
        let LimitsCommand::Add(added) = added.command.unwrap();
        assert_eq!((added.org.as_str(), added.limit.as_str()), ("acme", "60/min for each user"));
        assert!(added.force && !added.json);
        assert!(parse(&[]).unwrap_err().contains("<ORG>"));
        assert!(parse(&["add", "acme"]).unwrap_err().contains("<LIMIT>"));
        assert!(parse(&["acme", "--usage"]).unwrap().usage);
        assert!(parse(&["acme", "--usage", "--remove", "1"]).is_err());
        assert!(parse(&["--put", "list.yaml", "add", "acme", "1/s"]).is_err());
        assert_eq!(parse(&["--", "add"]).unwrap().org.as_deref(), Some("add"), "an org of this name");
    }
}
