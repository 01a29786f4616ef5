//! F21: calls run at three gateways and the edge, of a builtin tool and in a plugin's worker; their callers are revoked, blocked
//! or denied, and lose the call and every further one within a second, with Redis and without.

use anyhow::{Context, Result};
use asp_e2e::revoking::{Sample, Site, Work};
use asp_e2e::spread::percentile;
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::wait;
use rustix::process::Signal;

use crate::sheet::Sheet;

/// Bounds in seconds, from the admin's request.
const P99: f64 = 1.0;
const MAX: f64 = 5.0;
const AT_ONCE: usize = 5;
const GATEWAYS: usize = 3;

pub(crate) async fn run(has_redis: bool, samples: usize, sheet: &mut Sheet) -> Result<()> {
    let postgres = Postgres::start().await?;
    let mut redis = Redis::start().await?;
    let environment = vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())];
    let site = Site::start(environment, GATEWAYS).await?;
    if !has_redis {
        redis.process.signal(Signal::KILL)?;
        redis.process.wait(wait::CONVERGE).await?;
    }
    let taken = site.samples(0, samples, AT_ONCE).await?;
    let faults: Vec<String> =
        taken.iter().filter_map(|sample| sample.judge().err()).map(|fault| format!("{fault:#}")).collect();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.at_least("samples", taken.len() as f64, samples as f64);
        let of_plugins = taken.iter().filter(|one| one.work == Work::Plugin).count();
        sheet.at_least("of them calls in a worker", of_plugins as f64, samples as f64 / 5.0);
        sheet.at_most("samples with a wrong answer", faults.len() as f64, 0.0);
    }
    faults.into_iter().take(3).for_each(|fault| sheet.fault(fault));
    hold(sheet, "end of the running call", taken.iter().map(|one: &Sample| one.until_ended.as_secs_f64()))?;
    let in_workers = taken.iter().filter_map(|one| one.until_worker);
    hold(sheet, "end of the call in its worker", in_workers.map(|time| time.as_secs_f64()))?;
    hold(sheet, "refusal everywhere", taken.iter().map(|one| one.until_refused.as_secs_f64()))
}

fn hold(sheet: &mut Sheet, what: &str, values: impl Iterator<Item = f64>) -> Result<()> {
    let values: Vec<f64> = values.collect();
    let at = |share: f64| percentile(&values, share).context("no sample");
    sheet.note(&format!("seconds to the {what}, p50"), at(0.5)?);
    sheet.at_most(&format!("seconds to the {what}, p99"), at(0.99)?, P99);
    sheet.at_most(&format!("seconds to the {what}, longest"), at(1.0)?, MAX);
    Ok(())
}
