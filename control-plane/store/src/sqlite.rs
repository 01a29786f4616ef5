//! Durable state of one machine, in SQLite files that several processes may share.
//!
//! Owns the files of calls ([`SqliteCalls`]), of the audit log ([`SqliteAudit`]), of events that wait for another log
//! ([`SpooledAudit`]) and of the control plane. Keeps true: each file is accessible to its owner only.

mod audit;
mod calls;
mod control;
mod file;
mod leases;
mod quotas;
mod spool;

pub use audit::SqliteAudit;
pub use calls::SqliteCalls;
pub use file::OpenError;
pub use spool::SpooledAudit;

/// Maximum rows that one statement deletes from the file of calls; it holds the writer for a few milliseconds.
const SWEEP_ROWS: i64 = 200;

/// Result of opening or sweeping a file.
type Result<T, E = OpenError> = std::result::Result<T, E>;
