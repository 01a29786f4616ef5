//! The command line of `asp policy`.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

#[derive(Clone, Debug, Default, Args)]
#[command(
    group = clap::ArgGroup::new("binding").args(["allow", "deny", "approval", "remove"]),
    group = clap::ArgGroup::new("change").args(["expose", "hide", "allow", "deny", "approval", "remove"]),
    after_help = "\
Examples:
  asp policy acme                            all of it, as JSON
  asp policy acme --expose demo              the server is there for the org
  asp policy acme --expose demo --protocol rest              the same over REST
  asp policy acme --deny echo --user bob     a binding; --allow for the contrary
  asp policy acme --remove echo --user bob   takes that binding away, as if it had never been set
  asp policy acme --allow cc.pay --user bob --issuer login      bob of that issuer, and no other bob
  asp policy acme --allow cc.pay --machine press-7              a machine; no --user is ever one
  asp policy acme --deny cc.pay --when /currency in USD EUR --when /amount range 1000.. --name large
  asp policy newcomer --hide demo --force    for an org that has not called yet
  asp policy acme --approval cc.pay --group clerks --when /note glob '*urgent*' --observe

A test of --when is one of
  equals VALUE        this string, number, boolean or null
  in VALUE...         one of these
  glob TEXT           a string that fits; * stands for any text
  range MIN..MAX      a number from MIN to MAX, both included; one may be left out. Below zero a MIN has a space
                      before it: ' -5..5'
A VALUE that reads as JSON is what it reads as: 5, true, null, and \"5\" for the text. Every other one is a text."
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
    /// Allows a primitive: an id, `prefix*` or `*`
    #[arg(long, value_name = "ID")]
    pub allow: Option<String>,
    /// Denies a primitive: an id, `prefix*` or `*`
    #[arg(long, value_name = "ID")]
    pub deny: Option<String>,
    /// Has a person approve the calls of a primitive that --when is about: an id, `prefix*` or `*`
    #[arg(long, value_name = "ID", requires = "when")]
    pub approval: Option<String>,
    /// Removes the binding of a primitive that these options set: an id, `prefix*` or `*`
    #[arg(long, value_name = "ID", conflicts_with_all = ["when", "observe", "force"])]
    pub remove: Option<String>,
    /// User --allow, --deny, --approval and --remove are about [default: all users and all machines]
    #[arg(long, conflicts_with_all = ["machine", "group", "wcit"])]
    pub user: Option<String>,
    /// A machine instead of a user
    #[arg(long, conflicts_with_all = ["group", "wcit", "issuer"])]
    pub machine: Option<String>,
    /// A group instead of a user
    #[arg(long, conflicts_with = "wcit")]
    pub group: Option<String>,
    /// A token's id instead of a user
    #[arg(long)]
    pub wcit: Option<String>,
    /// Protocol the change is about: mcp, rest or a2a, which is not served yet [default: every protocol; mcp for --expose and --hide]
    #[arg(long, value_name = "PROTOCOL", requires = "change")]
    pub protocol: Option<String>,
    /// Issuer of the user, group or token, or '*' for every issuer. --allow needs it where several issuers speak for the org
    /// [default: every issuer]
    #[arg(long, value_name = "NAME", requires = "binding")]
    pub issuer: Option<String>,
    #[command(flatten)]
    pub when: Conditions,
    /// Counts and shows what the binding would do, and does not enforce it
    #[arg(long, requires = "binding")]
    pub observe: bool,
    /// Tells bindings of one target and primitive apart
    #[arg(long, value_name = "NAME", requires = "binding")]
    pub name: Option<String>,
    /// Stores names that no org, server, primitive or issuer has
    #[arg(long, requires = "change")]
    pub force: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// What bindings ask of arguments: each `--when` with its words.
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
            .help("The binding counts where an argument of the call fulfils this test; repeat for more, all of them count");
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
