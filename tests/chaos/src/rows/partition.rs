//! F30: gateways and control plane cannot hear each other for as long as the plan says, behind a real Envoy. No request
//! fails, and both find each other again.

use std::time::Duration;

use anyhow::Result;
use asp_e2e::cluster::Cluster;
use asp_e2e::message::modern;
use asp_e2e::{http1, partition, wait};
use serde_json::json;

use crate::sheet::Sheet;

/// Longer than the longest row: the token must outlive it.
const TOKEN: &str = "12h";

pub(crate) async fn run(length: Duration, sheet: &mut Sheet) -> Result<()> {
    let cluster = Cluster::start_over_cable(2).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice", "--ttl", TOKEN]).await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    let edge = cluster.envoy.address;
    let serves = || async { http1::send(edge, &list).await.ok().filter(|answer| answer.status == 200) };
    wait::until("the platform serves", wait::START, serves).await?;
    let figures = partition::hold(&cluster, &list, length).await?;
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    {
        sheet.note("seconds", figures.seconds);
        sheet.at_least("requests", figures.requests as f64, 1.0);
        sheet.at_most("failed requests", figures.failures.len() as f64, 0.0);
    }
    for failure in figures.failures.iter().take(3) {
        sheet.fault(failure.clone());
    }
    Ok(())
}
