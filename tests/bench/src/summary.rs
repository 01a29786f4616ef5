//! One row and phase over all runs: what the raw data come to.

use asp_e2e::spread::Spread;
use serde::Serialize;

use crate::measurement::{Measurement, Phase};

/// One row and phase over all runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub row: &'static str,
    pub phase: Phase,
    pub requests: u64,
    pub errors: u64,
    pub requests_per_second: Option<Spread>,
    pub p50_us: Option<Spread>,
    pub p99_us: Option<Spread>,
    pub envoy_cpu_us: Option<Spread>,
    pub gateway_cpu_us: Option<Spread>,
    pub envoy_rss_mib: Option<Spread>,
    pub gateway_rss_mib: Option<Spread>,
}

impl Summary {
    pub(crate) fn empty(row: &'static str, phase: Phase) -> Summary {
        Summary {
            row,
            phase,
            requests: 0,
            errors: 0,
            requests_per_second: None,
            p50_us: None,
            p99_us: None,
            envoy_cpu_us: None,
            gateway_cpu_us: None,
            envoy_rss_mib: None,
            gateway_rss_mib: None,
        }
    }

    fn of(row: &'static str, phase: Phase, taken: &[&Measurement]) -> Summary {
        let spread =
            |figure: fn(&Measurement) -> Option<f64>| Spread::of(taken.iter().filter_map(|one| figure(one)));
        Summary {
            requests: taken.iter().map(|one| one.requests).sum(),
            errors: taken.iter().map(|one| one.errors).sum(),
            requests_per_second: spread(|one| Some(one.requests_per_second)),
            p50_us: spread(|one| Some(one.p50_us)),
            p99_us: spread(|one| Some(one.p99_us)),
            envoy_cpu_us: spread(|one| one.envoy_cpu_us),
            gateway_cpu_us: spread(|one| one.gateway_cpu_us),
            envoy_rss_mib: spread(|one| one.envoy_rss_kib.map(mib)),
            gateway_rss_mib: spread(|one| one.gateway_rss_kib.map(mib)),
            ..Summary::empty(row, phase)
        }
    }
}

/// In the order in which rows and phases were first measured.
pub(crate) fn summarise(measurements: &[Measurement]) -> Vec<Summary> {
    let mut keys = Vec::new();
    for measurement in measurements {
        let key = (measurement.row, measurement.phase);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.into_iter()
        .map(|(row, phase)| {
            let taken: Vec<&Measurement> =
                measurements.iter().filter(|one| (one.row, one.phase) == (row, phase)).collect();
            Summary::of(row, phase, &taken)
        })
        .collect()
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
