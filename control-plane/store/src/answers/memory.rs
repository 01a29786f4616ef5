//! Answers of one process, for tests only.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Answers, AnswersError, BUDGET, StoredAnswer};
use crate::ledger::{Budget, LedgerKey};

/// Answers kept until the process ends.
pub struct MemoryAnswers {
    orgs: Mutex<HashMap<[u8; 16], OrgAnswers>>,
    budget: Budget,
}

/// Answers of one org, with the time at which each expires.
type OrgAnswers = HashMap<LedgerKey, (StoredAnswer, Instant)>;

impl Default for MemoryAnswers {
    fn default() -> MemoryAnswers {
        MemoryAnswers::with_budget(BUDGET)
    }
}

impl MemoryAnswers {
    /// Creates a store with another budget for each org.
    pub fn with_budget(budget: Budget) -> MemoryAnswers {
        MemoryAnswers { orgs: Mutex::default(), budget }
    }
}

#[async_trait]
impl Answers for MemoryAnswers {
    async fn find(&self, org: [u8; 16], key: LedgerKey) -> Result<Option<StoredAnswer>, AnswersError> {
        let orgs = self.orgs.lock();
        let kept = orgs.get(&org).and_then(|answers| answers.get(&key));
        Ok(kept.filter(|(_, until)| *until > Instant::now()).map(|(answered, _)| answered.clone()))
    }

    async fn keep(
        &self,
        org: [u8; 16],
        key: LedgerKey,
        answered: StoredAnswer,
        keep: Duration,
    ) -> Result<bool, AnswersError> {
        let now = Instant::now();
        let mut orgs = self.orgs.lock();
        let answers = orgs.entry(org).or_default();
        answers.retain(|_, (_, until)| *until > now);
        let bytes: usize = answers.values().map(|(kept, _)| kept.answer.len()).sum();
        let fits = answers.len() < self.budget.keys as usize
            && bytes + answered.answer.len() <= self.budget.bytes as usize;
        if answers.contains_key(&key) || !fits {
            return Ok(false);
        }
        answers.insert(key, (answered, now + keep));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite;
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_passes_the_suite() {
        suite::run(&MemoryAnswers::default()).await;
    }

    #[tokio::test]
    async fn the_memory_backend_keeps_to_its_budget() {
        suite::keeps_to_its_budget(&MemoryAnswers::with_budget(suite::SMALL)).await;
    }
}
