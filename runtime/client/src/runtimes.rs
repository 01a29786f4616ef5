//! The language runtimes that a gateway uses: which of them run a language, by their addresses or by their common
//! name.
//!
//! Refuses: plain TCP; a runtime is reached over a Unix socket or by mutual TLS. Keeps true: every address of a name
//! is a separate runtime, and proves the name by its certificate like a single one; a runtime whose address the name
//! does not have any more gets no new call and keeps its current ones. Of a language's runtimes, a better one is never
//! passed over for a worse one; among equally good ones two are drawn and the less busy one is taken, so that gateways
//! with the same information do not all choose the same one; a runtime's own queue length only breaks ties between equal
//! numbers of calls, because it is seconds old; a single runtime costs a call neither a lock nor a draw. Bound: runtimes
//! of a language.

pub mod metrics;
mod names;
mod runtime;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use asp_peer::Peer;
use asp_platform::runtime_health::RuntimeHealth;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub use names::{Resolve, System};
use runtime::Link;
pub use runtime::Runtime;

/// Maximum number of runtimes of one language: a gateway has a connection to each, and asks each for every plugin.
pub const MAX_RUNTIMES: usize = 64;

/// Location of a runtime, and the languages that it runs.
#[derive(Clone, Debug)]
pub struct RuntimeTarget {
    /// Any of `python`, `node`, `java`, `mcp-stdio`.
    pub languages: Vec<String>,
    /// URL: `unix:/path` or `https://host:port`. A host name stands for all its addresses.
    pub url: String,
    /// Identity of the gateway and trust in the runtime; required for `https`, refused for `unix`.
    pub peer: Option<Peer>,
}

/// Error in the configured runtimes.
#[derive(Debug, thiserror::Error)]
pub enum RuntimesError {
    #[error("runtime {0}: reach it by unix:/path, or by https:// with a client certificate")]
    Transport(String),
    #[error("runtime {url}: {source}")]
    Endpoint {
        url: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("language {language} has {url} twice")]
    Twice { language: String, url: String },
    #[error("language {0} has more than {MAX_RUNTIMES} runtimes")]
    TooMany(String),
}

/// All current runtimes, each once.
pub type Members = Arc<[Arc<Runtime>]>;

/// The runtimes of one gateway, by language.
pub struct Runtimes {
    shared: Arc<Shared>,
    _resolving: Vec<AbortOnDropHandle<()>>,
}

struct Shared {
    by_language: HashMap<String, Arc<Fleet>>,
    /// Current runtimes of each target.
    of_targets: Mutex<Vec<Vec<Arc<Runtime>>>>,
    all: watch::Sender<Members>,
}

impl Runtimes {
    /// Creates a set without runtimes: every plugin call is refused.
    pub fn none() -> Runtimes {
        Runtimes { shared: Arc::new(Shared::of(HashMap::new(), Vec::new())), _resolving: Vec::new() }
    }

    /// Creates the runtimes without connecting; the first call connects. Needs a running tokio runtime.
    pub fn new(targets: Vec<RuntimeTarget>) -> Result<Runtimes, RuntimesError> {
        Runtimes::resolved_by(targets, Arc::new(System))
    }

    /// Creates the runtimes with another resolver.
    pub fn resolved_by(
        targets: Vec<RuntimeTarget>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Runtimes, RuntimesError> {
        let targets = merged(targets)?;
        let mut by_language: HashMap<String, Arc<Fleet>> = HashMap::new();
        let mut of_targets = Vec::new();
        for target in &targets {
            for language in &target.languages {
                by_language.entry(language.clone()).or_default();
            }
            // Used by its name until that is resolved.
            of_targets.push(vec![Arc::new(Runtime::new(target, None)?)]);
        }
        let shared = Arc::new(Shared::of(by_language, of_targets));
        let mut _resolving = Vec::new();
        for (place, target) in targets.into_iter().enumerate() {
            if let Some(name) = names::Name::of(target, place) {
                let following = name.follow(resolver.clone(), Arc::downgrade(&shared));
                _resolving.push(AbortOnDropHandle::new(tokio::spawn(following)));
            }
        }
        Ok(Runtimes { shared, _resolving })
    }

    /// Returns all runtimes, each once, and follows their changes.
    pub fn all(&self) -> watch::Receiver<Members> {
        self.shared.all.subscribe()
    }

    pub fn get(&self, language: &str) -> Option<&Arc<Fleet>> {
        self.shared.by_language.get(language)
    }

    /// Asks every runtime for its health.
    pub async fn health(&self) -> Vec<RuntimeHealth> {
        let all = self.shared.all.borrow().clone();
        futures::future::join_all(all.iter().map(|runtime| runtime.health())).await
    }
}

impl Shared {
    fn of(by_language: HashMap<String, Arc<Fleet>>, of_targets: Vec<Vec<Arc<Runtime>>>) -> Shared {
        let shared = Shared {
            by_language,
            of_targets: Mutex::new(of_targets),
            all: watch::Sender::new(Arc::from([])),
        };
        shared.publish(&shared.of_targets.lock());
        shared
    }

    /// Replaces the runtimes of a target.
    fn replace(&self, place: usize, runtimes: Vec<Arc<Runtime>>) {
        let mut of_targets = self.of_targets.lock();
        if let Some(of_target) = of_targets.get_mut(place) {
            *of_target = runtimes;
        }
        self.publish(&of_targets);
    }

    /// Publishes the used runtimes, so that calls and the preparation of plugins always see the same ones.
    fn publish(&self, of_targets: &[Vec<Arc<Runtime>>]) {
        let mut used: Vec<Arc<Runtime>> = Vec::new();
        for (language, fleet) in &self.by_language {
            let of_language = of_targets.iter().flatten().filter(|runtime| runtime.runs(language));
            let members: Vec<_> = of_language.take(MAX_RUNTIMES).cloned().collect();
            used.extend(members.iter().cloned());
            fleet.replace(members);
        }
        // In the order of the configuration.
        let all = of_targets.iter().flatten().filter(|runtime| is_among(runtime, &used));
        let all: Vec<_> = all.cloned().collect();
        self.all.send_replace(all.into());
    }
}

/// Merges targets with the same URL.
fn merged(targets: Vec<RuntimeTarget>) -> Result<Vec<RuntimeTarget>, RuntimesError> {
    let mut merged: Vec<RuntimeTarget> = Vec::new();
    for target in targets {
        for language in &target.languages {
            let mut others = merged.iter().filter(|other| other.languages.contains(language));
            if others.any(|other| other.url == target.url) {
                return Err(RuntimesError::Twice { language: language.clone(), url: target.url.clone() });
            }
            let others = merged.iter().filter(|other| other.languages.contains(language));
            if others.count() >= MAX_RUNTIMES {
                return Err(RuntimesError::TooMany(language.clone()));
            }
        }
        match merged.iter_mut().find(|other| other.url == target.url) {
            Some(same) => same.languages.extend(target.languages),
            None => merged.push(target),
        }
    }
    Ok(merged)
}

/// Keeps the value that `begin` makes for each runtime, and drops it once the runtime is no longer a member. `meets`
/// is called with all members whenever they change, before the others; `gone` with each removed one. Never returns.
pub async fn keep_for_each<T>(
    mut all: watch::Receiver<Members>,
    meets: impl Fn(&Members),
    begin: impl Fn(&Arc<Runtime>) -> T,
    gone: impl Fn(&Runtime),
) {
    let mut kept: Vec<(Arc<Runtime>, T)> = Vec::new();
    loop {
        let members = all.borrow_and_update().clone();
        meets(&members);
        kept.retain(|(runtime, _)| {
            let stays = is_among(runtime, &members);
            if !stays {
                gone(runtime);
            }
            stays
        });
        for runtime in members.iter() {
            if !kept.iter().any(|(known, _)| Arc::ptr_eq(known, runtime)) {
                kept.push((runtime.clone(), begin(runtime)));
            }
        }
        // Err: the members will not change any more.
        if all.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Suitability of a runtime for a plugin, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suitability {
    /// The plugin is ready, with a worker.
    Ready,
    /// The runtime has not answered for the plugin.
    Unheard,
    /// The plugin is quarantined, drained, or fails to start.
    Troubled,
    /// The plugin cannot run there.
    Impossible,
}

/// Runtimes of a language.
#[derive(Default)]
pub struct Fleet {
    members: ArcSwap<Vec<Arc<Runtime>>>,
}

/// A call's share of a runtime's load, until this is dropped.
pub struct RuntimePermit(Arc<Runtime>);

impl Fleet {
    fn replace(&self, members: Vec<Arc<Runtime>>) {
        self.members.store(Arc::new(members));
    }

    pub fn has_several(&self) -> bool {
        self.members.load().len() > 1
    }

    pub fn all(&self) -> Vec<Arc<Runtime>> {
        self.members.load().to_vec()
    }

    /// Returns the only runtime; `None` if there are several, or none.
    pub fn only(&self) -> Option<Arc<Runtime>> {
        match self.members.load().as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    /// Chooses the best runtime that is not among `refused`: the call's own if it takes calls, otherwise the less
    /// busy of two of those that suit best.
    pub fn choose(
        &self,
        own: Option<&Arc<Runtime>>,
        refused: &[Arc<Runtime>],
        suits: impl Fn(&Runtime) -> Suitability,
    ) -> Option<RuntimePermit> {
        let members = self.members.load();
        let left = || members.iter().filter(|member| !is_among(member, refused));
        if let Some(own) = own
            && left().any(|member| Arc::ptr_eq(member, own))
            && own.condition() == Link::Answers
            && suits(own) != Suitability::Impossible
        {
            return Some(RuntimePermit::of(own.clone()));
        }
        let mut drawn = RuntimeDraw { rank: None, seen: 0, two: [None, None] };
        for member in left() {
            drawn.offer(member, rank(suits(member), member.condition()));
        }
        drawn.less_busy().cloned().map(RuntimePermit::of)
    }

    /// Returns when the first of them may be tried again; `None` if one may be tried now.
    pub fn retry_at(&self) -> Option<Instant> {
        let members = self.members.load();
        let mut first = None;
        for member in members.iter() {
            // One runtime that may be tried now is enough.
            let at = member.retry_at()?;
            first = Some(first.map_or(at, |first: Instant| first.min(at)));
        }
        first
    }
}

pub fn is_among(runtime: &Arc<Runtime>, others: &[Arc<Runtime>]) -> bool {
    others.iter().any(|other| Arc::ptr_eq(other, runtime))
}

/// Ranks a runtime; lower is better. A runtime that cannot run the plugin is last; then the connection decides, and
/// among those that answer, their suitability for the plugin. A new runtime answers within a moment, or does not.
fn rank(suits: Suitability, link: Link) -> (bool, Link, Suitability) {
    let told = if link == Link::Answers { suits } else { Suitability::Ready };
    (suits == Suitability::Impossible, link, told)
}

/// Two of the best runtimes, each as likely as any other.
struct RuntimeDraw<'a> {
    rank: Option<(bool, Link, Suitability)>,
    seen: usize,
    two: [Option<&'a Arc<Runtime>>; 2],
}

impl<'a> RuntimeDraw<'a> {
    fn offer(&mut self, runtime: &'a Arc<Runtime>, rank: (bool, Link, Suitability)) {
        if self.rank.is_none_or(|best| rank < best) {
            *self = RuntimeDraw { rank: Some(rank), seen: 1, two: [Some(runtime), None] };
        } else if self.rank == Some(rank) {
            self.seen += 1;
            let place = if self.seen == 2 { 1 } else { rand::random_range(0..self.seen) };
            if let Some(drawn) = self.two.get_mut(place) {
                *drawn = Some(runtime);
            }
        }
    }

    fn less_busy(&self) -> Option<&'a Arc<Runtime>> {
        match self.two {
            [Some(one), Some(other)] => {
                let first = one.load();
                let second = other.load();
                let takes_other = second < first || second == first && rand::random();
                Some(if takes_other { other } else { one })
            }
            [one, _] => one,
        }
    }
}

impl RuntimePermit {
    pub fn of(runtime: Arc<Runtime>) -> RuntimePermit {
        runtime.outstanding.fetch_add(1, Ordering::Relaxed);
        RuntimePermit(runtime)
    }
}

impl Deref for RuntimePermit {
    type Target = Arc<Runtime>;

    fn deref(&self) -> &Arc<Runtime> {
        &self.0
    }
}

impl Drop for RuntimePermit {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
