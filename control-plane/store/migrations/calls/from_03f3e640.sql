-- From the tables of commit 03f3e640 to those of migration 100, whose row the migrator stores in the same transaction.
DELETE FROM _sqlx_migrations WHERE version < 100;

CREATE INDEX active_calls_of_owner ON active_calls (owner, expires_ms, call_id, resumable) WHERE owner IS NOT NULL AND resumable = 1;
DROP INDEX active_calls_going;
