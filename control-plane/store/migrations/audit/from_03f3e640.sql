-- The tables of commit 03f3e640 are those of migration 100, whose row the migrator stores in the same transaction.
DELETE FROM _sqlx_migrations WHERE version < 100;
