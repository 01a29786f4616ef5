//! Reports of gateways and requests of admins in the file of the audit log.

use super::SqliteAudit;
use crate::live::sql::live_store;

live_store!(SqliteAudit, sqlite, write, read, "BEGIN IMMEDIATE");
