//! Reports of gateways and requests of admins in PostgreSQL.

use super::PostgresAudit;
use crate::live::sql::live_store;

live_store!(PostgresAudit, postgres, pool, pool, "BEGIN");
