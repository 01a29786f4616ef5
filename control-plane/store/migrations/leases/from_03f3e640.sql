-- From the tables of commit 03f3e640 to those of migration 100, whose row the migrator stores in the same transaction.
DELETE FROM _sqlx_migrations WHERE version < 100;

ALTER TABLE owners ADD COLUMN since_ms BIGINT NOT NULL DEFAULT 0;
