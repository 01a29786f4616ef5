//! The command line of `asp history` and `asp undo`.

use clap::Args;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp history --org acme                 every change in acme, with its number
  asp history --org acme --kind binding  who allowed or denied what
  asp history --actor ops --since 7d     what ops changed in the last week
  asp undo 17                            undoes change 17, after it has shown who gains or loses access

A line with `no undo` has nothing to undo it with. A server is rolled back instead: `asp servers versions SERVER`.")]
pub struct HistoryArgs {
    /// Shows only changes of this org
    #[arg(long)]
    pub org: Option<String>,
    /// Shows only changes of one kind
    #[arg(long, value_name = "KIND", value_parser = ["binding", "exposure", "limit", "offer", "revocation", "server", "machine", "issuer"])]
    pub kind: Option<String>,
    /// Shows only changes by this admin: its name, or its name with its role as in `ops@acme`
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Shows only changes since a time, or of an age: 2h, 7d or 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Shows only changes before a time, or older than an age
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Number of changes
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Shows only changes before this one: the number at the start of a line
    #[arg(long, value_name = "CHANGE")]
    pub before: Option<u64>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp undo 17 --dry-run           shows what the undo would do, and who would gain or lose access
  asp undo 17                     asks before it undoes the change
  asp undo 17 --yes               for scripts
  asp undo 18 --restore-access    lifts the revocation that change 18 made: its tokens are valid again until they expire

An undo is a change itself: `asp history` shows it, and it can be undone. It is refused if a later change touched the same
binding, exposure, limit, offer or revocation. The undo of a lifted revocation revokes again, all tokens issued until now.

Exit code: 1 if the answer to the question is no.")]
pub struct UndoArgs {
    /// Number of the change, as `asp history` shows it
    #[arg(value_name = "CHANGE")]
    pub change: u64,
    /// Undoes without asking
    #[arg(long)]
    pub yes: bool,
    /// Shows what would change, without changing anything
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Lets revoked tokens become valid again; required to undo a revocation
    #[arg(long)]
    pub restore_access: bool,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
}
