//! Arguments of `asp audit`.

use clap::Args;

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "\
Examples:
  asp audit --org acme --user alice --since 2h
  asp audit --org acme --since yesterday --until today --outcome denied
  asp audit --server shop --outcome failed --limit 20
  asp audit --server shop --follow
  asp audit --org acme --since 24h --by primitive      how often each primitive was called
  asp audit --since 2026-01-01 --until 2026-02-01 --export > january.ndjson
  asp audit --changes --user ops --since 7d
  asp audit --trace 4bf92f3577b34da6a3ce929d0e0e4736")]
pub struct AuditArgs {
    /// Shows only events of this org
    #[arg(long)]
    pub org: Option<String>,
    /// Shows only calls of this user or machine; with --changes, those by this admin
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Shows only calls of this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// Shows only calls of this primitive, in every version or, as ID@VERSION, in one; the name that clients see is accepted too
    #[arg(long, value_name = "ID")]
    pub primitive: Option<String>,
    /// Shows only ends of calls with this outcome or reason: completed, rejected, failed, cancelled, unknown, denied, deadline, rate_limited, …
    #[arg(long, value_name = "WORD")]
    pub outcome: Option<String>,
    /// Shows only ends of calls with this reason
    #[arg(long, value_name = "WORD")]
    pub reason: Option<String>,
    /// Shows only events since this time (RFC 3339 or a date), or of the last 30s, 15m, 2h or 7d; today and yesterday begin at midnight UTC
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Shows only events before this time, in the forms of --since
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Shows only calls with this trace: `traceId` in the client's error
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,
    /// Counts the calls that ended by this, instead of listing events
    #[arg(long, value_name = "WHAT", value_parser = ["org", "user", "server", "primitive", "outcome", "reason"], conflicts_with = "limit")]
    pub by: Option<String>,
    /// Number of events
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Shows only events before this one: the number at the start of a line
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with_all = ["user", "server", "primitive", "outcome", "reason", "since", "until", "trace", "by", "follow", "export", "approvals"])]
    pub before: Option<i64>,
    /// Shows the latest events, and then each new one
    #[arg(long, conflicts_with_all = ["by", "until", "changes", "approvals", "export"])]
    pub follow: bool,
    /// Prints every event of the time from --since on as a line of JSON, oldest first
    #[arg(long, requires = "since", conflicts_with_all = ["by", "limit", "changes", "approvals"])]
    pub export: bool,
    /// Shows changes by admins instead of calls
    #[arg(long, conflicts_with_all = ["server", "primitive", "outcome", "reason", "trace", "by", "approvals"])]
    pub changes: bool,
    /// Shows approvals instead of calls: requested, decided, used and expired
    #[arg(long, conflicts_with = "by")]
    pub approvals: bool,
    /// Prints JSON, one event a line
    #[arg(long)]
    pub json: bool,
}
