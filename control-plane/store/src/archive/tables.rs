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

/// A table of the control database: its name, the number of its key columns, and its columns with their types. A name in
/// parentheses is the column's in SQLite.
macro_rules! table {
    ($table:literal, $key:literal, $($name:ident $(($sqlite:literal))?: $kind:ident),+) => {
        ArchiveTable {
            name: $table,
            home: SqliteFile::Control,
            sqlite: $table,
            view: None,
            columns: &[$(Column { $(sqlite: $sqlite,)? ..column(stringify!($name), $kind) }),+],
            key: $key,
            seeded: false,
        }
    };
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
pub(super) const TABLES: [ArchiveTable; 36] = [
    ArchiveTable { seeded: true, ..table!("control_revision", 1, id: Integer, revision: Integer) },
    table!("resources", 1, name: Text, revision: Integer),
    table!("servers", 1, name: Text, sources: Text, content_hash: Text, updated_at: Integer, a2a_at: Integer,
        disabled: Text),
    table!("server_versions", 2, name: Text, revision: Integer, sources: Text, content_hash: Text,
        stored_at: Integer, actor: Text, gone_at: Integer),
    table!("primitive_servers", 2, id: Text, server: Text, first: Integer),
    table!("offers", 2, server: Text, org: Text),
    table!("exposure", 3, org: Text, server: Text, protocol: Text, enabled: Integer),
    table!("bindings", 7, org: Text, target_type: Text, target: Text, issuer: Text, primitive: Text,
        protocol: Text, name: Text, allowed: Integer, observed: Integer, approval: Integer, conditions: Text,
        approvers: Text, approvers_issuer: Text),
    table!("limits", 2, org: Text, position: Integer, server: Text, primitive: Text, user_id: Text,
        wcit: Text, issuer: Text, machine: Text, capacity: Integer, refill: Text,
        observe: Integer, caller_group: Text, kind: Text, window_seconds: Integer),
    table!("revocations", 1, id: Text, kind: Text, org: Text, target: Text, issuer: Text, reason: Text,
        created_at: Integer, until_at: Integer, by_platform: Integer),
    table!("issuers", 2, side: Text, name: Text, document: Text, updated_at: Integer),
    table!("former_issuers", 2, side: Text, name: Text, iss: Text, deleted_at: Integer),
    table!("issuer_keys", 2, side: Text, name: Text, source: Text, content: Text, fetched_at: Integer),
    table!("machine_keys", 1, id: Text, org: Text, machine: Text, hash: Text, groups: Text, scopes: Text,
        created_at: Integer, expires_at: Integer),
    table!("machine_certificates", 1, id: Text, org: Text, machine: Text, kind: Text, name: Text,
        proved: Integer, groups: Text, scopes: Text, created_at: Integer, expires_at: Integer),
    table!("machine_bounds", 3, org: Text, groups: Text, scopes: Text),
    table!("routes", 3, server: Text, method: Text, primitive: Text, pool: Text),
    table!("regions", 1, name: Text, cluster: Text),
    table!("homes", 1, org: Text, region: Text),
    table!("audit", 1, revision: Integer, at: Integer, actor: Text, action: Text, resource: Text, org: Text,
        detail: Text, undo: Text),
    table!("revocation_events", 1, id: Text, until_at: Integer),
    table!("parked_events", 1, id: Text, parked_at: Integer, fault: Text, payload: Text),
    table!("link_endings", 1, id: Text, org: Text, subject: Text, provider: Text, token: Text, created_at: Integer),
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("ledger", 1, claim_key: Bytes, hash: Bytes, call_id: Bytes, owner: Bytes, org: Bytes,
            state: Integer, expires_ms: Integer, answer: Bytes)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        sqlite: "active_calls",
        ..table!("call_records", 1, call_id: Bytes, org: Text, principal: Bytes, user_digest: Bytes,
            server: Text, plugin: Text, context: Text, state: Text, created_ms: Integer, updated_ms: Integer,
            expires_ms: Integer, resumable: Flag, seq: Integer, bytes: Integer, owner: Bytes, record: Bytes,
            capsule: Bytes, memory("answers"): Bytes, outcome: Bytes, pushes: Integer, takeovers: Integer)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("push_configs", 2, call_id: Bytes, config: Text, org: Text, user_digest: Bytes,
            origin: Text, created_ms: Integer, sealed: Bytes)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("push_deliveries", 1, seq: Integer, call_id: Bytes, config: Text, org: Text, state: Text,
            at_ms: Integer, since_ms: Integer, due_ms: Integer, attempts: Integer, claim: Bytes, dead: Integer,
            fault: Text)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("plugin_storage", 4, org: Text, plugin: Text, holder: Bytes, entry_key: Text,
            version: Integer, expires_ms: Integer, bytes: Integer, sealed: Bytes)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("approvals", 1, seq: Integer, id: Bytes, org: Text, principal: Bytes, requester: Text,
            issuer: Text, client: Text, machine: Integer, server: Text, primitive: Text, title: Text,
            protocol: Text, approvers: Text, approvers_iss: Text, rule: Text, arguments: Bytes, policy: Bytes,
            shown: Text, call_id: Bytes, state: Text, created_ms: Integer, expires_ms: Integer,
            decided_ms: Integer, decided_by: Text, reason: Text, used_ms: Integer, used_by: Bytes,
            notify_ms: Integer, notify_attempts: Integer, notify_claim: Bytes)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("link_providers", 1, name: Text, document: Text, revision: Integer, updated_ms: Integer,
            sealed: Bytes)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("linked_accounts", 1, link_id: Bytes, org: Text, issuer: Text, subject: Text, provider: Text,
            bound: Text, state: Text, version: Integer, scopes: Text, renewable: Integer, access_until_ms: Integer,
            created_ms: Integer, used_ms: Integer, expires_ms: Integer, lease_by: Bytes, lease_ms: Integer,
            sealed: Bytes)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("link_removals", 1, link_id: Bytes, org: Text, provider: Text, since_ms: Integer,
            due_ms: Integer, attempts: Integer, claim: Bytes, sealed: Bytes)
    },
    ArchiveTable {
        home: SqliteFile::Calls,
        ..table!("link_states", 1, state_id: Bytes, expires_ms: Integer)
    },
    ArchiveTable {
        home: SqliteFile::Audit,
        sqlite: "events",
        view: Some("all_call_events"),
        ..table!("call_events", 1, seq: Integer, at_ms: Integer, org: Text, event: Text)
    },
    ArchiveTable {
        home: SqliteFile::Audit,
        ..table!("usage_rows", 6, org: Text, day: Integer, user_name: Text, issuer: Text, server: Text,
            primitive: Text, calls: Integer, errors: Integer, limited: Integer, latency_us: Integer,
            cpu_us: Integer, tokens_in: Integer, tokens_out: Integer, cost_micros: Integer, l0: Integer,
            l1: Integer, l2: Integer, l3: Integer, l4: Integer, l5: Integer, l6: Integer, l7: Integer,
            l8: Integer, l9: Integer, l10: Integer, l11: Integer, l12: Integer, l13: Integer, l14: Integer,
            l15: Integer, refused: Integer)
    },
    ArchiveTable {
        home: SqliteFile::Audit,
        ..table!("usage_days", 2, day: Integer, org: Text, entries: Integer)
    },
];
