//! Keeps the keys of issuers that publish them: fetches them in time, sooner where somebody needs a newer one.
//!
//! Keeps true: each issuer is asked on its own, a slow one holds up no other; one that fails is asked again later and
//! later, each time at a moment of its own, so that its return is no storm; what somebody asks for is fetched at most
//! once in [`ASKED_GAP`]; keys of which none can be used replace none.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_store::control::{Change, ControlStore, IssuerKeysRecord, Note, Precondition, Side, StoreError};
use async_trait::async_trait;
use parking_lot::Mutex;
use rand::Rng as _;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fetch::Fetcher;
use super::keys;
use super::trust::{STALE, Trust, Wanted};
use crate::clock;
use crate::xds::keys::RefreshKeys;

/// How often an issuer is asked.
pub const FRESH: Duration = Duration::from_secs(600);
/// How often at most somebody's need for a newer key leads to a request.
pub const ASKED_GAP: Duration = Duration::from_secs(30);
/// How long after a failure it is asked again, doubled with each further one.
const RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// How often it is looked who is to be asked.
const LOOK: Duration = Duration::from_secs(1);

type Key = (Side, String);

/// Fetches and keeps.
pub struct Keeper {
    store: Arc<dyn ControlStore>,
    trust: Trust,
    fetcher: Fetcher,
    /// Told when something was fetched that was not known.
    news: Box<dyn Fn() + Send + Sync>,
    known: Mutex<HashMap<Key, Arc<Asked>>>,
    wake: Notify,
}

/// One issuer, as this process has asked it.
struct Asked {
    /// Held while it is asked.
    turn: tokio::sync::Mutex<()>,
    standing: Mutex<Standing>,
}

/// How it stands with an issuer.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Where it is asked: another source is another issuer.
    source: String,
    /// When it was asked last.
    asked: Option<Instant>,
    next: Instant,
    failures: u32,
    /// Why it could not be asked; `None`: it could, or was not yet.
    pub fault: Option<String>,
    /// The revision of the store that has its newest keys; 0: they are older than this process.
    revision: u64,
    /// When it was heard last, in Unix milliseconds, as far as this process knows.
    heard: u64,
}

impl Keeper {
    /// `news` is called when the store has a new revision.
    pub fn new(
        store: Arc<dyn ControlStore>,
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

    /// Says that issuers have changed.
    pub fn changed(&self) {
        self.wake.notify_one();
    }

    /// Why an issuer could not be asked last.
    pub fn fault(&self, side: Side, name: &str) -> Option<String> {
        let known = self.known.lock().get(&(side, name.to_owned())).cloned()?;
        let standing = known.standing.lock();
        standing.fault.clone()
    }

    /// Asks issuers in time until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let asking = TaskTracker::new();
        loop {
            self.end_stale().await;
            for (wanted, asked) in self.due() {
                let keeper = Arc::clone(&self);
                let stop = stop.clone();
                asking.spawn(async move {
                    // Somebody else asks it already.
                    let Ok(_turn) = asked.turn.try_lock() else { return };
                    stop.run_until_cancelled(keeper.ask(&wanted, &asked)).await;
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

    /// Who is to be asked now; forgets those that are no issuers any more.
    fn due(&self) -> Vec<(Wanted, Arc<Asked>)> {
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

    /// Has the snapshot built anew where keys that are in force were heard of too long ago.
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
                // Another process may have heard it since: then the new snapshot has its keys, and this is asked again.
                standing.heard = now;
            }
            self.note(wanted, "issuer.stale").await;
        }
    }

    /// Moves the store's revision for what moves no row: the snapshot is built anew, and the audit says why.
    async fn note(&self, wanted: &Wanted, action: &str) -> Option<u64> {
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
                    "it could not be noted that an issuer's keys have ended or are back: check the database"
                );
                None
            }
        }
    }

    fn entry(&self, wanted: &Wanted, now: Instant) -> Arc<Asked> {
        let known = &mut *self.known.lock();
        let source = wanted.source.url().unwrap_or_default();
        let key = (wanted.side, wanted.name.clone());
        if let Some(asked) = known.get(&key).filter(|asked| asked.standing.lock().source == source) {
            return Arc::clone(asked);
        }
        // What the store has from before may serve until its time.
        let age = Duration::from_millis(self.trust.clock().now_ms().saturating_sub(wanted.fetched_at));
        let standing = Standing {
            source: source.to_owned(),
            asked: None,
            next: now + FRESH.saturating_sub(age),
            failures: 0,
            fault: None,
            revision: 0,
            heard: wanted.fetched_at,
        };
        let asked = Arc::new(Asked { turn: tokio::sync::Mutex::default(), standing: Mutex::new(standing) });
        known.insert(key, Arc::clone(&asked));
        asked
    }

    /// Asks it once, and keeps what it says. Its turn is the caller's.
    async fn ask(&self, wanted: &Wanted, asked: &Asked) {
        asked.standing.lock().asked = Some(Instant::now());
        let outcome = self.fetch(wanted).await;
        let now = Instant::now();
        let mut standing = asked.standing.lock();
        match outcome {
            Ok(revision) => {
                if standing.fault.take().is_some() {
                    tracing::info!(issuer = %wanted.name, side = wanted.side.as_str(), "an issuer's keys are fetched again");
                }
                standing.failures = 0;
                standing.heard = self.trust.clock().now_ms();
                standing.revision = revision.unwrap_or(standing.revision);
                standing.next = now + about(FRESH);
            }
            Err(fault) => {
                if standing.fault.as_ref() != Some(&fault) {
                    tracing::warn!(
                        issuer = %wanted.name, side = wanted.side.as_str(), %fault, keys = wanted.keys,
                        "an issuer's keys could not be fetched, and are asked for again; those that are known serve for at \
                         most 70 minutes after they were fetched"
                    );
                }
                standing.fault = Some(fault);
                let wait = RETRY * 2_u32.saturating_pow(standing.failures.min(8));
                standing.failures = standing.failures.saturating_add(1);
                standing.next = now + about(wait.min(LONGEST_RETRY));
            }
        }
    }

    /// The revision at which the news are stored; `None`: there are none.
    async fn fetch(&self, wanted: &Wanted) -> Result<Option<u64>, String> {
        let mut fetched = self.fetcher.fetch(&wanted.source).await?;
        let (mut good, faults) = keys::published(&wanted.document, &fetched.jwks.keys);
        if good.is_empty() {
            return Err(format!("none of its keys can be used: {}", faults.join("; ")));
        }
        // What nobody uses, and in which order it is said, is no change.
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
        let stored = |error: StoreError| format!("what it said could not be stored: {error}");
        let written = self.store.put_issuer_keys(&change(), &record).await.map_err(stored)?;
        if !written.changed {
            // They were out of force, and are the same.
            let is_back = wanted.keys == 0;
            return Ok(if is_back { self.note(wanted, "issuer.back").await } else { None });
        }
        (self.news)();
        Ok(Some(written.revision))
    }
}

fn change() -> Change {
    Change {
        actor: "issuer-keys".into(),
        at: clock::now_ms(),
        precondition: Precondition::None,
        evaluated_at: None,
    }
}

#[async_trait]
impl RefreshKeys for Keeper {
    async fn refresh(&self, issuer: &str) -> u64 {
        self.refresh_of(Side::Clients, issuer).await
    }
}

impl Keeper {
    /// Asks an issuer for its keys, unless that was done a moment ago; the store's revision that has them, 0 where nothing
    /// is known of it.
    pub async fn refresh_of(&self, side: Side, issuer: &str) -> u64 {
        let in_force = self.trust.in_force();
        let wanted = in_force.wanted.iter().find(|wanted| wanted.side == side && wanted.name == issuer);
        let Some(wanted) = wanted else { return 0 };
        let asked = self.entry(wanted, Instant::now());
        // Whoever comes while it is asked gets what is found.
        let _turn = asked.turn.lock().await;
        let last = asked.standing.lock().asked;
        if last.is_none_or(|last| last.elapsed() >= ASKED_GAP) {
            self.ask(wanted, &asked).await;
        }
        let standing = asked.standing.lock();
        standing.revision
    }
}

#[cfg(test)]
impl Keeper {
    /// Waits until everybody has been asked who is due.
    pub(crate) async fn settled(&self) {
        // The loop wakes, and what it begins takes its turn.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        let asked: Vec<Arc<Asked>> = self.known.lock().values().cloned().collect();
        for asked in asked {
            drop(asked.turn.lock().await);
        }
    }
}

/// A tenth more or less, so that many do not ask at once.
fn about(duration: Duration) -> Duration {
    duration.mul_f64(rand::rng().random_range(0.9..1.1))
}
