//! [`GatewayRegistry`] on PostgreSQL.
//!
//! Keeps true: times are by the database's clock.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row};

use super::within;
use crate::clock::milliseconds;
use crate::gateway_registry::{
    GatewayRegistry, GatewayReport, KEPT, KnownGateway, MAX_GATEWAYS, Unavailable,
};

/// Records gateways. A control plane that holds the newest stream of a gateway corrects its own entry, because its
/// clock, or the database's, may have been set. For the same reason a shutdown that is announced more than a minute from
/// now does not count.
const RECORD: &str = "INSERT INTO heard_gateways AS g (pool, address, heard_ms, left_ms, opened_ms, heard_by) \
     SELECT pool, address, now_ms(), opened, now_ms() + opened, $4 FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[]) \
     AS h (pool, address, opened) \
     ON CONFLICT (pool, address) DO UPDATE SET heard_ms = excluded.heard_ms, \
     left_ms = CASE WHEN g.left_ms > now_ms() + excluded.left_ms AND g.left_ms <= now_ms() + 60000 \
     THEN g.left_ms ELSE 0 END, \
     opened_ms = CASE WHEN g.heard_by = excluded.heard_by OR g.opened_ms < excluded.opened_ms \
     THEN excluded.opened_ms ELSE g.opened_ms END, \
     heard_by = CASE WHEN g.opened_ms < excluded.opened_ms THEN excluded.heard_by ELSE g.heard_by END";

/// Registry of the gateways that control planes on this database are connected to.
pub struct PostgresGateways {
    pub(super) pool: PgPool,
    /// Timeout of a statement.
    pub(super) longest: Duration,
}

from_failure!(sqlx::Error => Unavailable);

#[async_trait]
impl GatewayRegistry for PostgresGateways {
    async fn report(&self, control: &str, reports: &[GatewayReport]) -> Result<(), Unavailable> {
        let past = query!("DELETE FROM heard_gateways WHERE heard_ms <= now_ms() - $1", milliseconds(KEPT));
        within(self.longest, past.execute(&self.pool)).await?;
        let texts =
            |of: fn(&GatewayReport) -> &String| reports.iter().map(of).cloned().collect::<Vec<String>>();
        // Negative: relative to now.
        let opened: Vec<i64> = reports.iter().map(|report| -milliseconds(report.opened)).collect();
        let pools = texts(|report| &report.pool);
        let addresses = texts(|report| &report.address);
        let said = query!(RECORD, pools, addresses, opened, control).execute(&self.pool);
        within(self.longest, said).await?;
        Ok(())
    }

    async fn leave(&self, pool: &str, address: &str, ago: Duration) -> Result<(), Unavailable> {
        let said = "INSERT INTO heard_gateways (pool, address, heard_ms, left_ms) VALUES ($1, $2, now_ms(), now_ms() - $3) \
             ON CONFLICT (pool, address) DO UPDATE SET heard_ms = excluded.heard_ms, left_ms = excluded.left_ms";
        let said = query!(said, pool.to_owned(), address.to_owned(), milliseconds(ago)).execute(&self.pool);
        within(self.longest, said).await?;
        Ok(())
    }

    async fn list_recent(&self, within_time: Duration) -> Result<Vec<KnownGateway>, Unavailable> {
        let rows = "SELECT pool, address, now_ms() - heard_ms AS silent, \
             CASE WHEN left_ms > 0 THEN now_ms() - left_ms END AS gone, heard_by FROM heard_gateways \
             WHERE heard_ms > now_ms() - $1 ORDER BY heard_ms DESC LIMIT $2";
        let rows = query!(rows, milliseconds(within_time), i64::from(MAX_GATEWAYS)).fetch_all(&self.pool);
        let rows = within(self.longest, rows).await?;
        Ok(rows.iter().map(read_row).collect::<sqlx::Result<_>>()?)
    }
}

fn read_row(row: &PgRow) -> sqlx::Result<KnownGateway> {
    let time = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    Ok(KnownGateway {
        pool: row.try_get("pool")?,
        address: row.try_get("address")?,
        silent: time(row.try_get("silent")?),
        left: row.try_get::<Option<i64>, _>("gone")?.map(time),
        follows: row.try_get("heard_by")?,
    })
}
