-- From the tables of commit 03f3e640 to those of migration 1100, whose row the migrator stores in the same transaction.
DELETE FROM _sqlx_migrations WHERE version > 1000 AND version < 1100;

CREATE INDEX call_records_of_owner ON call_records (owner, expires_ms, call_id) WHERE owner IS NOT NULL AND resumable;
DROP INDEX call_records_going;
ALTER TABLE gateways ADD COLUMN since_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE gateways ADD COLUMN held BOOLEAN NOT NULL DEFAULT TRUE;
