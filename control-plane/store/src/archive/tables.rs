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
    /// Expression to read and column to write in SQLite; `None` if both are the name.
    sqlite: Option<(&'static str, &'static str)>,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, sqlite: None }
}

/// Returns a column that rows of an earlier version do not have.
const fn later(name: &'static str, kind: Kind, read: &'static str) -> Column {
    Column { name, kind, sqlite: Some((read, name)) }
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
            (Dialect::Sqlite, _) => column.sqlite.map_or(column.name, |(read, _)| read).to_owned(),
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
            Dialect::Sqlite => column.sqlite.map_or(column.name, |(_, write)| write),
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
    ArchiveTable {
        seeded: true,
        ..control("control_revision", 1, &[column("id", Integer), column("revision", Integer)])
    },
    control("resources", 1, &[column("name", Text), column("revision", Integer)]),
    control(
        "servers",
        1,
        &[
            column("name", Text),
            column("sources", Text),
            column("content_hash", Text),
            column("updated_at", Integer),
        ],
    ),
    control(
        "server_versions",
        2,
        &[
            column("name", Text),
            column("revision", Integer),
            column("sources", Text),
            column("content_hash", Text),
            column("stored_at", Integer),
            column("actor", Text),
            column("gone_at", Integer),
        ],
    ),
    control("primitive_servers", 2, &[column("id", Text), column("server", Text), column("first", Integer)]),
    control("offers", 2, &[column("server", Text), column("org", Text)]),
    control(
        "exposure",
        3,
        &[column("org", Text), column("server", Text), column("protocol", Text), column("enabled", Integer)],
    ),
    control(
        "bindings",
        7,
        &[
            column("org", Text),
            column("target_type", Text),
            column("target", Text),
            column("issuer", Text),
            column("primitive", Text),
            column("protocol", Text),
            column("name", Text),
            column("allowed", Integer),
            column("observed", Integer),
            column("approval", Integer),
            column("conditions", Text),
        ],
    ),
    control(
        "limits",
        2,
        &[
            column("org", Text),
            column("position", Integer),
            column("server", Text),
            column("primitive", Text),
            column("user_id", Text),
            column("wcit", Text),
            column("issuer", Text),
            column("machine", Text),
            column("capacity", Integer),
            column("refill", Text),
        ],
    ),
    control(
        "revocations",
        1,
        &[
            column("id", Text),
            column("kind", Text),
            column("org", Text),
            column("target", Text),
            column("issuer", Text),
            column("reason", Text),
            column("created_at", Integer),
            column("until_at", Integer),
            column("by_platform", Integer),
        ],
    ),
    control(
        "issuers",
        2,
        &[
            column("side", Text),
            column("name", Text),
            column("document", Text),
            column("updated_at", Integer),
        ],
    ),
    control(
        "former_issuers",
        2,
        &[column("side", Text), column("name", Text), column("iss", Text), column("deleted_at", Integer)],
    ),
    control(
        "issuer_keys",
        2,
        &[
            column("side", Text),
            column("name", Text),
            column("source", Text),
            column("content", Text),
            column("fetched_at", Integer),
        ],
    ),
    control(
        "machine_keys",
        1,
        &[
            column("id", Text),
            column("org", Text),
            column("machine", Text),
            column("hash", Text),
            column("groups", Text),
            column("scopes", Text),
            column("created_at", Integer),
            column("expires_at", Integer),
        ],
    ),
    control(
        "machine_certificates",
        1,
        &[
            column("id", Text),
            column("org", Text),
            column("machine", Text),
            column("kind", Text),
            column("name", Text),
            column("proved", Integer),
            column("groups", Text),
            column("scopes", Text),
            column("created_at", Integer),
            column("expires_at", Integer),
        ],
    ),
    control("machine_bounds", 3, &[column("org", Text), column("groups", Text), column("scopes", Text)]),
    control(
        "routes",
        3,
        &[column("server", Text), column("method", Text), column("primitive", Text), column("pool", Text)],
    ),
    control("regions", 1, &[column("name", Text), column("cluster", Text)]),
    control("homes", 1, &[column("org", Text), column("region", Text)]),
    control(
        "audit",
        1,
        &[
            column("revision", Integer),
            column("at", Integer),
            column("actor", Text),
            column("action", Text),
            column("resource", Text),
            column("org", Text),
            column("detail", Text),
        ],
    ),
    ArchiveTable {
        name: "ledger",
        home: SqliteFile::Calls,
        sqlite: "ledger",
        view: None,
        key: 1,
        seeded: false,
        columns: &[
            column("claim_key", Bytes),
            column("hash", Bytes),
            later("call_id", Bytes, "COALESCE(call_id, zeroblob(16))"),
            later("owner", Bytes, "COALESCE(owner, zeroblob(16))"),
            later("org", Bytes, "COALESCE(org, zeroblob(16))"),
            column("state", Integer),
            column("expires_ms", Integer),
            column("answer", Bytes),
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
            later("principal", Bytes, "COALESCE(principal, zeroblob(16))"),
            later("user_digest", Bytes, "COALESCE(user_digest, zeroblob(16))"),
            later("server", Text, "COALESCE(server, '')"),
            column("plugin", Text),
            later("context", Text, "COALESCE(context, '')"),
            later("state", Text, "COALESCE(state, 'working')"),
            later("created_ms", Integer, "COALESCE(created_ms, 0)"),
            later("updated_ms", Integer, "COALESCE(updated_ms, 0)"),
            column("expires_ms", Integer),
            column("resumable", Flag),
            column("seq", Integer),
            column("bytes", Integer),
            column("owner", Bytes),
            later("record", Bytes, "COALESCE(record, x'')"),
            column("capsule", Bytes),
            Column { name: "memory", kind: Bytes, sqlite: Some(("answers", "answers")) },
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
        columns: &[
            column("seq", Integer),
            column("at_ms", Integer),
            column("org", Text),
            column("event", Text),
        ],
    },
];
