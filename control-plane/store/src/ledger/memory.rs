//! The ledger of one process.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::rules::{self, KEEP_ABANDONED, KeyChange, KeyStatus};
use super::{
    Answer, Budget, Claim, Holder, Ledger, LedgerError, LedgerKey, LedgerRequest, RequestHash, Result,
};

/// Maximum number of keys of all orgs together.
const MAX_KEYS: usize = 100_000;
/// Maximum bytes of answers of all orgs together.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Minimum interval between two sweeps of a full table.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct MemoryLedger {
    table: Mutex<KeyTable>,
    budget: Budget,
}

#[derive(Default)]
struct KeyTable {
    keys: HashMap<LedgerKey, KeyEntry>,
    /// Usage of each org.
    orgs: HashMap<[u8; 16], OrgUsage>,
    /// Bytes of all orgs together.
    bytes: usize,
    swept: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct OrgUsage {
    keys: usize,
    bytes: usize,
}

struct KeyEntry {
    hash: RequestHash,
    holder: Holder,
    state: watch::Sender<State>,
    /// End of the lease while running, of the answer's retention afterwards.
    expires: Instant,
}

#[derive(Clone)]
enum State {
    Running,
    Released,
    Done(Bytes),
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn claim(
        &self,
        request: LedgerRequest,
        holder: Holder,
        wait_until: Instant,
        lease: Duration,
    ) -> Result<Claim> {
        loop {
            let (mut running, expires) = match self.look(request, holder, lease)? {
                Lookup::Answer(claim) => return Ok(claim),
                Lookup::Running(state, expires) => (state, expires),
            };
            let ended = running.wait_for(|state| !matches!(state, State::Running));
            // The next look finds the key answered, free, or abandoned.
            if tokio::time::timeout_at(wait_until.min(expires), ended).await.is_err()
                && Instant::now() >= wait_until
            {
                return Ok(Claim::InFlight);
            }
        }
    }

    async fn seize(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<bool> {
        let seizure = KeyChange::Seize(request.hash, holder);
        let mut table = self.table.lock();
        Ok(table.allowing(&request.key, &seizure).map(|entry| entry.hold(holder, lease)).is_some())
    }

    async fn reclaim(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<bool> {
        let reclaim = KeyChange::Reclaim(request.hash);
        let mut table = self.table.lock();
        Ok(table.allowing(&request.key, &reclaim).map(|entry| entry.hold(holder, lease)).is_some())
    }

    async fn renew(&self, key: LedgerKey, holder: Holder, lease: Duration) -> Result<bool> {
        let mut table = self.table.lock();
        let Some(entry) = table.allowing(&key, &KeyChange::Own(holder)) else { return Ok(false) };
        entry.expires = Instant::now() + lease;
        Ok(true)
    }

    async fn complete(&self, key: LedgerKey, holder: Holder, answer: Answer, keep: Duration) -> Result<bool> {
        let mut table = self.table.lock();
        let Some(entry) = table.allowing(&key, &KeyChange::Own(holder)) else { return Ok(false) };
        entry.expires = Instant::now() + keep;
        let org = entry.holder.org;
        let kept = table.orgs.get(&org).map_or(0, |usage| usage.bytes);
        let whole = answer.whole.len();
        let room = kept + whole <= self.budget.bytes as usize && table.bytes + whole <= MAX_BYTES;
        let answer = if room { answer.whole } else { answer.short };
        table.bytes += answer.len();
        table.orgs.entry(org).or_default().bytes += answer.len();
        if let Some(entry) = table.keys.get(&key) {
            entry.state.send_replace(State::Done(answer));
        }
        Ok(true)
    }

    async fn answer(&self, request: LedgerRequest) -> Result<Option<Bytes>> {
        let table = self.table.lock();
        Ok(table.with_status(request, KeyStatus::Answer).map(KeyEntry::answer))
    }

    async fn running(&self, request: LedgerRequest) -> Result<Option<[u8; 16]>> {
        let table = self.table.lock();
        Ok(table.with_status(request, KeyStatus::Running).map(|entry| entry.holder.call))
    }

    async fn release(&self, key: LedgerKey, holder: Holder) -> Result<()> {
        let mut table = self.table.lock();
        if table.allowing(&key, &KeyChange::Own(holder)).is_some()
            && let Some(entry) = table.remove(&key)
        {
            entry.state.send_replace(State::Released);
        }
        Ok(())
    }
}

impl KeyEntry {
    fn at(&self, now: Instant) -> rules::State {
        rules::State::of(matches!(*self.state.borrow(), State::Done(_)), self.expires <= now, false)
    }

    /// Whether the entry can be removed.
    fn is_over(&self, now: Instant) -> bool {
        match self.at(now) {
            rules::State::Expired => true,
            rules::State::Abandoned => now.saturating_duration_since(self.expires) >= KEEP_ABANDONED,
            rules::State::Running | rules::State::Answered => false,
        }
    }

    /// Transfers the key to `holder`, which has the same principal and therefore the same org.
    fn hold(&mut self, holder: Holder, lease: Duration) {
        self.holder = Holder { org: self.holder.org, ..holder };
        self.expires = Instant::now() + lease;
    }

    /// Returns the answer; empty if there is none yet.
    fn answer(&self) -> Bytes {
        match &*self.state.borrow() {
            State::Done(answer) => answer.clone(),
            State::Running | State::Released => Bytes::new(),
        }
    }
}

enum Lookup {
    Answer(Claim),
    /// A running execution, with the end of its lease.
    Running(watch::Receiver<State>, Instant),
}

impl KeyTable {
    /// Returns the entry of the request's key if it has this status for the request.
    fn with_status(&self, request: LedgerRequest, status: KeyStatus) -> Option<&KeyEntry> {
        let entry = self.keys.get(&request.key)?;
        (entry.at(Instant::now()).status_for(entry.hash == request.hash) == status).then_some(entry)
    }

    /// Returns the entry of a key if the rules allow the change.
    fn allowing(&mut self, key: &LedgerKey, change: &KeyChange) -> Option<&mut KeyEntry> {
        let now = Instant::now();
        let condition = change.condition();
        self.keys.get_mut(key).filter(|entry| condition.holds(&entry.hash, &entry.holder, entry.at(now)))
    }

    /// Removes an entry and subtracts its usage.
    fn remove(&mut self, key: &LedgerKey) -> Option<KeyEntry> {
        let entry = self.keys.remove(key)?;
        let bytes = entry.answer().len();
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(usage) = self.orgs.get_mut(&entry.holder.org) {
            usage.keys = usage.keys.saturating_sub(1);
            usage.bytes = usage.bytes.saturating_sub(bytes);
            if usage.keys == 0 {
                self.orgs.remove(&entry.holder.org);
            }
        }
        Some(entry)
    }

    /// Whether one more key of `org` fits. A full table is swept at most once a second, regardless of the number of
    /// claims.
    fn has_room(&mut self, org: &[u8; 16], budget: Budget, now: Instant) -> bool {
        let full = |table: &KeyTable| {
            let own = table.orgs.get(org).map_or(0, |usage| usage.keys);
            table.keys.len() >= MAX_KEYS || !budget.has_room(own as u64)
        };
        if !full(self) {
            return true;
        }
        if self.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_EVERY) {
            self.swept = Some(now);
            let ended: Vec<LedgerKey> =
                self.keys.iter().filter(|(_, entry)| entry.is_over(now)).map(|(key, _)| *key).collect();
            ended.iter().for_each(|key| drop(self.remove(key)));
        }
        !full(self)
    }
}

impl MemoryLedger {
    /// Creates a ledger with another budget.
    pub fn with_budget(budget: Budget) -> MemoryLedger {
        MemoryLedger { budget, ..MemoryLedger::default() }
    }

    /// Returns the hash of the request for which a key was claimed.
    pub(crate) fn hash(&self, key: LedgerKey) -> Option<RequestHash> {
        self.table.lock().keys.get(&key).map(|entry| entry.hash)
    }

    fn look(&self, request: LedgerRequest, holder: Holder, lease: Duration) -> Result<Lookup> {
        let LedgerRequest { key, hash } = request;
        let now = Instant::now();
        let mut table = self.table.lock();
        if let Some(entry) = table.keys.get(&key) {
            match entry.at(now).status_for(entry.hash == hash) {
                KeyStatus::Conflict => return Ok(Lookup::Answer(Claim::Conflict)),
                KeyStatus::Answer => return Ok(Lookup::Answer(Claim::Replay(entry.answer()))),
                KeyStatus::Abandoned => return Ok(Lookup::Answer(Claim::Abandoned)),
                KeyStatus::Running => return Ok(Lookup::Running(entry.state.subscribe(), entry.expires)),
                KeyStatus::Free => drop(table.remove(&key)),
            }
        }
        if !table.has_room(&holder.org, self.budget, now) {
            return Err(LedgerError::Full);
        }
        let (state, _) = watch::channel(State::Running);
        table.keys.insert(key, KeyEntry { hash, holder, state, expires: now + lease });
        table.orgs.entry(holder.org).or_default().keys += 1;
        Ok(Lookup::Answer(Claim::New))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::suite;
    use super::*;

    #[tokio::test]
    async fn the_memory_backend_passes_the_suite() {
        suite::run(Arc::new(MemoryLedger::default())).await;
    }

    #[tokio::test]
    async fn the_memory_backend_keeps_to_its_budget() {
        suite::keeps_to_its_budget(&MemoryLedger::with_budget(suite::SMALL)).await;
    }
    /// Its effects may have happened: if it were forgotten, it would be executed again.
    #[tokio::test]
    async fn a_full_table_makes_no_room_of_a_key_whose_outcome_is_open() {
        let ledger = MemoryLedger::with_budget(Budget { keys: 1, ..Budget::default() });
        let holder = Holder { call: [1; 16], owner: [7; 16], org: [1; 16] };
        let claim = |n: u8| {
            ledger.claim(
                LedgerRequest { key: LedgerKey([n; 32]), hash: [2; 32] },
                holder,
                Instant::now(),
                Duration::ZERO,
            )
        };
        assert_eq!(claim(1).await.unwrap(), Claim::New);
        assert!(matches!(claim(2).await, Err(LedgerError::Full)));
        assert_eq!(claim(1).await.unwrap(), Claim::Abandoned);
    }
}
