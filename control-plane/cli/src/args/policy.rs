//! The command line of `asp policy`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

#[derive(Clone, Debug, Default, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    group = clap::ArgGroup::new("binding").args(["allow", "deny", "approval", "remove"]),
    group = clap::ArgGroup::new("change").args(["expose", "hide", "reset", "allow", "deny", "approval", "remove"]),
    after_help = "\
Examples:
  asp policy acme                            shows the whole policy as JSON
  asp policy acme --expose demo              shows the server to the org
  asp policy acme --expose demo --protocol rest              the same over REST
  asp policy acme --reset demo               removes what --expose or --hide set: the server's own default applies again
  asp policy acme --deny echo --user bob     denies it to bob; --allow allows it
  asp policy acme --deny echo --user bob --dry-run           which recorded calls that would refuse
  asp policy acme --remove echo --user bob   removes that binding, as if it had never been set
  asp policy acme --allow cc.pay --user bob --issuer login      only that issuer's bob
  asp policy acme --allow cc.pay --machine press-7              a machine; --user never matches one
  asp policy acme --deny cc.pay --when /currency in USD EUR --when /amount range 1000.. --name large
  asp policy newcomer --hide demo --force    for an org that the platform has no record of
  asp policy acme --approval cc.pay --group clerks --when /note glob '*urgent*' --observe
  asp policy acme --approval cc.pay --by finance                another person of the group approves each call

A test of --when is one of
  equals VALUE        this string, number, boolean or null
  in VALUE...         one of these values
  glob TEXT           a string that matches; * stands for any text
  range MIN..MAX      a number from MIN to MAX, both included; either may be omitted. Put a space before a
                      negative MIN: ' -5..5'
  not-in VALUE...     none of these values, or missing: with --deny, only these are allowed
  not-glob TEXT       no string that matches, or missing
A VALUE that parses as JSON has its JSON type: 5, true, null, or \"5\" for the string. Any other VALUE is a string."
)]
pub struct PolicyArgs {
    #[command(subcommand)]
    pub command: Option<PolicyCommand>,
    #[arg(value_name = "ORG", default_value = "", hide_default_value = true)]
    pub org: String,
    /// Shows a server to the org
    #[arg(long, value_name = "SERVER", conflicts_with_all = ["hide", "binding"])]
    pub expose: Option<String>,
    /// Hides a server from the org
    #[arg(long, value_name = "SERVER", conflicts_with = "binding")]
    pub hide: Option<String>,
    /// Removes the exception that --expose or --hide set for a server, so that the server's own default applies
    #[arg(long, value_name = "SERVER", conflicts_with = "force")]
    pub reset: Option<String>,
    /// Allows a primitive: an id, `prefix*` or `*`
    #[arg(long, value_name = "ID")]
    pub allow: Option<String>,
    /// Denies a primitive: an id, `prefix*` or `*`
    #[arg(long, value_name = "ID")]
    pub deny: Option<String>,
    /// Requires a person's approval for calls, with --when only for those that match: the primitive's id, `prefix*` or `*`
    #[arg(long, value_name = "ID")]
    pub approval: Option<String>,
    /// Group of which another person approves the calls [default: the caller approves]
    #[arg(long, value_name = "GROUP", requires = "approval")]
    pub by: Option<String>,
    /// Issuer of the group that --by names, or '*' for every issuer [default: the caller's]
    #[arg(long, value_name = "NAME", requires = "by")]
    pub by_issuer: Option<String>,
    /// Removes the binding that the same options would set: the primitive's id, `prefix*` or `*`
    #[arg(long, value_name = "ID", conflicts_with_all = ["when", "observe", "force"])]
    pub remove: Option<String>,
    /// User the binding applies to [default: all users and machines]
    #[arg(long, conflicts_with_all = ["machine", "group", "wcit"])]
    pub user: Option<String>,
    /// Machine the binding applies to
    #[arg(long, conflicts_with_all = ["group", "wcit", "issuer"])]
    pub machine: Option<String>,
    /// Group the binding applies to
    #[arg(long, conflicts_with = "wcit")]
    pub group: Option<String>,
    /// Id of the token the binding applies to
    #[arg(long)]
    pub wcit: Option<String>,
    /// Protocol the change applies to: mcp, a2a or rest [default: every protocol; mcp for --expose, --hide and --reset]
    #[arg(long, value_name = "PROTOCOL", requires = "change")]
    pub protocol: Option<String>,
    /// Issuer of the user, group or token, or '*' for every issuer; required for --allow if several issuers speak for the org
    /// [default: every issuer]
    #[arg(long, value_name = "NAME", requires = "binding")]
    pub issuer: Option<String>,
    #[command(flatten)]
    pub when: Conditions,
    /// Counts and shows what the binding would do, without enforcing it
    #[arg(long, requires = "binding")]
    pub observe: bool,
    /// Name of the binding, to have several for the same target and primitive
    #[arg(long, value_name = "NAME", requires = "binding")]
    pub name: Option<String>,
    /// Stores names even if no such org, server, primitive or issuer exists
    #[arg(long, requires = "change")]
    pub force: bool,
    /// Shows which recorded calls the change would refuse or admit, and stores nothing
    #[arg(long, requires = "change", conflicts_with_all = ["reset", "remove", "force"])]
    pub dry_run: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum PolicyCommand {
    /// Compares files with the stored policy, and shows which recorded calls they would refuse or admit
    Diff(DiffPolicyArgs),
    /// Stores the policy in a directory of files, after it has shown what changes
    Apply(ApplyPolicyArgs),
    /// Writes the policy of orgs into files
    Export(ExportPolicyArgs),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp policy diff policy            every file of the directory
  asp policy diff policy/acme.yaml

A call is named if the files would decide it otherwise than the stored policy, whatever its caller's groups and its arguments were:
the audit log has neither. At most 10,000 calls of an org are replayed, the newest ones.")]
pub struct DiffPolicyArgs {
    /// Directory of files, or one file
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp policy apply policy --dry-run   shows what would change
  asp policy apply policy             asks before it stores it
  asp policy apply policy --yes       for scripts

Each file has an `org` and any of the lists `exposure`, `bindings` and `limits`, in the form of the admin API; a limit may be a
line, as in `asp limits add`. A list replaces the stored one. A list that is left out stays as it is.")]
pub struct ApplyPolicyArgs {
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Shows what would change, without changing anything
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Stores it without asking
    #[arg(long)]
    pub yes: bool,
    /// Stores names even if no such org, server, primitive or issuer exists
    #[arg(long)]
    pub force: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  asp policy export policy acme globex   writes policy/acme.yaml and policy/globex.yaml")]
pub struct ExportPolicyArgs {
    /// Directory to write to; existing files of these orgs are replaced
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[arg(value_name = "ORG", required = true)]
    pub orgs: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

/// Conditions of a binding on arguments: the words of each `--when`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(pub Vec<Vec<String>>);

const WHEN: &str = "when";

impl Args for Conditions {
    fn augment_args(command: Command) -> Command {
        let when = Arg::new(WHEN)
            .long(WHEN)
            .value_names(["POINTER", "TEST", "VALUE"])
            .num_args(3..)
            .action(ArgAction::Append)
            .allow_negative_numbers(true)
            .requires("binding")
            .help("Condition on an argument of the call: the binding applies only if it holds; repeat to require several");
        command.arg(when)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Conditions::augment_args(command)
    }
}

impl FromArgMatches for Conditions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Conditions, Error> {
        let all = matches.try_get_occurrences::<String>(WHEN);
        let all = all.map_err(|error| Error::raw(ErrorKind::InvalidValue, error.to_string()))?;
        Ok(Conditions(all.into_iter().flatten().map(|words| words.cloned().collect()).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Conditions::from_arg_matches(matches)?;
        Ok(())
    }
}
