//! The ledger of read-only calls at one of several gateways.
//!
//! Keeps true: this process executes once per key at a time; an answer of another gateway is replayed unless it answers
//! a different request or an earlier version of the primitive; while a shard of the shared answers is not available, this
//! gateway continues alone for its orgs, and at most one call a second waits for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::{Answers, AnswersError, StoredAnswer};
use crate::availability::{Attempt, Availability};
use crate::ledger::{Answer, Claim, Holder, Ledger, LedgerKey, LedgerRequest, MemoryLedger, Result};

/// Keys of this process and the answers of all gateways.
pub struct QuickLedger {
    own: MemoryLedger,
    answers: Arc<dyn Answers>,
    availability: Availability,
}

impl QuickLedger {
    pub fn new(answers: Arc<dyn Answers>) -> QuickLedger {
        QuickLedger { own: MemoryLedger::default(), answers, availability: Availability::default() }
    }

    /// Returns another gateway's answer; `None` while the shared answers are not available.
    async fn find(&self, org: [u8; 16], key: LedgerKey) -> Option<StoredAnswer> {
        let shard = self.answers.shard(org);
        let attempt = self.availability.attempt(shard)?;
        let found = self.answers.find(org, key).await;
        self.noted(shard, attempt, found).flatten()
    }

    /// Shares an answer. Best effort: without it, another gateway repeats the read.
    async fn tell(&self, org: [u8; 16], key: LedgerKey, answered: StoredAnswer, keep: Duration) {
        let shard = self.answers.shard(org);
        if let Some(attempt) = self.availability.attempt(shard) {
            let kept = self.answers.keep(org, key, answered, keep).await;
            self.noted(shard, attempt, kept);
        }
    }

    fn noted<T>(&self, shard: u64, attempt: Attempt, answer: Result<T, AnswersError>) -> Option<T> {
        match answer {
            Ok(answer) => {
                if self.availability.answered(shard, attempt) {
                    tracing::info!("answers of other gateways are available again for read-only calls");
                }
                Some(answer)
            }
            Err(error) => {
                if self.availability.failed(shard) {
                    tracing::warn!(
                        %error,
                        "answers of other gateways are unavailable: a read-only call that is retried at another gateway runs again"
                    );
                }
                None
            }
        }
    }
}

#[async_trait]
impl Ledger for QuickLedger {
    async fn claim(
        &self,
        request: LedgerRequest,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim> {
        let claim = self.own.claim(request, holder, wait_until, lease).await?;
        if claim != Claim::New {
            return Ok(claim);
        }
        let found = self.find(holder.org, request.key).await;
        let Some(found) = found.filter(|found| found.hash == request.hash) else { return Ok(Claim::New) };
        self.own.release(request.key, holder).await?;
        Ok(Claim::Replay(found.answer))
    }

    async fn seize(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<bool> {
        self.own.seize(request, holder, lease).await
    }

    async fn reclaim(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<bool> {
        self.own.reclaim(request, holder, lease).await
    }

    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool> {
        self.own.renew(key, holder, lease).await
    }

    async fn complete(&self, key: LedgerKey, holder: Holder, answer: Answer, keep: Duration) -> Result<bool> {
        let hash = self.own.hash(key);
        let whole = answer.whole.clone();
        let completed = self.own.complete(key, holder, answer, keep).await?;
        if completed && let Some(hash) = hash {
            self.tell(holder.org, key, StoredAnswer { hash, answer: whole }, keep).await;
        }
        Ok(completed)
    }

    async fn answer(&self, request: LedgerRequest) -> Result<Option<Bytes>> {
        self.own.answer(request).await
    }

    async fn running(&self, request: LedgerRequest) -> Result<Option<[u8; 16]>> {
        self.own.running(request).await
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<()> {
        self.own.release(key, holder).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::answers::MemoryAnswers;
    use crate::availability::PROBE_EVERY;
    use crate::ledger::suite;

    const KEY: LedgerKey = LedgerKey([1; 32]);
    const LEASE: Duration = Duration::from_secs(60);

    fn holder(gateway: u8) -> Holder {
        Holder { call: [gateway; 16], owner: [gateway; 16], org: [1; 16] }
    }

    async fn claim(ledger: &QuickLedger, gateway: u8, hash: u8) -> Claim {
        ledger
            .claim(LedgerRequest { key: KEY, hash: [hash; 32] }, holder(gateway), Instant::now(), LEASE)
            .await
            .unwrap()
    }

    async fn complete(ledger: &QuickLedger, gateway: u8, answer: &'static [u8]) {
        let answer = Answer::whole(Bytes::from_static(answer));
        assert!(ledger.complete(KEY, holder(gateway), answer, LEASE).await.unwrap());
    }

    #[tokio::test]
    async fn what_one_gateway_answered_is_answered_by_another_to_the_same_request() {
        let answers = Arc::new(MemoryAnswers::default());
        let [one, other] = [1, 2].map(|_| QuickLedger::new(answers.clone()));
        assert_eq!(claim(&one, 1, 7).await, Claim::New);
        assert_eq!(claim(&other, 2, 7).await, Claim::New, "a read may run twice at a time");
        complete(&one, 1, b"42").await;
        complete(&other, 2, b"43").await;
        assert_eq!(claim(&other, 2, 7).await, Claim::Replay(Bytes::from_static(b"43")), "its own");
        let third = QuickLedger::new(answers);
        for _ in 0..2 {
            assert_eq!(claim(&third, 3, 7).await, Claim::Replay(Bytes::from_static(b"42")));
        }
        assert_eq!(
            claim(&third, 3, 8).await,
            Claim::New,
            "another version of what is called may have another answer"
        );
    }

    /// Shared answers that count requests and always fail.
    #[derive(Default)]
    struct Silent {
        asked: AtomicU32,
    }

    impl Silent {
        fn fails<T>(&self) -> Result<T, AnswersError> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Err(AnswersError("connection refused".into()))
        }
    }

    #[async_trait]
    impl Answers for Silent {
        async fn find(&self, _org: [u8; 16], _key: LedgerKey) -> Result<Option<StoredAnswer>, AnswersError> {
            self.fails()
        }

        async fn keep(
            &self,
            _org: [u8; 16],
            _key: LedgerKey,
            _answered: StoredAnswer,
            _keep: Duration,
        ) -> Result<bool, AnswersError> {
            self.fails()
        }
    }

    /// Without shared answers it behaves like any other ledger.
    #[tokio::test]
    async fn it_does_what_every_ledger_must_while_the_others_answers_are_away() {
        suite::run(Arc::new(QuickLedger::new(Arc::new(Silent::default())))).await;
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_others_answers_are_away_one_a_second_looks() {
        let silent = Arc::new(Silent::default());
        let ledger = QuickLedger::new(silent.clone());
        assert_eq!(claim(&ledger, 1, 7).await, Claim::New);
        complete(&ledger, 1, b"42").await;
        assert_eq!(claim(&ledger, 1, 7).await, Claim::Replay(Bytes::from_static(b"42")));
        assert_eq!(silent.asked.load(Ordering::Relaxed), 1, "only the first one");
        tokio::time::advance(PROBE_EVERY).await;
        let claimed = ledger
            .claim(LedgerRequest { key: LedgerKey([2; 32]), hash: [7; 32] }, holder(1), Instant::now(), LEASE)
            .await
            .unwrap();
        assert_eq!(claimed, Claim::New);
        assert_eq!(silent.asked.load(Ordering::Relaxed), 2);
    }
}
