//! The language runtimes that a gateway uses: which of them run a language, by their addresses or by their common
//! name.
//!
//! Refuses: plain TCP; a runtime is reached over a Unix socket or by mutual TLS. Keeps true: every address of a name
//! is a separate runtime, and proves the name by its certificate like a single one; a runtime whose address the name
//! does not have any more gets no new call and keeps its current ones. Bound: runtimes of a language.

mod choice;
pub mod metrics;
mod names;
mod runtime;

use std::collections::HashMap;
use std::sync::Arc;

use asp_peer::Peer;
use asp_platform::runtime_health::RuntimeHealth;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

pub use choice::{Fleet, RuntimePermit, Suitability, is_among};
pub use names::{Resolve, System};
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

#[cfg(test)]
mod tests {
    use super::*;

    fn target(languages: &[&str], url: &str) -> RuntimeTarget {
        let languages = languages.iter().map(|language| (*language).to_owned()).collect();
        RuntimeTarget { languages, url: url.into(), peer: None }
    }

    #[tokio::test]
    async fn a_runtime_is_reached_by_socket_or_mutual_tls_only() {
        assert!(Runtimes::new(vec![target(&["python"], "unix:/run/asp/runtime.sock")]).is_ok());
        for url in ["http://127.0.0.1:1", "https://127.0.0.1:1", "127.0.0.1:1", ""] {
            assert!(Runtimes::new(vec![target(&["python"], url)]).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_language_has_several_runtimes_each_once_and_not_too_many() {
        let runtimes =
            Runtimes::new(vec![target(&["python", "node"], "unix:/a"), target(&["node"], "unix:/b")])
                .unwrap();
        let of = |language: &str| runtimes.get(language).unwrap().members().len();
        assert_eq!((of("python"), of("node"), runtimes.all().borrow().len()), (1, 2, 2));
        assert!(runtimes.get("python").unwrap().only().is_some() && runtimes.get("java").is_none());
        let same = Runtimes::new(vec![target(&["python"], "unix:/a"), target(&["node"], "unix:/a")]).unwrap();
        assert_eq!(same.all().borrow().len(), 1, "one process is one runtime");
        let twice = vec![target(&["python", "node"], "unix:/a"), target(&["node"], "unix:/a")];
        assert!(
            matches!(Runtimes::new(twice), Err(RuntimesError::Twice { language, .. }) if language == "node")
        );
        let many = |count: usize| (0..count).map(|n| target(&["node"], &format!("unix:/{n}"))).collect();
        assert!(Runtimes::new(many(MAX_RUNTIMES)).is_ok());
        assert!(matches!(Runtimes::new(many(MAX_RUNTIMES + 1)), Err(RuntimesError::TooMany(_))));
    }
}
