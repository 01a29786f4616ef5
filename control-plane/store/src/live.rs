//! Running calls and open sessions as gateways last reported them, and requests of admins to end one.
//!
//! Keeps true: the report of a gateway that is gone expires; at most [`MAX_REPORTED`] calls and as many sessions of a gateway are
//! kept, and [`MAX_STOPS`] requests of an org; a request names its org, and a gateway ends nothing of another one.

use std::time::Duration;

use async_trait::async_trait;

use crate::columns::Columns;

pub(crate) mod sql;
/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;

/// Maximum number of calls and of sessions in a report.
pub const MAX_REPORTED: usize = 1_000;
/// Maximum number of requests of an org that have not expired.
pub const MAX_STOPS: i64 = 1_000;
/// Maximum number of entries in an answer.
pub const MAX_LISTED: u32 = 1_000;
/// Time in which requests are read again, however late their reader is: they may be stored later than their times say.
pub const STOPS_OVERLAP: Duration = Duration::from_secs(10);
/// Lifetime of a report: several of its intervals.
pub const REPORT_LASTS: Duration = Duration::from_secs(30);
/// Lifetime of a request to cancel a call.
pub const CANCEL_LASTS: Duration = Duration::from_secs(600);
/// Lifetime of a request to end a session, which is the longest of a session's id.
pub const END_LASTS: Duration = Duration::from_secs(24 * 3600);

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LiveKind {
    Call,
    Session,
}

impl LiveKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            LiveKind::Call => "call",
            LiveKind::Session => "session",
        }
    }

    const fn stop_lasts(self) -> Duration {
        match self {
            LiveKind::Call => CANCEL_LASTS,
            LiveKind::Session => END_LASTS,
        }
    }
}

/// A running call or an open session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveWork {
    pub kind: LiveKind,
    pub id: String,
    pub org: String,
    pub user: String,
    /// Name of the user's issuer in the snapshot.
    pub issuer: String,
    pub server: String,
    /// `id@version` of a call's primitive; empty for a session.
    pub primitive: String,
    pub protocol: String,
    /// State of a call; empty for a session.
    pub state: String,
    /// Start in Unix milliseconds.
    pub since_ms: i64,
}

/// Selection of work.
#[derive(Clone, Debug)]
pub struct LiveQuery {
    pub kind: LiveKind,
    pub org: Option<String>,
    pub user: Option<String>,
    pub server: Option<String>,
    /// Id of the primitive with or without its version.
    pub primitive: Option<String>,
    /// Only this call or session.
    pub id: Option<String>,
    /// 1 to [`MAX_LISTED`]; values outside are clamped.
    pub limit: u32,
}

/// A request to end a call or a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRequest {
    pub kind: LiveKind,
    pub id: String,
    pub org: String,
    /// Time of the request by the database's clock, in Unix milliseconds.
    pub at_ms: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error("running calls and sessions are not available: {0}")]
    Failed(String),
    #[error("the org has too many requests to end calls or sessions")]
    TooMany,
}

from_failure!(sqlx::Error => LiveError::Failed);

/// Reads work from a row of any database.
pub(crate) fn read_work(row: &impl Columns) -> sqlx::Result<LiveWork> {
    Ok(LiveWork {
        kind: read_kind(row)?,
        id: row.text("id")?,
        org: row.text("org")?,
        user: row.text("user_name")?,
        issuer: row.text("issuer")?,
        server: row.text("server")?,
        primitive: row.text("primitive")?,
        protocol: row.text("protocol")?,
        state: row.text("state")?,
        since_ms: row.number("since_ms")?,
    })
}

/// Reads a request from a row of any database.
pub(crate) fn read_stop(row: &impl Columns) -> sqlx::Result<StopRequest> {
    let id = row.text("id")?;
    let org = row.text("org")?;
    Ok(StopRequest { kind: read_kind(row)?, id, org, at_ms: row.number("at_ms")? })
}

fn read_kind(row: &impl Columns) -> sqlx::Result<LiveKind> {
    Ok(if row.text("kind")? == LiveKind::Call.as_str() { LiveKind::Call } else { LiveKind::Session })
}

/// Store of reports and requests.
#[async_trait]
pub trait LiveStore: Send + Sync {
    /// Replaces the report of one run of a gateway.
    async fn report_live(&self, writer: [u8; 16], work: &[LiveWork]) -> Result<(), LiveError>;

    /// Returns work of all gateways, the longest running first.
    async fn live(&self, query: &LiveQuery) -> Result<Vec<LiveWork>, LiveError>;

    /// Stores a request; it stands once it is stored, whether or not the work is known.
    async fn request_stop(&self, kind: LiveKind, id: &str, org: &str) -> Result<(), LiveError>;

    /// Returns the requests that were stored after `after_ms` or in the last [`STOPS_OVERLAP`], oldest first, at most
    /// [`MAX_LISTED`]; those after `last`, the last one of a full page, continue it. A time of the future, which a clock that
    /// went back leaves behind, hides none.
    async fn stop_requests(
        &self,
        after_ms: i64,
        last: Option<&StopRequest>,
    ) -> Result<Vec<StopRequest>, LiveError>;

    /// Deletes expired reports and requests.
    async fn sweep_live(&self) -> Result<(), LiveError>;
}
