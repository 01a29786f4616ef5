//! Migrations as the backends carry them: number, name and statements, oldest first. A published one is never edited.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// Number, name, statements.
pub(crate) type Numbered = (i64, &'static str, &'static str);

/// What brings a schema up to date, and refuses one with a migration that is none of these.
pub(crate) fn migrator(migrations: &[Numbered]) -> Migrator {
    let migration = |(version, name, sql): &Numbered| {
        Migration::new(*version, (*name).into(), MigrationType::Simple, (*sql).into_sql_str(), false)
    };
    Migrator::with_migrations(migrations.iter().map(migration).collect())
}
