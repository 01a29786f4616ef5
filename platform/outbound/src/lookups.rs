//! Places of lookups of names, in all and of one holder, such as an org.
//!
//! Keeps true: a holder whose names nobody resolves takes its own places alone; a holder without lookups is not remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

pub(super) struct Lookups {
    all: Arc<Semaphore>,
    /// Maximum number of one holder.
    each: usize,
    /// Places of the holders that have or await some.
    holders: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Place of one lookup, given back on drop.
pub(super) struct LookupPlace {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl Lookups {
    pub(super) fn new(all: usize, each: usize) -> Lookups {
        Lookups { all: Arc::new(Semaphore::new(all)), each, holders: Mutex::default() }
    }

    /// Waits for a place: first for one of the holder, so that it holds none of all while it waits for its own.
    pub(super) async fn enter(&self, holder: Option<String>) -> Result<LookupPlace, AcquireError> {
        let own = match holder {
            Some(holder) => Some(self.of(holder).acquire_owned().await?),
            None => None,
        };
        Ok(LookupPlace { _own: own, _of_all: self.all.clone().acquire_owned().await? })
    }

    fn of(&self, holder: String) -> Arc<Semaphore> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.retain(|_, places| Arc::strong_count(places) > 1);
        holders.entry(holder).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_holder_takes_its_own_places_alone_and_is_forgotten() {
        let lookups = Lookups::new(3, 2);
        let enter = async |holder: Option<&str>| {
            let entering = lookups.enter(holder.map(str::to_owned));
            tokio::time::timeout(Duration::from_millis(50), entering).await.map(Result::unwrap).ok()
        };
        let own = [enter(Some("acme")).await.unwrap(), enter(Some("acme")).await.unwrap()];
        assert!(enter(Some("acme")).await.is_none());
        let other = enter(Some("globex")).await.unwrap();
        assert!(enter(None).await.is_none() && enter(Some("initech")).await.is_none(), "all are taken");
        drop(own);
        assert!(enter(Some("acme")).await.is_some() && enter(None).await.is_some());
        drop(other);
        assert!(enter(Some("initech")).await.is_some());
        assert_eq!(lookups.holders.lock().unwrap().len(), 1, "the others have none");
    }
}
