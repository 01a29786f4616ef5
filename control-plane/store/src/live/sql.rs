//! Statements on reports and requests for both kinds of database.

use super::{LiveKind, LiveQuery, LiveWork, MAX_LISTED, MAX_STOPS, REPORT_LASTS, STOPS_OVERLAP, StopRequest};
use crate::calls::CallStatement;

/// Rows of one INSERT; each number of rows is a text of its own.
pub(crate) const INSERT_ROWS: usize = 50;

pub(crate) fn delete_report(writer: [u8; 16]) -> CallStatement {
    statement!("DELETE FROM live_work WHERE writer = $1", writer)
}

/// Inserts the work of a report, at most [`INSERT_ROWS`].
pub(crate) fn insert(writer: [u8; 16], work: &[LiveWork]) -> CallStatement {
    let row = |place: usize| {
        let values: Vec<String> = (3..13).map(|value| format!("${}", place * 10 + value)).collect();
        format!("($1, {}, now_ms() + $2)", values.join(", "))
    };
    let rows: Vec<String> = (0..work.len()).map(row).collect();
    let text = format!(
        "INSERT INTO live_work (writer, kind, id, org, user_name, issuer, server, primitive, protocol, state, since_ms, \
         expires_ms) VALUES {}",
        rows.join(", ")
    );
    let statement = CallStatement::new(text).bind(writer).bind(REPORT_LASTS);
    work.iter().fold(statement, |statement, one| {
        statement
            .bind(one.kind.as_str())
            .bind(one.id.as_str())
            .bind(one.org.as_str())
            .bind(one.user.as_str())
            .bind(one.issuer.as_str())
            .bind(one.server.as_str())
            .bind(one.primitive.as_str())
            .bind(one.protocol.as_str())
            .bind(one.state.as_str())
            .bind(one.since_ms)
    })
}

pub(crate) fn select(query: &LiveQuery) -> CallStatement {
    let of_org = if query.org.is_some() { "org = $7 AND " } else { "" };
    let text = format!(
        "SELECT kind, id, org, user_name, issuer, server, primitive, protocol, state, since_ms FROM live_work \
         WHERE {of_org}kind = $1 AND expires_ms > now_ms() AND ($2 = '' OR user_name = $2) AND ($3 = '' OR server = $3) \
         AND ($4 = '' OR primitive = $4 OR SUBSTR(primitive, 1, LENGTH($4) + 1) = $4 || '@') AND ($5 = '' OR id = $5) \
         ORDER BY since_ms, id LIMIT $6"
    );
    let filter = |value: &Option<String>| value.clone().unwrap_or_default();
    let statement = CallStatement::new(text)
        .bind(query.kind.as_str())
        .bind(filter(&query.user).as_str())
        .bind(filter(&query.server).as_str())
        .bind(filter(&query.primitive).as_str())
        .bind(filter(&query.id).as_str())
        .bind(i64::from(query.limit.clamp(1, MAX_LISTED)));
    match query.org.as_deref() {
        Some(org) => statement.bind(org),
        None => statement,
    }
}

/// Stores a request unless the org has too many; changes no row then.
pub(crate) fn request_stop(kind: LiveKind, id: &str, org: &str) -> CallStatement {
    statement!(
        "INSERT INTO stop_requests (kind, id, org, at_ms, expires_ms) \
         SELECT $1, $2, $3, now_ms(), now_ms() + $4 \
         WHERE (SELECT COUNT(*) FROM stop_requests s WHERE s.org = $3 AND s.expires_ms > now_ms()) < $5 \
         ON CONFLICT (org, kind, id) DO UPDATE SET at_ms = excluded.at_ms, expires_ms = excluded.expires_ms",
        kind.as_str(),
        id,
        org,
        kind.stop_lasts(),
        MAX_STOPS
    )
}

pub(crate) fn stop_requests(after_ms: i64, last: Option<&StopRequest>) -> CallStatement {
    let beyond = if last.is_some() { " AND (at_ms, org, kind, id) > ($4, $5, $6, $7)" } else { "" };
    let text = format!(
        "SELECT kind, id, org, at_ms FROM stop_requests \
         WHERE at_ms > CASE WHEN $1 < now_ms() - $2 THEN $1 ELSE now_ms() - $2 END AND expires_ms > now_ms(){beyond} \
         ORDER BY at_ms, org, kind, id LIMIT $3"
    );
    let page = CallStatement::new(text).bind(after_ms).bind(STOPS_OVERLAP).bind(i64::from(MAX_LISTED));
    match last {
        Some(StopRequest { kind, id, org, at_ms }) => {
            page.bind(*at_ms).bind(org.as_str()).bind(kind.as_str()).bind(id.as_str())
        }
        None => page,
    }
}

pub(crate) fn delete_expired_work() -> CallStatement {
    CallStatement::new("DELETE FROM live_work WHERE expires_ms <= now_ms()")
}

pub(crate) fn delete_expired_stops() -> CallStatement {
    CallStatement::new("DELETE FROM stop_requests WHERE expires_ms <= now_ms()")
}

/// Implements [`super::LiveStore`] for a store: its statements in the words of `$words` (`sqlite` or `postgres`), its pools for
/// writes and reads, and the statement that begins a transaction.
macro_rules! live_store {
    ($store:ty, $words:ident, $write:ident, $read:ident, $begin:literal) => {
        impl $store {
            async fn replace_report(
                &self,
                writer: [u8; 16],
                work: &[$crate::live::LiveWork],
            ) -> sqlx::Result<()> {
                use $crate::live::sql;
                let mut transaction = self.$write.begin_with($begin).await?;
                sql::delete_report(writer).$words().execute(&mut *transaction).await?;
                for some in work.chunks(sql::INSERT_ROWS) {
                    // The text depends on the number of rows: cached, it would evict a statement that is used again.
                    let insert = sql::insert(writer, some).$words().persistent(false);
                    insert.execute(&mut *transaction).await?;
                }
                transaction.commit().await
            }
        }

        #[async_trait::async_trait]
        impl $crate::live::LiveStore for $store {
            async fn report_live(
                &self,
                writer: [u8; 16],
                work: &[$crate::live::LiveWork],
            ) -> Result<(), $crate::live::LiveError> {
                Ok(self.replace_report(writer, work).await?)
            }

            async fn live(
                &self,
                query: &$crate::live::LiveQuery,
            ) -> Result<Vec<$crate::live::LiveWork>, $crate::live::LiveError> {
                let select = $crate::live::sql::select(query).$words();
                let rows = select.fetch_all(&self.$read).await?;
                Ok(rows.iter().map($crate::live::read_work).collect::<sqlx::Result<_>>()?)
            }

            async fn request_stop(
                &self,
                kind: $crate::live::LiveKind,
                id: &str,
                org: &str,
            ) -> Result<(), $crate::live::LiveError> {
                let request = $crate::live::sql::request_stop(kind, id, org).$words();
                match request.execute(&self.$write).await?.rows_affected() {
                    0 => Err($crate::live::LiveError::TooMany),
                    _ => Ok(()),
                }
            }

            async fn stop_requests(
                &self,
                after_ms: i64,
                last: Option<&$crate::live::StopRequest>,
            ) -> Result<Vec<$crate::live::StopRequest>, $crate::live::LiveError> {
                let select = $crate::live::sql::stop_requests(after_ms, last).$words();
                let rows = select.fetch_all(&self.$read).await?;
                Ok(rows.iter().map($crate::live::read_stop).collect::<sqlx::Result<_>>()?)
            }

            async fn sweep_live(&self) -> Result<(), $crate::live::LiveError> {
                use $crate::live::sql;
                sql::delete_expired_work().$words().execute(&self.$write).await?;
                sql::delete_expired_stops().$words().execute(&self.$write).await?;
                Ok(())
            }
        }
    };
}

pub(crate) use live_store;
