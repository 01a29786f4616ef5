//! [`GatewayRegistry`] of one process, for tests only.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{GatewayRegistry, GatewayReport, KEPT, KnownGateway, MAX_GATEWAYS, Unavailable};

struct GatewayRow {
    heard: Instant,
    left: Option<Instant>,
    /// Opening time of the newest stream, and the control plane that holds it.
    newest: Option<(Instant, String)>,
}

/// Gateways by pool and address.
#[derive(Default)]
pub struct MemoryGateways {
    rows: Mutex<BTreeMap<(String, String), GatewayRow>>,
}

#[async_trait]
impl GatewayRegistry for MemoryGateways {
    async fn report(&self, control: &str, reports: &[GatewayReport]) -> Result<(), Unavailable> {
        let now = Instant::now();
        let mut rows = self.rows.lock();
        rows.retain(|_, row| now.duration_since(row.heard) < KEPT);
        for GatewayReport { pool, address, opened } in reports {
            let row = rows.entry((pool.clone(), address.clone())).or_insert_with(|| GatewayRow {
                heard: now,
                left: None,
                newest: None,
            });
            row.heard = now;
            row.left = row.left.filter(|left| now.duration_since(*left) < *opened);
            let opened = now.checked_sub(*opened).unwrap_or(now);
            if row.newest.as_ref().is_none_or(|(newest, by)| by == control || opened > *newest) {
                row.newest = Some((opened, control.to_owned()));
            }
        }
        Ok(())
    }

    async fn leave(&self, pool: &str, address: &str, ago: Duration) -> Result<(), Unavailable> {
        let now = Instant::now();
        let left = now.checked_sub(ago).unwrap_or(now);
        let row = GatewayRow { heard: now, left: Some(left), newest: None };
        self.rows.lock().insert((pool.to_owned(), address.to_owned()), row);
        Ok(())
    }

    async fn list_recent(&self, within: Duration) -> Result<Vec<KnownGateway>, Unavailable> {
        let now = Instant::now();
        let rows = self.rows.lock();
        let mut known: Vec<KnownGateway> = rows
            .iter()
            .map(|((pool, address), row)| KnownGateway {
                pool: pool.clone(),
                address: address.clone(),
                silent: now.duration_since(row.heard),
                left: row.left.map(|left| now.duration_since(left)),
                follows: row.newest.as_ref().map(|(_, control)| control.clone()).unwrap_or_default(),
            })
            .filter(|known| known.silent < within)
            .collect();
        known.sort_by_key(|known| known.silent);
        known.truncate(usize::try_from(MAX_GATEWAYS).unwrap_or(usize::MAX));
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway_registry::suite;

    #[tokio::test]
    async fn the_port_suite_passes() {
        suite::run(&MemoryGateways::default()).await;
    }
}
