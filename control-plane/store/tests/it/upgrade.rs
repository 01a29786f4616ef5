//! Upgrade of databases of commit 03f3e640 to the current tables with every row; those of other unreleased versions are
//! refused unchanged.

use std::path::{Path, PathBuf};
use std::time::Duration;

use asp_e2e::stores::Postgres as Server;
use asp_e2e::wait;
use asp_store::control::sql::ControlStore;
use asp_store::ledger::{Claim, Holder, Ledger, LedgerKey, LedgerRequest};
use asp_store::postgres::{ConnectError, Postgres, SchemaError};
use asp_store::records::{CallRecords, Orphan, OwnerId};
use asp_store::sqlite::{SqliteAudit, SqliteCalls};
use bytes::Bytes;
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, PgPool, Row, SqlitePool};
use tokio::time::Instant;

/// Files of SQLite's stores.
const FILES: [(&str, &str); 4] =
    [("control", "asp.db"), ("calls", "calls.db"), ("leases", "calls-leases.db"), ("audit", "audit.db")];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/03f3e640")
}

async fn migrations(store: &str) -> Migrator {
    Migrator::new(data().join(store)).await.unwrap()
}

fn rows_of(store: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(std::fs::read_to_string(data().join("rows").join(format!("{store}.sql"))).unwrap())
}

async fn file(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    SqlitePool::connect_with(options).await.unwrap()
}

/// Creates the files of commit 03f3e640, with rows.
async fn earlier(directory: &Path) {
    for (store, name) in FILES {
        let pool = file(&directory.join(name)).await;
        migrations(store).await.run(&pool).await.unwrap();
        sqlx::raw_sql(rows_of(store)).execute(&pool).await.unwrap();
        pool.close().await;
    }
}

/// Opens every store once, like a starting process.
async fn start(directory: &Path) {
    ControlStore::file(&directory.join("asp.db")).await.unwrap().close().await;
    SqliteCalls::open(&directory.join("calls.db")).await.unwrap().close().await;
    SqliteAudit::open(&directory.join("audit.db"), 1 << 30).await.unwrap().close().await;
}

async fn lines(pool: &SqlitePool, statement: String) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(statement)).fetch_all(pool).await.unwrap()
}

/// Returns the schema that governs rows: columns, keys, indexes and triggers.
async fn schema(pool: &SqlitePool) -> Vec<String> {
    let columns = "SELECT group_concat(c.cid || ' ' || c.name || ' ' || c.type || ' ' || c.\"notnull\" || ' ' \
         || COALESCE(c.dflt_value, 'NULL') || ' ' || c.pk, ', ') FROM pragma_table_xinfo(s.name) c";
    let indexed = "SELECT group_concat(c.name, ', ') FROM pragma_index_info(s.name) c";
    let statement = format!(
        "SELECT s.type || ' ' || s.name || ' on ' || s.tbl_name || ': ' || CASE s.type \
           WHEN 'table' THEN ({columns}) \
           WHEN 'index' THEN ({indexed}) || ' ' || COALESCE(s.sql, '') \
           ELSE s.sql END \
         FROM sqlite_schema s ORDER BY 1"
    );
    lines(pool, statement).await
}

async fn history(pool: &SqlitePool) -> Vec<String> {
    let statement =
        "SELECT version || ' ' || hex(checksum) || ' ' || installed_on FROM _sqlx_migrations ORDER BY 1";
    lines(pool, statement.to_owned()).await
}

/// Returns the names of the tables and their columns.
async fn columns(pool: &SqlitePool) -> Vec<(String, String)> {
    let statement = "SELECT s.name, group_concat('quote(\"' || c.name || '\")', ' || '' '' || ') \
         FROM sqlite_schema s, pragma_table_xinfo(s.name) c \
         WHERE s.type = 'table' AND s.name <> '_sqlx_migrations' GROUP BY s.name ORDER BY s.name";
    let tables = sqlx::query(statement).fetch_all(pool).await.unwrap();
    tables.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn rows(pool: &SqlitePool, (table, columns): &(String, String)) -> Vec<String> {
    lines(pool, format!("SELECT {columns} FROM {table}")).await
}

#[tokio::test]
async fn files_of_commit_03f3e640_come_to_the_tables_of_new_ones_with_every_row() {
    let [fresh, upgraded] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    start(fresh.path()).await;
    earlier(upgraded.path()).await;
    let mut before = Vec::new();
    for (_, name) in FILES {
        let pool = file(&upgraded.path().join(name)).await;
        for table in columns(&pool).await {
            let rows = rows(&pool, &table).await;
            assert!(!rows.is_empty(), "the test shows nothing of {table:?}");
            before.push((name, table, rows));
        }
        pool.close().await;
    }
    start(upgraded.path()).await;
    let control = ControlStore::file(&upgraded.path().join("asp.db")).await.unwrap();
    let demo = control.server("demo").await.unwrap().unwrap();
    assert!(!demo.a2a_confirmed, "an upgrade switches no protocol on");
    control.close().await;
    let mut first = Vec::new();
    for (_, name) in FILES {
        let [new, old] = [file(&fresh.path().join(name)).await, file(&upgraded.path().join(name)).await];
        assert_eq!(schema(&old).await, schema(&new).await, "{name}");
        let versions = "SELECT version || ' ' || description || ' ' || hex(checksum) FROM _sqlx_migrations";
        assert_eq!(lines(&old, versions.into()).await, lines(&new, versions.into()).await, "{name}");
        for (_, table, rows_before) in before.iter().filter(|(of, ..)| *of == name) {
            let kept = rows(&old, table).await;
            let lost: Vec<_> = rows_before.iter().filter(|row| !kept.contains(row)).collect();
            assert!(lost.is_empty(), "{name}: {table:?} lost {lost:?}");
        }
        first.push(history(&old).await);
        old.close().await;
        new.close().await;
    }
    start(upgraded.path()).await;
    for ((_, name), first) in FILES.iter().zip(first) {
        assert_eq!(history(&file(&upgraded.path().join(name)).await).await, first, "{name}: started again");
    }
}

/// Rows as gateways of commit 03f3e640 write them.
#[tokio::test]
async fn answers_records_and_leases_of_files_of_commit_03f3e640_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("calls.db");
    let far = i64::MAX / 2;
    let calls = file(&path).await;
    migrations("calls").await.run(&calls).await.unwrap();
    sqlx::query(
        "INSERT INTO ledger (claim_key, hash, call_id, owner, org, state, answer, expires_ms) \
         VALUES ($1, $2, zeroblob(16), zeroblob(16), zeroblob(16), 1, $3, $4)",
    )
    .bind([1_u8; 32].as_slice())
    .bind([2_u8; 32].as_slice())
    .bind(b"42".as_slice())
    .bind(far)
    .execute(&calls)
    .await
    .unwrap();
    for (call, owner) in [(3_u8, 5_u8), (4, 6)] {
        sqlx::query(
            "INSERT INTO active_calls (call_id, org, principal, user_digest, server, plugin, context, created_ms, \
             expires_ms, resumable, state, updated_ms, record, owner, seq) \
             VALUES ($1, 'acme', $1, $1, 'demo', 'p@1', '{}', 1, $2, 1, 'working', 1, x'07', $3, 0)",
        )
        .bind([call; 16].as_slice())
        .bind(far)
        .bind([owner; 16].as_slice())
        .execute(&calls)
        .await
        .unwrap();
    }
    calls.close().await;
    let leases = file(&directory.path().join("calls-leases.db")).await;
    migrations("leases").await.run(&leases).await.unwrap();
    let lease = sqlx::query("INSERT INTO owners (owner, lease_ms) VALUES ($1, $2)");
    lease.bind([5_u8; 16].as_slice()).bind(far).execute(&leases).await.unwrap();
    leases.close().await;

    let calls = SqliteCalls::open(&path).await.unwrap();
    let holder = Holder { call: [9; 16], owner: [9; 16], org: [1; 16] };
    let claim = calls
        .claim(
            LedgerRequest { key: LedgerKey([1; 32]), hash: [2; 32] },
            holder,
            Instant::now(),
            Duration::ZERO,
        )
        .await
        .unwrap();
    assert_eq!(claim, Claim::Replay(Bytes::from_static(b"42")));
    let orphans = calls.orphans(10).await.unwrap();
    assert_eq!(orphans, [Orphan { call: [4; 16], owner: OwnerId([6; 16]) }], "the other's gateway lives");
    assert!(calls.take(&orphans[0], OwnerId([9; 16])).await.unwrap());
    let record = calls.find([4; 16]).await.unwrap().unwrap();
    assert_eq!((record.owner, &record.record[..], record.resumes), (Some(OwnerId([9; 16])), &[7][..], true));
}

/// Checks the rows of the control store after the upgrade.
async fn shows_what_machines_have(store: &ControlStore) {
    let machines = async |org: &str| {
        let bindings = store.bindings(org).await.unwrap().value;
        let machines = bindings.into_iter().filter(|binding| binding.target_type == "machine");
        machines.map(|binding| (binding.target, binding.allowed)).collect::<Vec<_>>()
    };
    let known = [("arm", true), ("bo*", true), ("pre*", true), ("press-7", true)];
    assert_eq!(machines("acme").await, known.map(|(target, allowed)| (target.to_owned(), allowed)));
    assert_eq!(machines("globex").await, [("*".to_owned(), true)]);
    assert!(machines("hooli").await.is_empty(), "an allow waits for nobody to come");
    let denied = [("*".to_owned(), false)];
    assert_eq!(machines("initech").await, denied, "a machine that comes later does not escape it");
    let limits = store.limits("acme").await.unwrap().value;
    let limits: Vec<_> = limits.iter().map(|limit| (limit.user.as_str(), limit.machine.as_str())).collect();
    let users = [("press-7", "*"), ("alice", "*"), ("*", "*"), ("each", "*")];
    assert_eq!(limits, [users.as_slice(), &[("*", "press-7"), ("*", "each")]].concat());
    let bound = async |org: &str| {
        let bound = store.machine_bound(org).await.unwrap().value;
        [bound.groups, bound.scopes].map(|set| set.into_iter().collect::<Vec<_>>().join(","))
    };
    assert_eq!(bound("acme").await, ["arms,robots", "a,b,c"]);
    assert_eq!(bound("globex").await, ["", ""]);
    let state = store.load().await.unwrap();
    assert_eq!((state.revision, state.machines.bounds.len()), (42, 2));
    let proved =
        state.machines.certificates.iter().map(|certificate| (certificate.id.as_str(), certificate.proved));
    assert_eq!(proved.collect::<Vec<_>>(), [("c1", true), ("c2", false)]);
}

#[tokio::test]
async fn what_was_written_for_users_and_named_a_machine_still_does_and_machines_may_have_what_they_had() {
    let directory = tempfile::tempdir().unwrap();
    earlier(directory.path()).await;
    shows_what_machines_have(&ControlStore::file(&directory.path().join("asp.db")).await.unwrap()).await;
    let server = Server::start().await.unwrap();
    earlier_server(&server).await.close().await;
    let database = Postgres::connect(&server.url(), 2).await.unwrap();
    shows_what_machines_have(&database.control().await.unwrap()).await;
}

#[tokio::test]
async fn files_of_another_unreleased_version_are_refused_and_left_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    earlier(directory.path()).await;
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (17, 'proofs', TRUE, x'00', 0)";
    let mut before = Vec::new();
    for (_, name) in FILES {
        let pool = file(&directory.path().join(name)).await;
        sqlx::query(later).execute(&pool).await.unwrap();
        before.push((schema(&pool).await, history(&pool).await));
        pool.close().await;
    }
    let at = |name: &str| directory.path().join(name);
    let refused = [
        ("control", ControlStore::file(&at("asp.db")).await.map(drop).unwrap_err().to_string()),
        // The leases are opened first.
        ("leases", SqliteCalls::open(&at("calls.db")).await.map(drop).unwrap_err().to_string()),
        ("audit", SqliteAudit::open(&at("audit.db"), 1 << 30).await.map(drop).unwrap_err().to_string()),
    ];
    for (store, error) in refused {
        for part in [format!("the {store} store"), "migration 17".into(), "docs/upgrade.md".into()] {
            assert!(error.contains(&part), "{error}");
        }
    }
    for ((_, name), before) in FILES.iter().zip(before) {
        let pool = file(&at(name)).await;
        assert_eq!((schema(&pool).await, history(&pool).await), before, "{name}");
    }
}

/// Creates the database of commit 03f3e640, with rows.
async fn earlier_server(server: &Server) -> PgPool {
    let pool = PgPool::connect(&server.url()).await.unwrap();
    for store in ["control", "postgres"] {
        migrations(store).await.set_ignore_missing(true).run(&pool).await.unwrap();
        sqlx::raw_sql(rows_of(store)).execute(&pool).await.unwrap();
    }
    pool
}

async fn server_lines(pool: &PgPool, statement: String) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(statement)).fetch_all(pool).await.unwrap()
}

/// Returns the schema that governs rows: columns, constraints, indexes, triggers and functions.
async fn server_schema(pool: &PgPool) -> Vec<String> {
    let statement = "\
        SELECT CONCAT_WS(' ', 'column', c.relname, a.attnum, a.attname, FORMAT_TYPE(a.atttypid, a.atttypmod), a.attnotnull, \
            a.attstorage, PG_GET_EXPR(d.adbin, d.adrelid)) AS line \
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 \
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum \
        WHERE c.relnamespace = CAST('public' AS REGNAMESPACE) AND c.relkind = 'r' \
        UNION ALL SELECT CONCAT_WS(' ', 'constraint', CAST(conrelid AS REGCLASS), conname, PG_GET_CONSTRAINTDEF(oid)) \
        FROM pg_constraint WHERE connamespace = CAST('public' AS REGNAMESPACE) \
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' \
        UNION ALL SELECT PG_GET_TRIGGERDEF(oid) FROM pg_trigger WHERE NOT tgisinternal \
        UNION ALL SELECT PG_GET_FUNCTIONDEF(oid) FROM pg_proc WHERE pronamespace = CAST('public' AS REGNAMESPACE) \
        ORDER BY line";
    server_lines(pool, statement.to_owned()).await
}

async fn server_history(pool: &PgPool) -> Vec<String> {
    let statement = "SELECT CONCAT_WS(' ', version, description, ENCODE(checksum, 'hex')) FROM _sqlx_migrations ORDER BY version";
    server_lines(pool, statement.to_owned()).await
}

/// Returns the rows of each table, with its current columns.
async fn server_rows(pool: &PgPool, tables: &[(String, String)]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (table, columns) in tables {
        let statement = format!("SELECT CAST(ROW({columns}) AS TEXT) FROM {table}");
        rows.push(server_lines(pool, statement).await);
    }
    rows
}

#[tokio::test]
async fn a_postgresql_database_of_commit_03f3e640_comes_to_the_tables_of_a_new_one_with_every_row() {
    let [fresh, upgraded] = [Server::start().await.unwrap(), Server::start().await.unwrap()];
    Postgres::connect(&fresh.url(), 2).await.unwrap().close().await;
    let [new, old] = [PgPool::connect(&fresh.url()).await.unwrap(), earlier_server(&upgraded).await];
    let tables = "SELECT CAST(table_name AS TEXT), STRING_AGG(QUOTE_IDENT(column_name), ', ' ORDER BY ordinal_position) \
         FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> '_sqlx_migrations' \
         GROUP BY table_name";
    let tables: Vec<(String, String)> = sqlx::query_as(tables).fetch_all(&old).await.unwrap();
    let before = server_rows(&old, &tables).await;
    Postgres::connect(&upgraded.url(), 2).await.unwrap().close().await;
    assert_eq!(server_schema(&old).await, server_schema(&new).await);
    let history = server_history(&old).await;
    assert_eq!(history, server_history(&new).await);
    for ((table, before), kept) in tables.iter().zip(before).zip(server_rows(&old, &tables).await) {
        assert!(!before.is_empty(), "the test shows nothing of {table:?}");
        let lost: Vec<_> = before.iter().filter(|row| !kept.contains(row)).collect();
        assert!(lost.is_empty(), "{table:?} lost {lost:?}");
    }
    Postgres::connect(&upgraded.url(), 2).await.unwrap().close().await;
    assert_eq!(server_history(&old).await, history, "started again");
}

#[tokio::test]
async fn a_postgresql_database_of_another_unreleased_version_is_refused_and_left_as_it_is() {
    let server = Server::start().await.unwrap();
    let pool = earlier_server(&server).await;
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (1005, 'leases', TRUE, '', 0)";
    sqlx::query(later).execute(&pool).await.unwrap();
    let before = (server_schema(&pool).await, server_history(&pool).await);
    let refused = Postgres::connect(&server.url(), 2).await.map(drop).unwrap_err();
    assert!(
        matches!(refused, ConnectError::Schema(SchemaError::Unknown { store: "PostgreSQL", number: 1005 })),
        "{refused:?}"
    );
    // Nor is the control store's part upgraded alone.
    assert_eq!((server_schema(&pool).await, server_history(&pool).await), before);
}

/// A migration that waited for its table would block all statements after it.
#[tokio::test]
async fn others_use_a_table_while_a_migration_waits_for_a_reader_of_it() {
    let server = Server::start().await.unwrap();
    let pool = earlier_server(&server).await;
    let read = "SELECT COUNT(*) FROM call_records";
    let mut reader = pool.begin().await.unwrap();
    sqlx::query(read).execute(&mut *reader).await.unwrap();
    let url = server.url();
    let starting = tokio::spawn(async move { Postgres::connect(&url, 2).await.map(drop) });
    let waits = wait::until("the migration waits", wait::START, || async {
        let waiting = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM pg_locks WHERE NOT granted");
        (waiting.fetch_one(&pool).await.ok()? > 0).then_some(())
    });
    waits.await.unwrap();
    // Lock timeout of a call's statement.
    let mut other = pool.begin().await.unwrap();
    sqlx::query("SET LOCAL lock_timeout = '1500ms'").execute(&mut *other).await.unwrap();
    sqlx::query(read).execute(&mut *other).await.unwrap();
    other.rollback().await.unwrap();
    reader.rollback().await.unwrap();
    starting.await.unwrap().unwrap();
}
