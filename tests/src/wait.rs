//! Waiting with a bound: polls a condition instead of sleeping for a guessed time.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Error, Result, anyhow, bail};
use tokio::time::{Instant, sleep};

/// Hang guard for anything that starts: ten times what it takes on a busy machine.
pub const START: Duration = Duration::from_secs(60);
/// Hang guard for a change to take effect, whose goal is one second, on a busy machine.
pub const CONVERGE: Duration = Duration::from_secs(30);

pub(crate) const POLL: Duration = Duration::from_millis(50);

/// Adds details to an error after its own words, such as the end of a log: a list of failures shows their first lines.
pub trait ErrorDetails<T> {
    fn with_details(self, details: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> ErrorDetails<T> for Result<T, E> {
    fn with_details(self, details: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| {
            let error: Error = error.into();
            anyhow!("{error:#}\n{}", details())
        })
    }
}

/// Waits for the next day, in UTC, if this one ends within `bound`: budgets, sums and pages of a day begin again at midnight.
pub async fn until_day_lasts(bound: Duration) -> Result<()> {
    const DAY: u64 = 86_400;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let left = DAY - now.as_secs() % DAY;
    if left <= bound.as_secs() {
        sleep(Duration::from_secs(left)).await;
    }
    Ok(())
}

/// Polls `probe` until it returns a value; fails with `what` when the bound has passed.
pub async fn until<T, F, P>(what: &str, bound: Duration, mut probe: P) -> Result<T>
where
    P: FnMut() -> F,
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + bound;
    loop {
        if let Some(value) = probe().await {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("{what}: not within {} s", bound.as_secs());
        }
        sleep(POLL).await;
    }
}
