//! The order of a benchmark: start everything, find the rate, let the rows take turns, time enforcement.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use asp_e2e::tool::Build;
use asp_edge::testkit::SigningKey;

use crate::agreement::{self, Agreement};
use crate::backend;
use crate::chain::{Chain, OPEN_SERVER, Policy, SERVER, TOOL};
use crate::edge::{self, Edge};
use crate::enforcement::{self, Enforcement};
use crate::issuer::Issuer;
use crate::load::Pace;
use crate::measurement::{self, Measurement, Phase, Place};
use crate::path::Path;
use crate::plan::Plan;
use crate::progress::say;
use crate::traffic::{Caller, Shape, Traffic};
use crate::usage::Processes;

/// The rows of the main table, in their order; their traffic is legacy calls with ES256 tokens.
pub(crate) const MAIN: [&str; 6] = ["direct", "envoy", "native", "filter", "gateway", "path"];
/// Variants that show where the time goes.
pub(crate) const VARIANTS: [&str; 11] = [
    "envoy-modern",
    "envoy-get",
    "noop",
    "filter-open",
    "filter-open-modern",
    "filter-modern",
    "filter-get",
    "native-modern",
    "native-rs256",
    "filter-rs256",
    "path-modern",
];

/// Distinct tokens of the requests that are not measured.
const SETTLING_TOKENS: usize = 16;

/// One row: where it is sent to, and what.
#[derive(Clone, Copy)]
struct Row {
    place: Place,
    shape: Shape,
    server: &'static str,
    issuer: Signed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Signed {
    Es256,
    Rs256,
}

/// Everything that runs while rows are measured.
struct Bench {
    path: Path,
    issuers: [Issuer; 2],
    backend: SocketAddr,
    plain: Edge,
    native: Edge,
    filter: Edge,
    noop: Edge,
}

/// What the edge and the whole path gave; empty when they were not measured.
#[derive(Default)]
pub(crate) struct Found {
    pub rate: f64,
    pub agreements: Vec<Agreement>,
    pub measurements: Vec<Measurement>,
    pub enforcement: Vec<Enforcement>,
}

/// Measures every row and returns what was found.
pub(crate) async fn measure_all(plan: &Plan) -> Result<Found> {
    say("finding the rate");
    let bench = Bench::start().await?;
    let agreements = bench.agreements().await?;
    let capacity = bench.capacity(plan).await?;
    drop(bench);
    let rate = capacity * plan.fraction;
    say(&format!("the slowest row takes {capacity:.0} requests/s; the open loop sends {rate:.0}/s"));
    let mut measurements = Vec::new();
    let mut enforcement = Vec::new();
    for run in 1..=plan.runs {
        // Afresh: what one run left in caches and tables must not weigh on the next.
        let bench = Bench::start().await?;
        for row in bench.main_rows() {
            say(&format!("run {run}/{}: {}", plan.runs, row.place.row));
            measurements.extend(bench.turn(plan, run, row, rate).await?);
        }
        for row in bench.variants() {
            say(&format!("run {run}/{}: {}", plan.runs, row.place.row));
            measurements.extend(bench.variant(plan, run, row, rate).await?);
        }
        if run == plan.runs {
            say("timing the enforcement of changes");
            enforcement = enforcement::measure(&bench.path, plan.flips).await?;
        }
    }
    Ok(Found { rate, agreements, measurements, enforcement })
}

impl Bench {
    async fn start() -> Result<Bench> {
        let path = Path::start(Build::own()?).await.context("start the stack")?;
        // Only Envoy's rows know the one with an RSA key.
        let rsa = Issuer::new("bench-rsa", SigningKey::rs256());
        let issuers = [Issuer::development(path.stack.state.path())?, rsa];
        let backend = backend::start()?;
        let public_url = path.public_url();
        let policy = Policy { public_url: &public_url, issuers: &issuers };
        let plain = Edge::start(Chain::Plain, &policy, backend, edge::ONE).await?;
        let native = Edge::start(Chain::Native, &policy, backend, edge::ONE).await?;
        let filter = Edge::start(Chain::Filter, &policy, backend, edge::ONE).await?;
        let noop = Edge::start(Chain::Noop, &policy, backend, edge::ONE).await?;
        Ok(Bench { path, issuers, backend, plain, native, filter, noop })
    }

    async fn agreements(&self) -> Result<Vec<Agreement>> {
        let [issuer, _] = &self.issuers;
        agreement::check(self.native.address(), self.filter.address(), issuer, &self.path.public_url()).await
    }

    fn main_rows(&self) -> [Row; 6] {
        let nobody = Processes::default();
        let [direct, envoy, native, filter, gateway, path] = MAIN;
        [
            legacy(Place { row: direct, address: self.backend, processes: nobody }),
            legacy(of(envoy, &self.plain)),
            legacy(of(native, &self.native)),
            legacy(of(filter, &self.filter)),
            legacy(self.path.alone(gateway)),
            legacy(self.path.behind(path, &self.path.edge)),
        ]
    }

    fn variants(&self) -> [Row; 11] {
        let [
            envoy_modern,
            envoy_get,
            noop,
            open,
            open_modern,
            modern,
            get,
            native_modern,
            native_rs256,
            rs256,
            path_modern,
        ] = VARIANTS;
        let with = |shape, row: Row| Row { shape, ..row };
        let anybody = |row: Row| Row { server: OPEN_SERVER, ..row };
        let rsa = |row: Row| Row { issuer: Signed::Rs256, ..row };
        [
            with(Shape::Modern, legacy(of(envoy_modern, &self.plain))),
            with(Shape::Get, legacy(of(envoy_get, &self.plain))),
            legacy(of(noop, &self.noop)),
            anybody(legacy(of(open, &self.filter))),
            anybody(with(Shape::Modern, legacy(of(open_modern, &self.filter)))),
            with(Shape::Modern, legacy(of(modern, &self.filter))),
            with(Shape::Get, legacy(of(get, &self.filter))),
            with(Shape::Modern, legacy(of(native_modern, &self.native))),
            rsa(legacy(of(native_rs256, &self.native))),
            rsa(legacy(of(rs256, &self.filter))),
            with(Shape::Modern, legacy(self.path.behind(path_modern, &self.path.edge))),
        ]
    }

    /// Requests per second of the slowest main row in a closed loop.
    async fn capacity(&self, plan: &Plan) -> Result<f64> {
        let mut slowest = f64::INFINITY;
        for row in self.main_rows() {
            let traffic = self.traffic(row, self.callers(row, plan.tokens)?);
            let phase = (Phase::Saturation, Pace::Closed { length: plan.saturation });
            let taken = measurement::take(0, row.place, phase, traffic, plan.connections);
            slowest = slowest.min(taken.await?.requests_per_second);
        }
        Ok(slowest)
    }

    /// A main row's turn: cold, warm, saturated.
    async fn turn(&self, plan: &Plan, run: u32, row: Row, rate: f64) -> Result<Vec<Measurement>> {
        let warm = Pace::Open { rate, requests: requests(rate, plan.steady) };
        let phases = [
            (Phase::Cold, Pace::Open { rate, requests: plan.tokens as u64 }),
            (Phase::Warm, warm),
            (Phase::Saturation, Pace::Closed { length: plan.saturation }),
        ];
        self.phases(plan, run, row, &phases).await
    }

    /// A variant's turn: cold, warm.
    async fn variant(&self, plan: &Plan, run: u32, row: Row, rate: f64) -> Result<Vec<Measurement>> {
        let phases = [
            (Phase::Cold, Pace::Open { rate, requests: plan.tokens as u64 }),
            (Phase::Warm, Pace::Open { rate, requests: requests(rate, plan.variant) }),
        ];
        self.phases(plan, run, row, &phases).await
    }

    async fn phases(
        &self,
        plan: &Plan,
        run: u32,
        row: Row,
        phases: &[(Phase, Pace)],
    ) -> Result<Vec<Measurement>> {
        self.settle(plan, row).await?;
        let callers = self.callers(row, plan.tokens)?;
        let mut taken = Vec::new();
        for phase in phases {
            let traffic = self.traffic(row, callers.clone());
            let measurement = measurement::take(run, row.place, *phase, traffic, plan.connections).await;
            taken.push(measurement.with_context(|| format!("row {}", row.place.row))?);
        }
        Ok(taken)
    }

    /// Lets a fresh process do what it does once in its life (V8 compiles hot code a second time, connections
    /// and pools open), with other tokens than those that are measured.
    async fn settle(&self, plan: &Plan, row: Row) -> Result<()> {
        let traffic = self.traffic(row, self.callers(row, SETTLING_TOKENS)?);
        let phase = (Phase::Saturation, Pace::Closed { length: plan.settle });
        let taken = measurement::take(0, row.place, phase, traffic, plan.connections).await?;
        match taken.first_error {
            None => Ok(()),
            Some(error) => bail!("row {} does not work: {error}", row.place.row),
        }
    }

    fn callers(&self, row: Row, count: usize) -> Result<Vec<Caller>> {
        let [es256, rs256] = &self.issuers;
        let issuer = if row.issuer == Signed::Rs256 { rs256 } else { es256 };
        self.path.callers(issuer, count)
    }

    fn traffic(&self, row: Row, callers: Vec<Caller>) -> Traffic {
        let target = format!("/{}/mcp", row.server);
        Traffic { shape: row.shape, target, tool: TOOL, authority: self.path.authority(), callers }
    }
}

fn of(row: &'static str, edge: &Edge) -> Place {
    Place { row, address: edge.address(), processes: edge.processes() }
}

fn legacy(place: Place) -> Row {
    Row { place, shape: Shape::Legacy, server: SERVER, issuer: Signed::Es256 }
}

/// That are due within `length`.
pub(crate) fn requests(rate: f64, length: std::time::Duration) -> u64 {
    ((rate * length.as_secs_f64()) as u64).max(1)
}
