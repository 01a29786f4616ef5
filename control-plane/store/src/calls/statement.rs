//! Statements on the tables of calls for both kinds of database, and their parameters.

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Database, Encode, Postgres, Sqlite, Type};

use crate::clock::{milliseconds, now_ms};

/// The current time: a function of PostgreSQL, a parameter on SQLite.
const NOW: &str = "now_ms()";
/// Words of PostgreSQL with the ones for SQLite. The table and the column are named from the time when the table held
/// running calls only; leases are in a file of their own, and quotas are counted by the id of their holder.
const WORDS: [(&str, &str); 8] = [
    ("call_records", "active_calls"),
    ("r.memory", "r.answers AS memory"),
    ("memory =", "answers ="),
    ("gateways ", "leases.owners "),
    ("GREATEST(", "MAX("),
    ("of_user(", "("),
    ("of_org(", "("),
    (" FOR UPDATE SKIP LOCKED", ""),
];

/// A parameter.
#[derive(Clone)]
pub(crate) enum Parameter {
    Bytes(Option<Vec<u8>>),
    Text(String),
    Number(Option<i64>),
    Flag(bool),
}

impl<const N: usize> From<[u8; N]> for Parameter {
    fn from(bytes: [u8; N]) -> Parameter {
        Parameter::Bytes(Some(bytes.to_vec()))
    }
}

impl<const N: usize> From<Option<[u8; N]>> for Parameter {
    fn from(bytes: Option<[u8; N]>) -> Parameter {
        Parameter::Bytes(bytes.map(|bytes| bytes.to_vec()))
    }
}

impl From<&Bytes> for Parameter {
    fn from(bytes: &Bytes) -> Parameter {
        Parameter::Bytes(Some(bytes.to_vec()))
    }
}

impl From<&str> for Parameter {
    fn from(text: &str) -> Parameter {
        Parameter::Text(text.to_owned())
    }
}

impl From<i64> for Parameter {
    fn from(number: i64) -> Parameter {
        Parameter::Number(Some(number))
    }
}

impl From<Option<i64>> for Parameter {
    fn from(number: Option<i64>) -> Parameter {
        Parameter::Number(number)
    }
}

impl From<u32> for Parameter {
    fn from(number: u32) -> Parameter {
        i64::from(number).into()
    }
}

impl From<bool> for Parameter {
    fn from(flag: bool) -> Parameter {
        Parameter::Flag(flag)
    }
}

/// Milliseconds.
impl From<Duration> for Parameter {
    fn from(length: Duration) -> Parameter {
        milliseconds(length).into()
    }
}

/// A statement in the words of PostgreSQL with its parameters, `$1` and following.
pub(crate) struct CallStatement {
    text: String,
    values: Vec<Parameter>,
    /// Whether it judges leases, for which PostgreSQL has connections of their own.
    pub judges_leases: bool,
}

impl CallStatement {
    pub(crate) fn new(text: impl Into<String>) -> CallStatement {
        CallStatement { text: text.into(), values: Vec::new(), judges_leases: false }
    }

    /// Adds the next parameter.
    pub(crate) fn bind(mut self, value: impl Into<Parameter>) -> CallStatement {
        self.values.push(value.into());
        self
    }

    pub(crate) fn judging_leases(mut self) -> CallStatement {
        self.judges_leases = true;
        self
    }

    /// Returns the query for the plan of the statement on SQLite.
    #[cfg(test)]
    pub(crate) fn explained(self) -> CallStatement {
        CallStatement { text: format!("EXPLAIN QUERY PLAN {}", self.text), ..self }
    }

    pub(crate) fn postgres(self) -> Query<'static, Postgres, PgArguments> {
        self.query()
    }

    /// Translates the statement. Its time is the present one.
    pub(crate) fn sqlite(mut self) -> Query<'static, Sqlite, SqliteArguments> {
        for (word, own) in WORDS {
            self.text = self.text.replace(word, own);
        }
        if self.text.contains(NOW) {
            self = self.bind(now_ms());
            self.text = self.text.replace(NOW, &format!("${}", self.values.len()));
        }
        self.query()
    }

    fn query<DB>(self) -> Query<'static, DB, <DB as Database>::Arguments>
    where
        DB: Database,
        for<'q> Option<Vec<u8>>: Encode<'q, DB> + Type<DB>,
        for<'q> Option<i64>: Encode<'q, DB> + Type<DB>,
        for<'q> String: Encode<'q, DB> + Type<DB>,
        for<'q> bool: Encode<'q, DB> + Type<DB>,
    {
        let query = sqlx::query::<DB>(AssertSqlSafe(self.text));
        self.values.into_iter().fold(query, |query, value| match value {
            Parameter::Bytes(bytes) => query.bind(bytes),
            Parameter::Text(text) => query.bind(text),
            Parameter::Number(number) => query.bind(number),
            Parameter::Flag(flag) => query.bind(flag),
        })
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Execute;

    use super::*;

    #[test]
    fn a_statement_is_translated_to_the_tables_columns_and_parameters_of_sqlite() {
        let statement = || {
            CallStatement::new(
                "UPDATE call_records AS r SET memory = $1, expires_ms = GREATEST(r.expires_ms, now_ms() + $2) \
                 WHERE EXISTS (SELECT 1 FROM gateways g WHERE g.owner = r.owner AND g.lease_ms > now_ms()) \
                 AND holder = of_org($2) RETURNING r.memory",
            )
            .bind([7_u8; 16])
            .bind(Duration::from_secs(1))
        };
        assert_eq!(
            statement().sqlite().sql().as_str(),
            "UPDATE active_calls AS r SET answers = $1, expires_ms = MAX(r.expires_ms, $3 + $2) \
             WHERE EXISTS (SELECT 1 FROM leases.owners g WHERE g.owner = r.owner AND g.lease_ms > $3) \
             AND holder = ($2) RETURNING r.answers AS memory"
        );
        assert_eq!(statement().postgres().sql().as_str(), statement().text);
        let timeless = CallStatement::new("SELECT $1 FOR UPDATE SKIP LOCKED").bind(true).sqlite();
        assert_eq!(timeless.sql().as_str(), "SELECT $1");
    }
}
