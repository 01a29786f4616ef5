//! Concurrency limit of name lookups.
//!
//! The system's resolver blocks a thread and cannot be cancelled: a lookup that nobody waits for any more continues.
//! Keeps true: each lookup holds its permit until it has really ended, so that names whose servers do not answer take
//! at most `OWN` threads for one worker, and `WHOLE` of the executor's 512 for all.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Semaphore;

const OWN: usize = 4;
const WHOLE: usize = 128;

/// The permits of all workers.
#[derive(Clone, Debug)]
pub struct Lookups(Arc<Semaphore>);

/// The permits of one worker.
#[derive(Debug)]
pub(super) struct Names {
    whole: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

impl Lookups {
    pub(super) fn of_worker(&self) -> Names {
        Names { whole: Arc::clone(&self.0), own: Arc::new(Semaphore::new(OWN)) }
    }
}

impl Default for Lookups {
    fn default() -> Self {
        Lookups(Arc::new(Semaphore::new(WHOLE)))
    }
}

impl Names {
    /// Waits for a permit and runs `lookup`, which continues with its permit even if this future is dropped.
    pub(super) async fn look_up<T: Send + 'static>(
        &self,
        lookup: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        // Err: impossible, the semaphores are never closed.
        let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
        let whole = Arc::clone(&self.whole).acquire_owned().await.ok()?;
        let running = tokio::spawn(async move {
            let found = lookup.await;
            drop((own, whole));
            found
        });
        running.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lookups_that_nobody_waits_for_any_more_keep_their_places() {
        let lookups = Lookups::default();
        let names = lookups.of_worker();
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..OWN * 3 {
            let begun = Arc::clone(&begun);
            let stuck = async move {
                begun.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            };
            assert!(timeout(Duration::from_secs(10), names.look_up(stuck)).await.is_err());
        }
        assert_eq!(begun.load(Ordering::Relaxed), OWN);
        let others = lookups.of_worker();
        assert_eq!(others.look_up(async { 7 }).await, Some(7), "another worker has permits of its own");
    }
}
