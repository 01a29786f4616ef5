//! Keys newer than the snapshot: if a token names one, the control plane is asked whether its issuer has it.
//!
//! Keeps true: concurrent requests about one issuer share one query, whose answer serves later requests for [`AGAIN`];
//! the control plane asks an issuer at most once in half a minute, however many queries arrive.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Time for which an answer is reused.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of remembered issuers; a snapshot has fewer.
const MAX_ISSUERS: usize = 200;

/// The queries to the control plane.
#[async_trait]
pub trait AskControl: Send + Sync {
    /// Returns the revision of the snapshot with the issuer's newest keys; `None` if the issuer could not be asked.
    async fn newest_keys(&self, issuer: &str) -> Option<u64>;
}

/// Queries to the control plane, shared among requests.
pub struct FreshKeys {
    control: Option<Arc<dyn AskControl>>,
    asked: Mutex<HashMap<String, Arc<KeyQuery>>>,
}

struct KeyQuery {
    at: Instant,
    answer: OnceCell<Option<u64>>,
}

impl FreshKeys {
    pub(super) fn new(control: Option<Arc<dyn AskControl>>) -> FreshKeys {
        FreshKeys { control, asked: Mutex::default() }
    }

    /// Returns the revision of the snapshot with the issuer's newest keys; `None` if there are none to wait for.
    pub async fn of(&self, issuer: &str) -> Option<u64> {
        let control = self.control.as_ref()?;
        let question = self.question(issuer);
        *question.answer.get_or_init(|| control.newest_keys(issuer)).await
    }

    /// Returns the open or recently answered query, otherwise a new one.
    fn question(&self, issuer: &str) -> Arc<KeyQuery> {
        let now = Instant::now();
        let mut asked = self.asked.lock();
        let stands = |question: &&Arc<KeyQuery>| !question.answer.initialized() || question.at + AGAIN > now;
        if let Some(question) = asked.get(issuer).filter(stands) {
            return question.clone();
        }
        if asked.len() >= MAX_ISSUERS {
            asked.retain(|_, question| stands(&&*question));
        }
        let question = Arc::new(KeyQuery { at: now, answer: OnceCell::new() });
        asked.insert(issuer.to_owned(), question.clone());
        question
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct CountingControl(AtomicU64);

    #[async_trait]
    impl AskControl for CountingControl {
        async fn newest_keys(&self, _: &str) -> Option<u64> {
            tokio::task::yield_now().await;
            Some(self.0.fetch_add(1, Ordering::SeqCst) + 1)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_for_one_issuer_ask_once() {
        let counted = Arc::new(CountingControl::default());
        let keys = FreshKeys::new(Some(counted.clone()));
        let all = futures::future::join_all((0..100).map(|_| keys.of("login"))).await;
        assert!(all.iter().all(|revision| *revision == Some(1)), "{all:?}");
        assert_eq!(keys.of("login").await, Some(1), "a moment later");
        assert_eq!(keys.of("other").await, Some(2));
        tokio::time::advance(AGAIN * 2).await;
        assert_eq!(keys.of("login").await, Some(3));
        assert_eq!(FreshKeys::new(None).of("login").await, None);
    }
}
