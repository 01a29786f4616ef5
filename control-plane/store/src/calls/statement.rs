//! Statements on the tables of calls for both kinds of database, and their parameters.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Database, Encode, Postgres, SqlSafeStr, Sqlite, Type};

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

/// Translations for SQLite by statement. As many as this crate has statements, because their texts contain no values.
static TRANSLATIONS: LazyLock<Mutex<HashMap<String, Translation>>> = LazyLock::new(Mutex::default);

/// A statement in the words of SQLite.
#[derive(Clone)]
struct Translation {
    text: Arc<str>,
    /// Whether the time is its last parameter.
    needs_time: bool,
}

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

    pub(crate) fn postgres(self) -> Query<'static, Postgres, PgArguments> {
        query(AssertSqlSafe(self.text), self.values)
    }

    /// Translates the statement, when it is executed for the first time. Its time is the present one.
    pub(crate) fn sqlite(self) -> Query<'static, Sqlite, SqliteArguments> {
        let CallStatement { text, mut values, .. } = self;
        let translate = |text: &String| translate(text, values.len());
        let Translation { text, needs_time } =
            TRANSLATIONS.lock().entry(text).or_insert_with_key(translate).clone();
        if needs_time {
            values.push(now_ms().into());
        }
        query(AssertSqlSafe(text), values)
    }
}

/// Translates a statement with this number of parameters.
fn translate(text: &str, parameters: usize) -> Translation {
    let text = WORDS.iter().fold(text.to_owned(), |text, (word, own)| text.replace(word, own));
    let time = format!("${}", parameters + 1);
    Translation { needs_time: text.contains(NOW), text: text.replace(NOW, &time).into() }
}

fn query<DB>(text: impl SqlSafeStr, values: Vec<Parameter>) -> Query<'static, DB, <DB as Database>::Arguments>
where
    DB: Database,
    for<'q> Option<Vec<u8>>: Encode<'q, DB> + Type<DB>,
    for<'q> Option<i64>: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
    for<'q> bool: Encode<'q, DB> + Type<DB>,
{
    values.into_iter().fold(sqlx::query::<DB>(text), |query, value| match value {
        Parameter::Bytes(bytes) => query.bind(bytes),
        Parameter::Text(text) => query.bind(text),
        Parameter::Number(number) => query.bind(number),
        Parameter::Flag(flag) => query.bind(flag),
    })
}

#[cfg(test)]
mod tests {
    use sqlx::Execute;

    use super::*;

    impl CallStatement {
        /// Returns the query for the plan of the statement on SQLite.
        pub(crate) fn explained(self) -> CallStatement {
            CallStatement { text: format!("EXPLAIN QUERY PLAN {}", self.text), ..self }
        }
    }

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

    #[test]
    fn a_statement_is_translated_once() {
        let texts = [1, 2].map(|row: u32| {
            CallStatement::new("SELECT memory = $1 FROM gateways WHERE now_ms() > 0").bind(row).sqlite().sql()
        });
        let [first, second] = texts.each_ref().map(|text| text.as_str());
        assert_eq!(first, "SELECT answers = $1 FROM leases.owners WHERE $2 > 0");
        assert!(std::ptr::eq(first, second));
    }
}
