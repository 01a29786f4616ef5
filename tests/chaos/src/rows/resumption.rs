//! F31: streams of legacy sessions are cut at 200 random points, behind a real Envoy before two gateways. Each client comes
//! back with `Last-Event-ID`, and has each message once.

use anyhow::Result;
use asp_e2e::cluster::Cluster;
use asp_e2e::{http1, resumption, wait};

use crate::sheet::Sheet;

const CUTS: usize = 200;

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let cluster = Cluster::start_over_cable(2).await?;
    let token = cluster.token(&["--org", "acme", "--user", "alice", "--ttl", "1h"]).await?;
    let edge = cluster.envoy.address;
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
    let serves = || async {
        // Without a session there is nothing to listen to, and somebody says so.
        http1::get(edge, "/demo/mcp", &headers).await.ok().filter(|answer| answer.status == 400)
    };
    wait::until("the platform serves", wait::START, serves).await?;
    let seed = rand::random();
    eprintln!("seed {seed}");
    let figures = resumption::cut(&[edge], &token, CUTS, seed).await?;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.note("calls", figures.calls as f64);
        sheet.at_least("cuts", figures.cuts as f64, CUTS as f64);
        sheet.at_most("messages lost", figures.lost as f64, 0.0);
        sheet.at_most("messages that came twice", figures.repeated as f64, 0.0);
        sheet.at_most("messages that nobody was to get", figures.foreign as f64, 0.0);
    }
    Ok(())
}
