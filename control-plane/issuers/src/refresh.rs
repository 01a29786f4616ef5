//! Keeps published keys of issuers up to date: fetches them periodically, and sooner if a caller needs a newer one.
//!
//! Keeps true: issuers are fetched independently, so that a slow one does not delay others. A failing one is retried
//! with growing, jittered backoff, so that its return causes no stampede. Fetches on request happen at most once within
//! [`ASKED_GAP`]. A key set without any usable key replaces nothing.

#[cfg(feature = "testkit")]
mod testkit;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::clock;
use asp_store::control::sql::ControlStore;
use asp_store::control::{Change, IssuerKeysRecord, Note, Side, StoreError};
use asp_xds::keys::RefreshKeys;
use async_trait::async_trait;
use parking_lot::Mutex;
use rand::RngExt as _;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fetch::Fetcher;
use super::keys;
use super::trust::{FetchedIssuer, STALE, Trust};

/// Interval of fetches.
pub const FRESH: Duration = Duration::from_secs(600);
/// Minimum time between two fetches of an issuer on request.
pub const ASKED_GAP: Duration = Duration::from_secs(30);
/// Backoff after a failure, doubled with each further one.
const RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Interval of checks for due fetches.
const LOOK: Duration = Duration::from_secs(1);

type Key = (Side, String);

/// Fetches keys of issuers and stores them.
pub struct Keeper {
    store: Arc<ControlStore>,
    trust: Trust,
    fetcher: Fetcher,
    /// Called when a fetch changed the store.
    news: Box<dyn Fn() + Send + Sync>,
    known: Mutex<HashMap<Key, Arc<FetchState>>>,
    wake: Notify,
}

/// Fetches of one issuer by this process.
struct FetchState {
    /// Held during a fetch.
    fetching: tokio::sync::Mutex<()>,
    standing: Mutex<FetchStatus>,
}

/// Status of an issuer's fetches.
#[derive(Clone, Debug)]
pub struct FetchStatus {
    /// Fetched URL; with another URL it is another issuer.
    source: String,
    /// Time of the last fetch.
    asked: Option<Instant>,
    next: Instant,
    failures: u32,
    /// Fault of the last fetch; `None` if it succeeded, or there was none.
    pub fault: Option<String>,
    /// Store revision of its newest keys; 0 if they are older than this process.
    revision: u64,
    /// Time of the last successful fetch known to this process, in Unix milliseconds.
    heard: u64,
}

impl Keeper {
    /// Creates a keeper; `news` is called when the store has a new revision.
    pub fn new(
        store: Arc<ControlStore>,
        trust: Trust,
        fetcher: Fetcher,
        news: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Keeper> {
        let news = Box::new(news);
        Arc::new(Keeper { store, trust, fetcher, news, known: Mutex::default(), wake: Notify::new() })
    }

    pub fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    /// Wakes the keeper because issuers have changed.
    pub fn changed(&self) {
        self.wake.notify_one();
    }

    /// Returns the fault of an issuer's last fetch.
    pub fn fault(&self, side: Side, name: &str) -> Option<String> {
        let known = self.known.lock().get(&(side, name.to_owned())).cloned()?;
        let standing = known.standing.lock();
        standing.fault.clone()
    }

    /// Fetches keys when they are due, until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let asking = TaskTracker::new();
        loop {
            self.end_stale().await;
            for (wanted, asked) in self.due() {
                let keeper = Arc::clone(&self);
                let stop = stop.clone();
                asking.spawn(async move {
                    // A fetch is already running.
                    let Ok(_fetching) = asked.fetching.try_lock() else { return };
                    stop.run_until_cancelled(keeper.fetch_and_store(&wanted, &asked)).await;
                });
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        asking.close();
        asking.wait().await;
    }

    /// Returns the issuers that are due; forgets deleted issuers.
    fn due(&self) -> Vec<(FetchedIssuer, Arc<FetchState>)> {
        let in_force = self.trust.in_force();
        let now = Instant::now();
        self.known.lock().retain(|(side, name), _| {
            in_force.wanted.iter().any(|wanted| wanted.side == *side && wanted.name == *name)
        });
        let mut due = Vec::new();
        for wanted in &in_force.wanted {
            let asked = self.entry(wanted, now);
            if asked.standing.lock().next <= now {
                due.push((wanted.clone(), asked));
            }
        }
        due
    }

    /// Triggers a new snapshot for issuers whose keys in force were fetched too long ago.
    async fn end_stale(&self) {
        let now = self.trust.clock().now_ms();
        let stale = u64::try_from(STALE.as_millis()).unwrap_or(u64::MAX);
        let in_force = self.trust.in_force();
        for wanted in in_force.wanted.iter().filter(|wanted| wanted.keys > 0) {
            let asked = self.entry(wanted, Instant::now());
            {
                let mut standing = asked.standing.lock();
                standing.heard = standing.heard.max(wanted.fetched_at);
                if standing.heard.saturating_add(stale) > now {
                    continue;
                }
                // Another process may have fetched it since. Then the new snapshot has those keys, and this check
                // repeats later.
                standing.heard = now;
            }
            self.note(wanted, "issuer.stale").await;
        }
    }

    /// Advances the store's revision for an event that changes no row, so that the snapshot is rebuilt; the audit
    /// records why.
    async fn note(&self, wanted: &FetchedIssuer, action: &str) -> Option<u64> {
        let resource = format!("issuer/{}/{}", wanted.side.as_str(), wanted.name);
        let source = wanted.source.url().unwrap_or_default();
        let note = Note { action, resource: &resource, org: "", detail: source };
        match self.store.note(&change(), note).await {
            Ok(written) => {
                (self.news)();
                Some(written.revision)
            }
            Err(error) => {
                tracing::error!(
                    issuer = %wanted.name, %error,
                    "the change of an issuer's keys in force could not be stored; check the database"
                );
                None
            }
        }
    }

    fn entry(&self, wanted: &FetchedIssuer, now: Instant) -> Arc<FetchState> {
        let known = &mut *self.known.lock();
        let source = wanted.source.url().unwrap_or_default();
        let key = (wanted.side, wanted.name.clone());
        if let Some(asked) = known.get(&key).filter(|asked| asked.standing.lock().source == source) {
            return Arc::clone(asked);
        }
        // Keys in the store may serve until their refresh is due.
        let age = Duration::from_millis(self.trust.clock().now_ms().saturating_sub(wanted.fetched_at));
        let standing = FetchStatus {
            source: source.to_owned(),
            asked: None,
            next: now + FRESH.saturating_sub(age),
            failures: 0,
            fault: None,
            revision: 0,
            heard: wanted.fetched_at,
        };
        let asked =
            Arc::new(FetchState { fetching: tokio::sync::Mutex::default(), standing: Mutex::new(standing) });
        known.insert(key, Arc::clone(&asked));
        asked
    }

    /// Fetches an issuer once and stores the result. The caller holds its lock.
    async fn fetch_and_store(&self, wanted: &FetchedIssuer, asked: &FetchState) {
        asked.standing.lock().asked = Some(Instant::now());
        let outcome = self.fetch(wanted).await;
        let now = Instant::now();
        let mut standing = asked.standing.lock();
        match outcome {
            Ok(revision) => {
                if standing.fault.take().is_some() {
                    tracing::info!(issuer = %wanted.name, side = wanted.side.as_str(), "an issuer's keys can be fetched again");
                }
                standing.failures = 0;
                standing.heard = self.trust.clock().now_ms();
                standing.revision = revision.unwrap_or(standing.revision);
                standing.next = now + with_jitter(FRESH);
            }
            Err(fault) => {
                if standing.fault.as_ref() != Some(&fault) {
                    tracing::warn!(
                        issuer = %wanted.name, side = wanted.side.as_str(), %fault, keys = wanted.keys,
                        "an issuer's keys could not be fetched, retrying; known keys stay in force for at most 70 \
                         minutes after their last fetch"
                    );
                }
                standing.fault = Some(fault);
                let wait = RETRY * 2_u32.saturating_pow(standing.failures.min(8));
                standing.failures = standing.failures.saturating_add(1);
                standing.next = now + with_jitter(wait.min(LONGEST_RETRY));
            }
        }
    }

    /// Fetches and stores; returns the revision of the change, `None` if there was none.
    async fn fetch(&self, wanted: &FetchedIssuer) -> Result<Option<u64>, String> {
        let mut fetched = self.fetcher.fetch(&wanted.source).await?;
        let (mut good, faults) = keys::usable_keys(&wanted.document, &fetched.jwks.keys);
        if good.is_empty() {
            return Err(format!("it has no usable key: {}", faults.join("; ")));
        }
        // Unused keys and a different order are not a change.
        good.sort_by(|a, b| a.kid.cmp(&b.kid));
        fetched.jwks.keys = good.into_iter().map(|key| key.jwk).collect();
        let content = serde_json::to_string(&fetched).map_err(|error| error.to_string())?;
        let record = IssuerKeysRecord {
            side: wanted.side,
            name: wanted.name.clone(),
            source: wanted.source.url().unwrap_or_default().to_owned(),
            content,
            fetched_at: self.trust.clock().now_ms(),
        };
        let stored = |error: StoreError| format!("its keys could not be stored: {error}");
        let written = self.store.put_issuer_keys(&change(), &record).await.map_err(stored)?;
        if !written.changed {
            // The keys were out of force, and have not changed.
            let is_back = wanted.keys == 0;
            return Ok(if is_back { self.note(wanted, "issuer.back").await } else { None });
        }
        (self.news)();
        Ok(Some(written.revision))
    }
}

fn change() -> Change {
    Change::unconditional("issuer-keys", clock::now_ms())
}

#[async_trait]
impl RefreshKeys for Keeper {
    async fn refresh(&self, issuer: &str) -> u64 {
        self.refresh_of(Side::Clients, issuer).await
    }
}

impl Keeper {
    /// Fetches an issuer's keys, unless that was done a moment ago; returns the store revision that has them, 0 if it
    /// is not known.
    pub async fn refresh_of(&self, side: Side, issuer: &str) -> u64 {
        let in_force = self.trust.in_force();
        let wanted = in_force.wanted.iter().find(|wanted| wanted.side == side && wanted.name == issuer);
        let Some(wanted) = wanted else { return 0 };
        let asked = self.entry(wanted, Instant::now());
        // A caller that arrives during a fetch gets its result.
        let _fetching = asked.fetching.lock().await;
        let last = asked.standing.lock().asked;
        if last.is_none_or(|last| last.elapsed() >= ASKED_GAP) {
            self.fetch_and_store(wanted, &asked).await;
        }
        let standing = asked.standing.lock();
        standing.revision
    }
}

/// Adds jitter of up to a tenth, so that many do not fetch at once.
fn with_jitter(duration: Duration) -> Duration {
    duration.mul_f64(rand::rng().random_range(0.9..1.1))
}
