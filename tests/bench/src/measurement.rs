//! One row, one phase, one run: raw figures as they were taken.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::load::{self, Pace};
use crate::traffic::Traffic;
use crate::usage::{Processes, Reading};

/// What part of a row's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// Open loop; every token for the first time.
    Cold,
    /// Open loop; tokens seen before.
    Warm,
    /// Closed loop.
    Saturation,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Cold => "cold",
            Phase::Warm => "warm",
            Phase::Saturation => "saturated",
        }
    }
}

/// Raw figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub run: u32,
    pub row: &'static str,
    pub phase: Phase,
    pub connections: usize,
    pub requests: u64,
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    pub seconds: f64,
    pub requests_per_second: f64,
    /// Latency in microseconds; in an open loop from when the request was due.
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// CPU time of the process in microseconds per request.
    pub envoy_cpu_us: Option<f64>,
    pub gateway_cpu_us: Option<f64>,
    pub backend_cpu_us: Option<f64>,
    /// Resident memory at the end, in KiB.
    pub envoy_rss_kib: Option<u64>,
    pub gateway_rss_kib: Option<u64>,
}

/// Where a row is, and which processes work for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub row: &'static str,
    pub address: SocketAddr,
    pub processes: Processes,
}

/// Measures one phase.
pub(crate) async fn take(
    run: u32,
    place: Place,
    (phase, pace): (Phase, Pace),
    traffic: Traffic,
    connections: usize,
) -> Result<Measurement> {
    let before = place.processes.read()?;
    let address = place.address;
    let load = tokio::task::spawn_blocking(move || load::run(address, traffic, pace, connections));
    let outcome = load.await??;
    let after = place.processes.read()?;
    if outcome.requests == 0 {
        bail!("{}: no request was sent", place.row);
    }
    let per_request = |before: &Option<Reading>, after: &Option<Reading>| {
        let used = after.as_ref()?.cpu_nanos_since(before.as_ref()?);
        Some(used as f64 / 1000.0 / outcome.requests as f64)
    };
    let microseconds = |share| outcome.latency.value_at_quantile(share) as f64 / 1000.0;
    Ok(Measurement {
        run,
        row: place.row,
        phase,
        connections,
        requests: outcome.requests,
        errors: outcome.errors,
        first_error: outcome.first_error,
        seconds: outcome.seconds,
        requests_per_second: outcome.requests as f64 / outcome.seconds,
        p50_us: microseconds(0.5),
        p99_us: microseconds(0.99),
        max_us: outcome.latency.max() as f64 / 1000.0,
        envoy_cpu_us: per_request(&before.envoy, &after.envoy),
        gateway_cpu_us: per_request(&before.gateway, &after.gateway),
        backend_cpu_us: per_request(&before.backend, &after.backend),
        envoy_rss_kib: after.envoy.map(|reading| reading.rss_kib),
        gateway_rss_kib: after.gateway.map(|reading| reading.rss_kib),
    })
}
