//! Permits to ask an issuer, so that each is asked by a few at a time and a slow one holds up nobody else's.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Issuers with permits; beyond them those that nobody uses go first.
const MAX_ISSUERS: usize = 1_024;

pub(super) struct Permits {
    at_once: usize,
    by_issuer: HashMap<String, Arc<Semaphore>>,
}

impl Permits {
    /// `at_once` questions to one issuer at a time.
    pub(super) fn new(at_once: usize) -> Permits {
        Permits { at_once, by_issuer: HashMap::new() }
    }

    /// Permits to ask the issuer of this name.
    pub(super) fn of(&mut self, issuer: &str) -> Arc<Semaphore> {
        if self.by_issuer.len() >= MAX_ISSUERS && !self.by_issuer.contains_key(issuer) {
            self.by_issuer.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        let permits = self.by_issuer.entry(issuer.to_owned());
        Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(self.at_once))))
    }
}
