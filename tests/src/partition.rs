//! A partition between gateways and control plane, under load: what both `make test` and `make chaos` hold.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, subscribed_gateways};
use crate::http1::{self, Request};
use crate::wait;

/// Between two requests.
const PACE: Duration = Duration::from_millis(20);

/// What was sent and what became of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    pub seconds: f64,
    pub requests: u64,
    pub failures: Vec<String>,
}

/// Cuts the cable for `length`, or longer until the control plane hears no gateway, and sends `request` through Envoy all the
/// while, and until the gateways are back.
pub async fn hold(cluster: &Cluster, request: &Request, length: Duration) -> Result<Figures> {
    let cable = cluster.cable.as_ref().context("the cluster has a cable")?;
    let mut figures = Figures::default();
    let started = Instant::now();
    cable.cut();
    while started.elapsed() < length || !gateways(cluster).await?.is_empty() {
        let is_cut = started.elapsed() < length + wait::CONVERGE;
        ensure!(is_cut, "the control plane still hears gateways: nothing was cut");
        send(cluster, request, &mut figures).await;
    }
    cable.mend();
    let deadline = Instant::now() + wait::START;
    loop {
        // An attempt from the time of the cut may come through late, beside the one that counts.
        let streams = gateways(cluster).await?;
        let subscribed: HashSet<&String> = streams.iter().collect();
        if subscribed.len() == streams.len() && subscribed.len() == cluster.gateways.len() {
            break;
        }
        ensure!(Instant::now() < deadline, "the gateways do not come back; {}", cluster.control.tail());
        send(cluster, request, &mut figures).await;
    }
    figures.seconds = started.elapsed().as_secs_f64();
    Ok(figures)
}

async fn send(cluster: &Cluster, request: &Request, figures: &mut Figures) {
    figures.requests += 1;
    let failure = match http1::send(cluster.envoy.address, request).await {
        Ok(answer) if answer.status == 200 => None,
        Ok(answer) => Some(format!("{} {}", answer.status, answer.text())),
        Err(error) => Some(format!("{error:#}")),
    };
    // The first ones tell the story.
    figures.failures.extend(failure.filter(|_| figures.failures.len() < 100));
    sleep(PACE).await;
}

/// The address of the gateway of each subscription.
async fn gateways(cluster: &Cluster) -> Result<Vec<String>> {
    let snapshot = cluster.admin("/api/snapshot").await?;
    let gateways = subscribed_gateways(&snapshot).context("a list of subscribers")?;
    let address = |subscriber: &serde_json::Value| {
        Some(subscriber.get("address").and_then(|address| address.as_str())?.to_owned())
    };
    gateways.into_iter().map(|subscriber| address(subscriber).context("its address")).collect()
}
