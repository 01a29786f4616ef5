//! How long a change of policy takes until it is in force at the edge and at a gateway, counted from its request and from
//! its answer.
//!
//! Each probe takes a connection of its own, so that it may meet either worker of Envoy. A change is in force from the first
//! answer of the new kind that [`STREAK`] of them in a row begin with.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Request};
use asp_e2e::spread::percentile;
use asp_e2e::wait;
use tokio::time::{Instant, sleep};

use crate::sheet::Sheet;

/// Answers of the new kind in a row that show that both workers have changed: by chance one in a million.
const STREAK: u32 = 20;
/// Between two probes, so that they leave the processors to what is measured.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest time of a change, in milliseconds.
const BOUND_MS: f64 = 1_000.0;
/// Shorter times are compared as this one: below it they differ by the machine's scheduling.
const RESOLUTION_MS: f64 = 50.0;

/// The addresses of a cluster that a change passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoints {
    /// The admin API.
    pub api: SocketAddr,
    pub edge: SocketAddr,
    pub gateway: SocketAddr,
}

/// A change, and a request that shows whether it is in force.
pub(crate) struct Change<'a> {
    pub write: &'a Request,
    pub probe: &'a Request,
    /// Status of the probe's answers once it is in force; before, they have another.
    pub status: u16,
}

/// Times of all changes of one kind.
#[derive(Default)]
pub(crate) struct Delays {
    edge: Delay,
    gateway: Delay,
}

/// Times at one place, in milliseconds, one for each change.
#[derive(Default)]
struct Delay {
    from_request: Vec<f64>,
    from_answer: Vec<f64>,
}

impl Endpoints {
    pub(crate) fn of(cluster: &Cluster) -> Result<Endpoints> {
        Ok(Endpoints {
            api: SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin)),
            edge: cluster.envoy.address,
            gateway: cluster.gateways.first().context("a gateway")?.address,
        })
    }

    /// Waits until edge and gateway answer the probe with this status.
    pub(crate) async fn settle(self, probe: &Request, status: u16) -> Result<()> {
        in_force(self.edge, probe, status).await?;
        in_force(self.gateway, probe, status).await?;
        Ok(())
    }
}

impl Delays {
    /// Writes a change and adds the times that it took.
    pub(crate) async fn measure(&mut self, at: Endpoints, change: &Change<'_>) -> Result<()> {
        let Change { write, probe, status } = *change;
        let requested = Instant::now();
        let written = async {
            let answer = http1::send(at.api, write).await?;
            let answered = Instant::now();
            ensure!(answer.status < 300, "{}: {} {}", write.target, answer.status, answer.text());
            anyhow::Ok(answered)
        };
        let at_edge = in_force(at.edge, probe, status);
        let at_gateway = in_force(at.gateway, probe, status);
        let (answered, edge, gateway) = tokio::try_join!(written, at_edge, at_gateway)?;
        self.edge.add(requested, answered, edge);
        self.gateway.add(requested, answered, gateway);
        Ok(())
    }

    /// Reports the median and the 99th percentile, and holds the latter to a second.
    pub(crate) fn judge(&self, sheet: &mut Sheet, what: &str) -> Result<()> {
        for (name, values) in self.all() {
            let at = |share| percentile(values, share).context("no change was measured");
            sheet.note(&format!("{what}, {name}, p50, ms"), at(0.5)?);
            sheet.at_most(&format!("{what}, {name}, p99, ms"), at(0.99)?, BOUND_MS);
        }
        Ok(())
    }

    /// Holds each 99th percentile to a share of another measurement's, in percent.
    pub(crate) fn compare(&self, base: &Delays, percent: f64, sheet: &mut Sheet, what: &str) -> Result<()> {
        for ((name, values), (_, base)) in self.all().into_iter().zip(base.all()) {
            let p99 = |values: &[f64]| {
                percentile(values, 0.99)
                    .map(|value| value.max(RESOLUTION_MS))
                    .context("no change was measured")
            };
            sheet.at_most(&format!("{what}, {name}, p99, %"), p99(values)? / p99(base)? * 100.0, percent);
        }
        Ok(())
    }

    fn all(&self) -> [(&'static str, &[f64]); 4] {
        [
            ("edge, from the answer", self.edge.from_answer.as_slice()),
            ("edge, from the request", self.edge.from_request.as_slice()),
            ("gateway, from the answer", self.gateway.from_answer.as_slice()),
            ("gateway, from the request", self.gateway.from_request.as_slice()),
        ]
    }
}

impl Delay {
    /// Adds a change; one that was in force before its answer took no time from there.
    fn add(&mut self, requested: Instant, answered: Instant, in_force: Instant) {
        let millis = |since: Instant| in_force.saturating_duration_since(since).as_secs_f64() * 1_000.0;
        self.from_request.push(millis(requested));
        self.from_answer.push(millis(answered));
    }
}

/// Probes a place until all answers have this status; the arrival of the first of them.
pub(crate) async fn in_force(place: SocketAddr, probe: &Request, status: u16) -> Result<Instant> {
    let began = Instant::now();
    let mut first = None;
    let mut streak = 0;
    loop {
        let answer = http1::send(place, probe).await?;
        let arrived = Instant::now();
        if answer.status == status {
            let since = *first.get_or_insert(arrived);
            streak += 1;
            if streak == STREAK {
                return Ok(since);
            }
        } else {
            first = None;
            streak = 0;
        }
        ensure!(
            began.elapsed() < wait::CONVERGE,
            "{place} does not answer {status} within {} s but {} {}",
            wait::CONVERGE.as_secs(),
            answer.status,
            answer.text()
        );
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(values: &[f64]) -> Delays {
        let delay = || Delay { from_request: values.to_vec(), from_answer: values.to_vec() };
        Delays { edge: delay(), gateway: delay() }
    }

    #[test]
    fn a_change_that_takes_longer_than_a_second_is_a_miss() {
        let mut sheet = Sheet::default();
        delays(&[10.0, 1_000.0]).judge(&mut sheet, "changes").unwrap();
        assert!(!sheet.missed());
        delays(&[10.0, 1_001.0]).judge(&mut sheet, "changes").unwrap();
        assert!(sheet.missed());
        assert!(delays(&[]).judge(&mut Sheet::default(), "changes").is_err());
    }

    #[test]
    fn times_that_the_machine_cannot_tell_apart_are_equal() {
        let mut sheet = Sheet::default();
        delays(&[40.0]).compare(&delays(&[2.0]), 130.0, &mut sheet, "many").unwrap();
        delays(&[129.0]).compare(&delays(&[100.0]), 130.0, &mut sheet, "many").unwrap();
        assert!(!sheet.missed());
        delays(&[131.0]).compare(&delays(&[100.0]), 130.0, &mut sheet, "many").unwrap();
        assert!(sheet.missed());
    }
}
