//! Judges a write before it is stored: by the builders that edges and gateways use to take a snapshot, and by the
//! budgets of its org and of the whole.
//!
//! Owns the usage of every org, and the order of writes: one at a time, so that two that fit alone do not pass
//! together. Keeps true: no accepted write can stop publishing. What another process stores in the same
//! database meanwhile is the snapshot's builder to handle.

use std::collections::HashMap;
use std::sync::Arc;

use asp_store::control::{
    BindingRecord, Change, ControlState, ControlStore, ExposureRecord, LimitRecord, RevocationRecord,
    StoreError, Written,
};
use tokio::sync::{Mutex, MutexGuard};

use crate::catalog::Compiler;
use crate::catalog::budget::{EXPOSURE, Full, Growth, POLICY, REVOCATIONS, Share};
use crate::catalog::build::revoked_bytes;
use crate::catalog::orgs::{self, OrgPolicy, Records, Size};
use crate::clock;
use crate::policy;

/// What the least revocation counts: an entry of `EdgeSnapshot.revoked`.
const REVOCATION: usize = 16;

/// Why a write is not stored.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Full(#[from] Full),
    /// Edges or gateways would not take it.
    #[error("it cannot be published: {0}")]
    Unpublishable(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes writes into the store.
pub struct Admission {
    store: Arc<dyn ControlStore>,
    compiler: Compiler,
    usage: Mutex<Usage>,
}

/// What every org has stored; bounded as the store is.
#[derive(Default)]
struct Usage {
    /// The store's revision that this says; `None`: read it anew.
    revision: Option<u64>,
    orgs: HashMap<String, OrgUsage>,
}

#[derive(Clone, Copy, Default)]
struct OrgUsage {
    size: Size,
    revocations: usize,
}

impl Admission {
    pub fn new(store: Arc<dyn ControlStore>, compiler: Compiler) -> Admission {
        Admission { store, compiler, usage: Mutex::default() }
    }

    /// Sets an exposure exception. `platform`: an admin of the platform writes.
    pub async fn put_exposure(
        &self,
        platform: bool,
        change: &Change,
        record: &ExposureRecord,
    ) -> Result<Written, Refusal> {
        let mut usage = self.usage().await?;
        self.judge(&record.org, &Records { exposure: vec![record], ..Records::default() }).await?;
        let mut stored = self.store.exposure(&record.org).await?.value;
        stored.retain(|known| (&known.server, &known.protocol) != (&record.server, &record.protocol));
        stored.push(record.clone());
        let records = Records { exposure: stored.iter().collect(), ..Records::default() };
        let mut after = usage.of(&record.org);
        after.size.exposure = size(&record.org, &records).exposure;
        usage.admit(&EXPOSURE, |org| org.size.exposure, &record.org, after, platform)?;
        let written = self.store.put_exposure(change, record).await?;
        Ok(usage.wrote(&record.org, after, written))
    }

    /// Sets a binding.
    pub async fn put_binding(
        &self,
        platform: bool,
        change: &Change,
        record: &BindingRecord,
    ) -> Result<Written, Refusal> {
        let mut usage = self.usage().await?;
        self.judge(&record.org, &Records { bindings: vec![record], ..Records::default() }).await?;
        let mut stored = self.store.bindings(&record.org).await?.value;
        let key = |known: &BindingRecord| {
            let BindingRecord { target_type, target, primitive, protocol, .. } = known.clone();
            (target_type, target, primitive, protocol)
        };
        let own = key(record);
        stored.retain(|known| key(known) != own);
        stored.push(record.clone());
        let records = Records { bindings: stored.iter().collect(), ..Records::default() };
        let mut after = usage.of(&record.org);
        after.size.bindings = size(&record.org, &records).bindings;
        usage.admit(&POLICY, |org| org.size.policy(), &record.org, after, platform)?;
        let written = self.store.put_binding(change, record).await?;
        Ok(usage.wrote(&record.org, after, written))
    }

    /// Replaces an org's limits.
    pub async fn put_limits(
        &self,
        platform: bool,
        change: &Change,
        org: &str,
        list: &[LimitRecord],
    ) -> Result<Written, Refusal> {
        let mut usage = self.usage().await?;
        let records = Records { limits: list.iter().collect(), ..Records::default() };
        self.judge(org, &records).await?;
        let mut after = usage.of(org);
        after.size.limits = size(org, &records).limits;
        usage.admit(&POLICY, |org| org.size.policy(), org, after, platform)?;
        let written = self.store.put_limits(change, org, list).await?;
        Ok(usage.wrote(org, after, written))
    }

    /// Adds a revocation. A part of the room is the platform's alone, so that it can always revoke.
    pub async fn add_revocation(
        &self,
        platform: bool,
        change: &Change,
        record: &RevocationRecord,
    ) -> Result<Written, Refusal> {
        let mut usage = self.usage().await?;
        let mut after = usage.of(&record.org);
        after.revocations += cost(record, &self.compiler.trusted());
        usage.admit(&REVOCATIONS, |org| org.revocations, &record.org, after, platform)?;
        let written = self.store.add_revocation(change, record).await?;
        Ok(usage.wrote(&record.org, after, written))
    }

    /// The usage as the store has it now. Nobody else writes through here while the guard is held.
    async fn usage(&self) -> Result<MutexGuard<'_, Usage>, StoreError> {
        let mut usage = self.usage.lock().await;
        if usage.revision != Some(self.store.revision().await?) {
            let state = self.store.load().await?;
            *usage = Usage::read(&state, &self.compiler.trusted());
        }
        Ok(usage)
    }

    /// Whether edges and gateways take these records of an org.
    async fn judge(&self, org: &str, records: &Records<'_>) -> Result<(), Refusal> {
        let (compiled, unreadable) = OrgPolicy::compile(org, records);
        if !unreadable.is_empty() {
            return Err(Refusal::Unpublishable(unreadable.join("; ")));
        }
        let compiler = self.compiler.clone();
        let judged = tokio::task::spawn_blocking(move || compiler.judge(&compiled)).await;
        judged.map_err(|error| StoreError::Backend(error.to_string()))?.map_err(Refusal::Unpublishable)
    }
}

impl Usage {
    fn read(state: &ControlState, issuers: &[String]) -> Usage {
        let mut usage = Usage { revision: Some(state.revision), orgs: HashMap::new() };
        for (org, records) in orgs::of_state(state) {
            usage.orgs.entry(org.to_owned()).or_default().size = size(org, &records);
        }
        let now = clock::now_ms();
        for record in state.revocations.iter().filter(|record| record.until > now) {
            usage.orgs.entry(record.org.clone()).or_default().revocations += cost(record, issuers);
        }
        usage
    }

    fn of(&self, org: &str) -> OrgUsage {
        self.orgs.get(org).copied().unwrap_or_default()
    }

    fn admit(
        &self,
        share: &Share,
        part: fn(&OrgUsage) -> usize,
        org: &str,
        after: OrgUsage,
        platform: bool,
    ) -> Result<(), Full> {
        let others = self.orgs.iter().filter(|(name, _)| *name != org).map(|(_, usage)| part(usage));
        let others = fitting(others.collect(), share.whole);
        share.admit(Growth { before: part(&self.of(org)), after: part(&after), others, platform })
    }

    /// Keeps what a write left behind.
    fn wrote(&mut self, org: &str, after: OrgUsage, written: Written) -> Written {
        if written.changed {
            self.orgs.insert(org.to_owned(), after);
            // Anything else: somebody wrote in between.
            let next = self.revision.map(|revision| revision + 1);
            self.revision = next.filter(|next| *next == written.revision);
        }
        written
    }
}

/// What of these is published, the small ones first. What is stored beyond the whole, by an older version or another
/// process, must not stop the writes of the others.
fn fitting(mut parts: Vec<usize>, whole: usize) -> usize {
    parts.sort_unstable();
    parts.into_iter().fold(0, |sum, part| if sum + part <= whole { sum + part } else { sum })
}

fn size(org: &str, records: &Records<'_>) -> Size {
    OrgPolicy::compile(org, records).0.size()
}

/// Bytes of a live revocation in an edge snapshot.
fn cost(record: &RevocationRecord, issuers: &[String]) -> usize {
    let bytes = match record.kind.as_str() {
        "token" if record.issuer.is_empty() => REVOCATION * issuers.len(),
        "token" | "token_hash" => REVOCATION,
        _ => revoked_bytes(&policy::revoked(std::slice::from_ref(record), issuers, 0)),
    };
    bytes.max(REVOCATION)
}
