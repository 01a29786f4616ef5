//! The command line of `asp policy`.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

#[derive(Clone, Debug, Default, Args)]
#[command(
    group = clap::ArgGroup::new("binding").args(["allow", "deny", "approval", "remove"]),
    group = clap::ArgGroup::new("change").args(["expose", "hide", "reset", "allow", "deny", "approval", "remove"]),
    after_help = "\
Examples:
  asp policy acme                            shows the whole policy as JSON
  asp policy acme --expose demo              shows the server to the org
  asp policy acme --expose demo --protocol rest              the same over REST
  asp policy acme --reset demo               removes what --expose or --hide set: the server's own default applies again
  asp policy acme --deny echo --user bob     denies it to bob; --allow allows it
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
    #[arg(value_name = "ORG")]
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
