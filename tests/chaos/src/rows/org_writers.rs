//! F36: ten, then thirty admins of orgs write all the limits that an org may hold, each without pause, while tokens of another
//! org are revoked. A revocation is in force soon, at thirty nearly as soon as at ten.
//!
//! Each crowd has a cluster of its own, so that both meet the same stored state. Once the writes of an org are bounded as
//! shipped, and once they are not.

use std::time::Duration;

use anyhow::{Context, Result};
use asp_e2e::cluster::Cluster;
use asp_e2e::message::{modern, revocation};
use asp_e2e::stores::Postgres;
use asp_e2e::writers::{MAX_LIMITS, Tally, Writers, limit_writes};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::enforcement::{Change, Delays, Endpoints};
use crate::sheet::Sheet;

/// Admins, each of an org of its own.
const FEW: usize = 10;
const MANY: usize = 30;
/// The most that the 99th percentile among the many may be, in percent of that among the few.
const GROWTH: f64 = 130.0;
/// Between two revocations, in milliseconds: at no fixed point of what the control plane does in turn.
const BETWEEN: std::ops::Range<u64> = 0..300;
/// The setting that takes the bound away from the writes of an org.
pub(super) const UNBOUNDED: (&str, &str) = ("ASP_ADMIN_WRITES_PER_SECOND", "0");

#[derive(Clone, Copy, Debug)]
enum Store {
    Sqlite,
    Postgres,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    store: Store,
    is_bounded: bool,
}

pub(crate) const ALL: [Setting; 4] = [
    Setting { store: Store::Sqlite, is_bounded: true },
    Setting { store: Store::Sqlite, is_bounded: false },
    Setting { store: Store::Postgres, is_bounded: true },
    Setting { store: Store::Postgres, is_bounded: false },
];

impl Setting {
    pub(crate) fn name(self) -> String {
        let store = match self.store {
            Store::Sqlite => "SQLite",
            Store::Postgres => "PostgreSQL",
        };
        format!("{store}, {}", bound_name(self.is_bounded))
    }
}

pub(super) fn bound_name(is_bounded: bool) -> &'static str {
    if is_bounded { "writes bounded" } else { "writes unbounded" }
}

pub(crate) async fn run(setting: Setting, revocations: usize, sheet: &mut Sheet) -> Result<()> {
    let few = crowd(setting, FEW, revocations, sheet).await?;
    let many = crowd(setting, MANY, revocations, sheet).await?;
    many.compare(&few, GROWTH, sheet, &format!("{MANY} admins, of that at {FEW}: revocations"))
}

/// Revokes tokens while so many admins write.
async fn crowd(setting: Setting, admins: usize, revocations: usize, sheet: &mut Sheet) -> Result<Delays> {
    // It outlives the cluster.
    let postgres = match setting.store {
        Store::Sqlite => None,
        Store::Postgres => Some(Postgres::start().await?),
    };
    let mut environment: Vec<(&'static str, String)> = Vec::new();
    environment.extend(postgres.as_ref().map(|postgres| ("ASP_DATABASE_URL", postgres.url())));
    if !setting.is_bounded {
        environment.push((UNBOUNDED.0, UNBOUNDED.1.to_owned()));
    }
    let cluster = Cluster::start_in(environment, 1).await?;
    let at = Endpoints::of(&cluster)?;
    let root = cluster.token(&["--admin", "--user", "root", "--ttl", "12h"]).await?;
    let mut leavers = Vec::new();
    for number in 0..revocations {
        let user = format!("leaver-{number}");
        leavers.push(cluster.token(&["--org", "acme", "--user", &user, "--ttl", "12h"]).await?);
    }
    let orgs: Vec<String> = (0..admins).map(|number| format!("crowd-{number}")).collect();
    let mut cycles = Vec::new();
    for org in &orgs {
        cycles.push(limit_writes(org, &cluster.org_admin(org).await?));
    }
    let writers = Writers::start(at.api, cycles);
    let began = Instant::now();
    writers.progress(1).await?;
    let mut delays = Delays::default();
    for token in &leavers {
        sleep(Duration::from_millis(rand::random_range(BETWEEN))).await;
        revoke(at, &root, token, &mut delays).await?;
    }
    let tallies = writers.stop().await?;
    report(admins, &tallies, began.elapsed(), sheet);
    delays.judge(sheet, &format!("{admins} admins: revocations"))?;
    hold_limits(&cluster, &orgs, sheet).await?;
    Ok(delays)
}

/// Revokes a token that edge and gateway accept.
async fn revoke(at: Endpoints, root: &str, token: &str, delays: &mut Delays) -> Result<()> {
    let probe = modern(token, "tools/list", json!({}), &[]);
    at.settle(&probe, 200).await?;
    let write = revocation(root, token);
    delays.measure(at, &Change { write: &write, probe: &probe, status: 401 }).await
}

#[expect(clippy::cast_precision_loss, reason = "numbers of writes")]
fn report(admins: usize, tallies: &[Tally], length: Duration, sheet: &mut Sheet) {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>() as f64;
    let accepted = sum(|tally| tally.accepted);
    sheet.at_least(&format!("{admins} admins: accepted writes"), accepted, admins as f64);
    sheet.note(&format!("{admins} admins: accepted writes a second"), accepted / length.as_secs_f64());
    sheet.note(&format!("{admins} admins: writes refused as too many"), sum(|tally| tally.refused));
    sheet.note(&format!("{admins} admins: writes that failed otherwise"), sum(|tally| tally.failed));
    if let Some(failure) = tallies.iter().find_map(|tally| tally.first_failure.as_ref()) {
        eprintln!("a write of an org's admin: {failure}");
    }
}

/// Checks that every org has as many limits as it wrote.
async fn hold_limits(cluster: &Cluster, orgs: &[String], sheet: &mut Sheet) -> Result<()> {
    let mut fewest = usize::MAX;
    for org in orgs {
        let limits = cluster.admin(&format!("/api/ratelimits/orgs/{org}")).await?;
        let limits = limits.as_array().map(Vec::len).with_context(|| brief(&limits))?;
        fewest = fewest.min(limits);
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of limits")]
    sheet.at_least(
        &format!("{} admins: limits that each org holds", orgs.len()),
        fewest as f64,
        MAX_LIMITS as f64,
    );
    Ok(())
}

/// The beginning of an answer that is no list.
fn brief(answer: &Value) -> String {
    answer.to_string().chars().take(200).collect()
}
