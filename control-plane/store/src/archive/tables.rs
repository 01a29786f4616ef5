//! The content of an archive: the tables of every database with their columns, in one order.
//!
//! Keeps true: a row is the same in every database; values derived from rows (usage of orgs and users, live gateways)
//! are left out, because inserting the rows derives them again.

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    /// A boolean: BIGINT in SQLite, BOOLEAN in PostgreSQL.
    Flag,
    Bytes,
}

use Kind::{Bytes, Flag, Integer, Text};

/// SQLite file that holds a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SqliteFile {
    Control,
    Calls,
    Audit,
}

/// A column. Its name in the archive is the one in PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// Name of the column in SQLite.
    sqlite: &'static str,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, sqlite: name }
}

/// Returns columns from their names and types.
macro_rules! columns {
    ($($name:ident: $kind:ident),+) => {
        &[$(column(stringify!($name), $kind)),+]
    };
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ArchiveTable {
    pub name: &'static str,
    pub home: SqliteFile,
    /// Name of the table in SQLite.
    sqlite: &'static str,
    /// PostgreSQL view of all rows, if they are in more than one table.
    view: Option<&'static str>,
    pub columns: &'static [Column],
    /// Number of leading columns that form the key and the order of rows.
    key: usize,
    /// Whether an empty database has one row in this table.
    pub seeded: bool,
}

const fn control(name: &'static str, key: usize, columns: &'static [Column]) -> ArchiveTable {
    ArchiveTable { name, home: SqliteFile::Control, sqlite: name, view: None, columns, key, seeded: false }
}

/// Kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl ArchiveTable {
    fn place(&self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Sqlite => self.sqlite,
            Dialect::Postgres => self.name,
        }
    }

    /// Returns the relation to read from.
    fn source(&self, dialect: Dialect) -> &'static str {
        match (dialect, self.view) {
            (Dialect::Postgres, Some(view)) => view,
            _ => self.place(dialect),
        }
    }

    /// Returns the query for all rows in the order of their keys, which is byte order in every database.
    pub(super) fn select(&self, dialect: Dialect) -> String {
        let read = |column: &Column| match (dialect, column.kind) {
            (Dialect::Sqlite, _) => column.sqlite.to_owned(),
            (Dialect::Postgres, Flag) => format!("CAST(CAST({} AS INT) AS BIGINT)", column.name),
            (Dialect::Postgres, _) => column.name.to_owned(),
        };
        let by = |column: &Column| match (dialect, column.kind) {
            (Dialect::Postgres, Text) => format!("{} COLLATE \"C\"", column.name),
            _ => column.name.to_owned(),
        };
        let columns: Vec<String> = self.columns.iter().map(read).collect();
        let key: Vec<String> = self.columns.iter().take(self.key).map(by).collect();
        format!("SELECT {} FROM {} ORDER BY {}", columns.join(", "), self.source(dialect), key.join(", "))
    }

    /// Returns the statement that inserts one row; the parameters are its columns.
    pub(super) fn insert(&self, dialect: Dialect) -> String {
        let name = |column: &Column| match dialect {
            Dialect::Sqlite => column.sqlite,
            Dialect::Postgres => column.name,
        };
        let value = |(place, column): (usize, &Column)| match (dialect, column.kind) {
            (Dialect::Postgres, Flag) => format!("${} <> 0", place + 1),
            _ => format!("${}", place + 1),
        };
        let names: Vec<&str> = self.columns.iter().map(name).collect();
        let values: Vec<String> = self.columns.iter().enumerate().map(value).collect();
        format!("INSERT INTO {} ({}) VALUES ({})", self.place(dialect), names.join(", "), values.join(", "))
    }

    pub(super) fn count(&self, dialect: Dialect) -> String {
        format!("SELECT COUNT(*) FROM {}", self.source(dialect))
    }

    pub(super) fn clear(&self, dialect: Dialect) -> String {
        format!("DELETE FROM {}", self.place(dialect))
    }
}

/// All tables of an archive, in its order.
pub(super) const TABLES: [ArchiveTable; 23] = [
    ArchiveTable { seeded: true, ..control("control_revision", 1, columns![id: Integer, revision: Integer]) },
    control("resources", 1, columns![name: Text, revision: Integer]),
    control("servers", 1, columns![name: Text, sources: Text, content_hash: Text, updated_at: Integer]),
    control(
        "server_versions",
        2,
        columns![
            name: Text, revision: Integer, sources: Text, content_hash: Text, stored_at: Integer, actor: Text,
            gone_at: Integer
        ],
    ),
    control("primitive_servers", 2, columns![id: Text, server: Text, first: Integer]),
    control("offers", 2, columns![server: Text, org: Text]),
    control("exposure", 3, columns![org: Text, server: Text, protocol: Text, enabled: Integer]),
    control(
        "bindings",
        7,
        columns![
            org: Text, target_type: Text, target: Text, issuer: Text, primitive: Text, protocol: Text,
            name: Text, allowed: Integer, observed: Integer, approval: Integer, conditions: Text
        ],
    ),
    control(
        "limits",
        2,
        columns![
            org: Text, position: Integer, server: Text, primitive: Text, user_id: Text, wcit: Text,
            issuer: Text, machine: Text, capacity: Integer, refill: Text
        ],
    ),
    control(
        "revocations",
        1,
        columns![
            id: Text, kind: Text, org: Text, target: Text, issuer: Text, reason: Text, created_at: Integer,
            until_at: Integer, by_platform: Integer
        ],
    ),
    control("issuers", 2, columns![side: Text, name: Text, document: Text, updated_at: Integer]),
    control("former_issuers", 2, columns![side: Text, name: Text, iss: Text, deleted_at: Integer]),
    control(
        "issuer_keys",
        2,
        columns![side: Text, name: Text, source: Text, content: Text, fetched_at: Integer],
    ),
    control(
        "machine_keys",
        1,
        columns![
            id: Text, org: Text, machine: Text, hash: Text, groups: Text, scopes: Text, created_at: Integer,
            expires_at: Integer
        ],
    ),
    control(
        "machine_certificates",
        1,
        columns![
            id: Text, org: Text, machine: Text, kind: Text, name: Text, proved: Integer, groups: Text,
            scopes: Text, created_at: Integer, expires_at: Integer
        ],
    ),
    control("machine_bounds", 3, columns![org: Text, groups: Text, scopes: Text]),
    control("routes", 3, columns![server: Text, method: Text, primitive: Text, pool: Text]),
    control("regions", 1, columns![name: Text, cluster: Text]),
    control("homes", 1, columns![org: Text, region: Text]),
    control(
        "audit",
        1,
        columns![
            revision: Integer, at: Integer, actor: Text, action: Text, resource: Text, org: Text, detail: Text
        ],
    ),
    ArchiveTable {
        name: "ledger",
        home: SqliteFile::Calls,
        sqlite: "ledger",
        view: None,
        key: 1,
        seeded: false,
        columns: columns![
            claim_key: Bytes, hash: Bytes, call_id: Bytes, owner: Bytes, org: Bytes, state: Integer,
            expires_ms: Integer, answer: Bytes
        ],
    },
    ArchiveTable {
        name: "call_records",
        home: SqliteFile::Calls,
        sqlite: "active_calls",
        view: None,
        key: 1,
        seeded: false,
        columns: &[
            column("call_id", Bytes),
            column("org", Text),
            column("principal", Bytes),
            column("user_digest", Bytes),
            column("server", Text),
            column("plugin", Text),
            column("context", Text),
            column("state", Text),
            column("created_ms", Integer),
            column("updated_ms", Integer),
            column("expires_ms", Integer),
            column("resumable", Flag),
            column("seq", Integer),
            column("bytes", Integer),
            column("owner", Bytes),
            column("record", Bytes),
            column("capsule", Bytes),
            Column { name: "memory", kind: Bytes, sqlite: "answers" },
            column("outcome", Bytes),
        ],
    },
    ArchiveTable {
        name: "call_events",
        home: SqliteFile::Audit,
        sqlite: "events",
        view: Some("all_call_events"),
        key: 1,
        seeded: false,
        columns: columns![seq: Integer, at_ms: Integer, org: Text, event: Text],
    },
];
