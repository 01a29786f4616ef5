//! Audit records of changes, and the query for them.

use serde::Serialize;

/// A change that took place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditRecord {
    pub revision: u64,
    /// Unix milliseconds.
    pub at: u64,
    pub actor: String,
    /// e.g. `server.put`
    pub action: String,
    /// e.g. `server/demo`
    pub resource: String,
    /// Empty for changes that belong to no org.
    pub org: String,
    pub detail: String,
    /// Whether it has what an undo needs.
    pub undoable: bool,
}

/// A change of something stored elsewhere, for the audit.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// e.g. `artifact.put`
    pub action: &'a str,
    /// e.g. `artifact/<digest>`
    pub resource: &'a str,
    /// Empty for changes that belong to no org.
    pub org: &'a str,
    pub detail: &'a str,
}

/// Selects audit records, newest first.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    pub org: Option<String>,
    /// Only records of resources whose names start with one of these; any if there is none.
    pub resources: &'static [&'static str],
    /// Only records of a lower revision: the next page.
    pub before: Option<u64>,
    /// 1 to 1000.
    pub limit: u32,
    /// Only records of this actor: a name in any scope, or a name and scope (`NAME@SCOPE`).
    pub actor: Option<String>,
    /// Only records with this action.
    pub action: Option<String>,
    /// Only records at or after this time, in Unix milliseconds.
    pub from: Option<i64>,
    /// Only records before this time, in Unix milliseconds.
    pub to: Option<i64>,
}
